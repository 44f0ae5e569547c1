"""The routes beside /v1 that programs use: health, metrics, tokens and the gate."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from flask import Blueprint, Response, request
from prometheus_client import CONTENT_TYPE_LATEST

from engine.async_llm import EngineDeadError
from webui.chat_request import Message, encode_chat, without_empty_fields
from webui.errors import ApiError, error_response
from webui.json_body import convert, read_json
from webui.openai_api import check_model
from webui.request_fields import Int
from webui.services import services

blueprint = Blueprint("server", __name__)


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A prompt as it is, or messages in the model's chat form: one of the two."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None  # by default yes for a prompt; a chat form has them already
    add_generation_prompt: bool = True
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    tokens: list[Int]


@blueprint.get("/health")
def health() -> Response:
    llm = services().llm
    if llm.healthy:
        return Response(status=200)
    try:
        llm.call("gate_state")
    except EngineDeadError as error:
        return error_response(503, str(error))
    return error_response(503, "the server is shutting down")


@blueprint.get("/version")
def engine_version() -> dict[str, str]:
    try:
        return {"version": version("batchscope")}
    except PackageNotFoundError:  # run from a folder that is not installed
        return {"version": "unknown"}


@blueprint.get("/metrics")
def metrics() -> Response:
    if not services().llm.config.trace_config.trace:
        raise ApiError(404, "metrics are counted from the trace, which --no-trace turned off")
    return Response(services().metrics.render(), content_type=CONTENT_TYPE_LATEST)


@blueprint.post("/tokenize")
def tokenize() -> dict[str, Any]:
    body = convert(without_empty_fields(read_json(request)), TokenizeRequest)
    check_model(body.model)
    tokenizer = services().llm.tokenizer
    if (body.prompt is None) == (not body.messages):
        raise ApiError(400, "give either prompt or messages", "prompt")
    if body.prompt is not None:
        tokens = tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)
    else:
        if body.add_special_tokens:
            raise ApiError(400, "add_special_tokens is for a prompt: the chat form has them", "add_special_tokens")
        messages = [message.plain() for message in body.messages or ()]
        tokens = encode_chat(tokenizer, messages, body.add_generation_prompt)
    strings = [tokenizer.token_bytes(token).decode("utf-8", "replace") for token in tokens]
    return {
        "count": len(tokens),
        "max_model_len": services().llm.config.model_config.max_model_len,
        "tokens": tokens,
        "token_strs": strings if body.return_token_strs else None,
    }


@blueprint.post("/detokenize")
def detokenize() -> dict[str, str]:
    body = convert(read_json(request), DetokenizeRequest)
    check_model(body.model)
    tokenizer = services().llm.tokenizer
    for token in body.tokens:
        if not 0 <= token < tokenizer.vocab_size:
            raise ApiError(400, f"tokens: {token} is not a token id: they go from 0 to {tokenizer.vocab_size - 1}",
                           "tokens")  # fmt: skip
    return {"prompt": tokenizer.decode(body.tokens, skip_special_tokens=False)}


@blueprint.post("/pause")
def pause() -> dict[str, str]:
    """Hold the next pass. What runs is kept, as vLLM keeps it in the one mode that there is here."""
    if (mode := request.args.get("mode", "keep")) != "keep":
        raise ApiError(400, f"mode must be keep, got {mode!r}: cancel requests by closing their connections", "mode")
    services().llm.call("pause")
    return {"status": "paused"}


@blueprint.post("/resume")
def resume() -> dict[str, str]:
    services().llm.call("resume")
    return {"status": "resumed"}


@blueprint.get("/is_paused")
def is_paused() -> dict[str, bool]:
    return {"is_paused": bool(services().llm.call("gate_state")["paused"])}


@blueprint.post("/reset_prefix_cache")
def reset_prefix_cache() -> dict[str, str]:
    """Forget what the prefix cache holds; ?reset_running_requests=true preempts whoever holds blocks."""
    given = request.args.get("reset_running_requests", "false")
    if given not in ("true", "false"):
        raise ApiError(400, f"reset_running_requests must be true or false, got {given!r}", "reset_running_requests")
    try:
        done = services().llm.call("reset_prefix_cache", given == "true")
    except ValueError as error:  # the engine is held inside a pass
        raise ApiError(409, str(error)) from None
    if not done:
        raise ApiError(409, "requests hold blocks of the cache: wait for them, or add ?reset_running_requests=true")
    return {"status": "reset"}

"""The OpenAI-compatible routes, under /v1."""

from typing import Any

from flask import Blueprint, Response, request

from engine.admission import check_length
from engine.tokenizer import Tokenizer
from webui.call import Call, call_id
from webui.chat_request import ChatRequest
from webui.chat_response import Chat
from webui.completion_request import CompletionRequest
from webui.completion_response import Completion, EchoedPrompt
from webui.errors import ApiError
from webui.json_body import read_json
from webui.live import Prompt
from webui.request_fields import RequestFields
from webui.services import services
from webui.tools import NamedTool

blueprint = Blueprint("openai", __name__, url_prefix="/v1")


@blueprint.post("/completions")
def completions() -> Response:
    body = CompletionRequest.read(read_json(request))
    check_model(body.model)
    tokenizer, params = services().llm.tokenizer, body.sampling_params()
    prompts: list[Prompt] = body.prompts()
    if body.echo or not body.add_special_tokens:
        prompts = [_token_ids(prompt, tokenizer, body.add_special_tokens) for prompt in prompts]
    identity = call_id(body)
    answer = Completion(
        identity,
        services().model_name,
        len(prompts),
        params.n,
        body.usage_in_stream,
        body.logprobs,
        [_echoed(prompt, tokenizer) for prompt in prompts] if body.echo else None,
        show_prompt_logprobs=body.prompt_logprobs is not None,
    )
    return Call(body, identity, prompts, params, answer).response(body.stream)


@blueprint.post("/chat/completions")
def chat_completions() -> Response:
    body = ChatRequest.read(read_json(request))
    check_model(body.model)
    tokenizer, params = services().llm.tokenizer, body.sampling_params()
    prompt = body.prompt(tokenizer, services().llm.config)
    identity = call_id(body)
    answer = Chat(
        identity,
        services().model_name,
        tokenizer.token_bytes,
        params.n,
        body.usage_in_stream,
        bool(body.stream),
        params.logprobs,
        named_tool=body.tool_choice.function.name if isinstance(body.tool_choice, NamedTool) else None,
        calls_tools=body.tool_choice == "required",
    )
    return _chat_call(body, identity, prompt, params, answer).response(body.stream)


@blueprint.post("/embeddings")
def embeddings() -> Response:
    raise ApiError(404, f"embeddings are not available: {services().model_name!r} generates text, and no pooling "
                   "model is served")  # fmt: skip


@blueprint.get("/models")
def models() -> dict[str, Any]:
    return {"object": "list", "data": [_model_card()]}


@blueprint.get("/models/<path:name>")
def model(name: str) -> dict[str, Any]:
    check_model(name)
    return _model_card()


def check_model(name: str | None) -> None:
    """Raises ApiError 404 for another model's name; None is whichever is served."""
    if name not in (None, services().model_name):
        raise ApiError(404, f"the model {name!r} does not exist: {services().model_name!r} is served", "model")


def _chat_call(body: RequestFields, identity: str, prompt: Prompt, params: Any, answer: Chat) -> Call:
    try:
        return Call(body, identity, [prompt], params, answer)
    except ApiError as error:
        error.param = "messages" if error.param == "prompt" else error.param
        raise


def _token_ids(prompt: Prompt, tokenizer: Tokenizer, add_special_tokens: bool) -> list[int]:
    """Raises ApiError 400 for a text that is too long before it is tokenized."""
    if not isinstance(prompt, str):
        return prompt
    try:
        check_length(prompt, services().llm.config)
    except ValueError as error:
        raise ApiError(400, str(error), "prompt") from None
    return tokenizer.encode(prompt, add_special_tokens)


def _echoed(prompt: Prompt, tokenizer: Tokenizer) -> EchoedPrompt:
    """Return a prompt that goes before its answers. Raises ApiError 400 for ids that have no text."""
    assert isinstance(prompt, list)
    if not all(0 <= token_id < tokenizer.vocab_size for token_id in prompt):
        raise ApiError(400, f"prompt: token ids go from 0 to {tokenizer.vocab_size - 1}", "prompt")
    first = tokenizer.decode(prompt[:1], skip_special_tokens=False)
    return EchoedPrompt(tokenizer.decode(prompt, skip_special_tokens=False), prompt, first)


def _model_card() -> dict[str, Any]:
    return {
        "id": services().model_name,
        "object": "model",
        "created": services().created,
        "owned_by": "batchscope",
        "root": services().llm.config.model_config.model,
        "parent": None,
        "max_model_len": services().llm.config.model_config.max_model_len,
    }

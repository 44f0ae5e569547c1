"""The OpenAI-compatible routes: /v1/completions, /v1/models, and /health."""

import re
import secrets
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request

from engine.async_llm import EngineDeadError, RequestOutput, RequestStream
from webui.completion_request import CompletionRequest
from webui.completion_response import Completion
from webui.disconnect import Disconnect
from webui.errors import ApiError, as_api_error, error_body, error_response
from webui.json_body import read_json
from webui.live import TICK, outputs
from webui.services import services
from webui.sse import DONE, PING, event, stream_response

blueprint = Blueprint("openai", __name__)
PING_TICKS = round(0.5 / TICK)
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; nginx's number for the same thing


class Call:
    """One POST: its prompts as live requests, and the completion that they become."""

    def __init__(self, body: CompletionRequest, call_id: str) -> None:
        """Submit every prompt, or none. Raises ApiError."""
        prompts, params = body.prompts(), body.sampling_params()
        self.id = call_id
        self.ids = [call_id] if len(prompts) == 1 else [f"{call_id}-{i}" for i in range(len(prompts))]
        self.completion = Completion(call_id, services().model_name, len(prompts), _usage_in_stream(body))
        self._live = services().live
        self.streams: list[RequestStream] = []
        try:
            for request_id, prompt in zip(self.ids, prompts, strict=True):
                self.streams.append(self._live.submit(prompt, params, request_id, body.priority))
        except ApiError:
            self.release()
            raise

    def release(self) -> None:
        """Abort whatever still runs."""
        for request_id in self.ids[: len(self.streams)]:
            self._live.release(request_id)


@blueprint.post("/v1/completions")
def completions() -> Response:
    body = CompletionRequest.read(read_json(request))
    if body.model not in (None, services().model_name):
        raise ApiError(404, f"the model {body.model!r} does not exist: {services().model_name!r} is served", "model")
    call = Call(body, _call_id())
    gone = Disconnect(request.environ)
    try:
        response = stream_response(_events(call, gone)) if body.stream else _whole(call, gone)
    except BaseException:
        call.release()
        raise
    response.call_on_close(call.release)
    response.headers["X-Request-Id"] = call.id
    return response


@blueprint.get("/v1/models")
def models() -> dict[str, Any]:
    return {"object": "list", "data": [_model_card()]}


@blueprint.get("/v1/models/<path:name>")
def model(name: str) -> dict[str, Any]:
    if name != services().model_name:
        raise ApiError(404, f"the model {name!r} does not exist", "model")
    return _model_card()


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


def _events(call: Call, gone: Disconnect) -> Iterator[bytes]:
    """Yield the events of a streamed completion, and comments while there are none."""
    quiet = 0
    try:
        for item in outputs(call.streams):
            if gone():
                return
            quiet = 0 if item else quiet + 1
            if item:
                yield call.completion.chunk(*item)
            elif quiet % PING_TICKS == 0:
                yield PING
            if item and item[1].finish_reason == "error":
                yield event(error_body(500, _failure(item[1])))
        yield call.completion.usage_chunk()
    except Exception as error:
        told = as_api_error(error)
        yield event(error_body(told.status, told.message, told.param))
    yield DONE


def _whole(call: Call, gone: Disconnect) -> Response:
    """Wait for every choice. Raises ApiError where one fails and EngineDeadError where the engine does."""
    for item in outputs(call.streams):
        if gone():
            return Response(status=CLIENT_CLOSED_REQUEST)
        if item:
            call.completion.choices[item[0]].add(item[1])
            if item[1].finish_reason == "error":
                raise ApiError(500, _failure(item[1]))
    return Response(call.completion.whole(), content_type="application/json")


def _failure(output: RequestOutput) -> str:
    return output.error or f"request {output.request_id} failed in the engine"


def _call_id() -> str:
    """Return the client's X-Request-Id, else a random id. Raises ApiError 400."""
    given = request.headers.get("X-Request-Id")
    if given is not None and not REQUEST_ID.fullmatch(given):
        raise ApiError(400, "X-Request-Id must be 1 to 128 visible ASCII characters", "X-Request-Id")
    return given or secrets.token_hex(8)


def _usage_in_stream(body: CompletionRequest) -> str:
    options = body.stream_options
    if options is None or not options.include_usage:
        return "none"
    return "each" if options.continuous_usage_stats else "last"


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

"""/openapi.json: the API's document, made of the same structs that decode its requests."""

from typing import Any

import msgspec
from flask import Blueprint, Response

from webui.chat_request import ChatRequest
from webui.completion_request import CompletionRequest
from webui.server_api import DetokenizeRequest, TokenizeRequest, engine_version
from webui.services import services

blueprint = Blueprint("openapi", __name__)
BODIES = (CompletionRequest, ChatRequest, TokenizeRequest, DetokenizeRequest)
STREAMED = {"text/event-stream": {"schema": {"type": "string"}}}
OBJECT: dict[str, Any] = {"type": "object"}


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: str | None
    stop_reason: int | str | None


class CompletionAnswer(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class ChatMessage(msgspec.Struct):
    role: str
    content: str | None


class ChatChoice(msgspec.Struct):
    index: int
    message: ChatMessage
    finish_reason: str | None
    stop_reason: int | str | None


class ChatAnswer(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ModelCard(msgspec.Struct):
    id: str
    object: str
    created: int
    owned_by: str
    max_model_len: int


class ModelList(msgspec.Struct):
    object: str
    data: list[ModelCard]


class Tokens(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(msgspec.Struct):
    prompt: str


class Status(msgspec.Struct):
    status: str


class Paused(msgspec.Struct):
    is_paused: bool


class Version(msgspec.Struct):
    version: str


class ErrorWords(msgspec.Struct):
    message: str
    type: str
    code: int
    param: str | None = None


class Error(msgspec.Struct):
    error: ErrorWords


ANSWERS = (CompletionAnswer, ChatAnswer, ModelList, ModelCard, Tokens, Text, Status, Paused, Version, Error)


@blueprint.get("/openapi.json")
def openapi() -> Response:
    return Response(msgspec.json.encode(document()), content_type="application/json")


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of what programs use; the page's own /api is no part of it."""
    _, components = msgspec.json.schema_components((*BODIES, *ANSWERS), ref_template="#/components/schemas/{name}")
    _add_neutral_fields(components)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Batchscope",
            **engine_version(),
            "description": "What OpenAI's clients and vLLM's users send.",
        },
        "paths": _paths(),
        "components": {"schemas": components},
    }
    if services().access.api_key:
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"key": []}]
    return described


def _paths() -> dict[str, Any]:
    name = {"schema": {"type": "string"}, "example": services().model_name}
    model = {"name": "name", "in": "path", "required": True, **name}
    mode = {"name": "mode", "in": "query", "schema": {"enum": ["keep"]}}
    preempt = {"name": "reset_running_requests", "in": "query", "schema": {"enum": ["true", "false"]}}
    return {
        "/v1/completions": {"post": _asks(CompletionRequest, CompletionAnswer, 404, 413, 429, 503, streamed=True)},
        "/v1/chat/completions": {"post": _asks(ChatRequest, ChatAnswer, 404, 413, 429, 503, streamed=True)},
        "/v1/models": {"get": _answers(ModelList)},
        "/v1/models/{name}": {"get": _answers(ModelCard, 404) | {"parameters": [model]}},
        "/tokenize": {"post": _asks(TokenizeRequest, Tokens, 404, 413)},
        "/detokenize": {"post": _asks(DetokenizeRequest, Text, 404, 413)},
        "/health": {"get": {"responses": {"200": {"description": "the engine runs"}, "503": _error()}}},
        "/version": {"get": _answers(Version)},
        "/metrics": {"get": {"responses": {"200": {
            "description": "Prometheus metrics under vLLM's names", "content": {"text/plain": {"schema": {}}}
        }, "404": _error()}}},
        "/pause": {"post": _answers(Status, 400, 503) | {"parameters": [mode]}},
        "/resume": {"post": _answers(Status, 503)},
        "/is_paused": {"get": _answers(Paused, 503)},
        "/reset_prefix_cache": {"post": _answers(Status, 400, 409, 503) | {"parameters": [preempt]}},
    }  # fmt: skip


def _asks(body: type, answer: type, *errors: int, streamed: bool = False) -> dict[str, Any]:
    described = _answers(answer, 400, *errors)
    described["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference(body)}}}
    if streamed:
        described["responses"]["200"]["content"] |= STREAMED
    return described


def _answers(answer: type, *errors: int) -> dict[str, Any]:
    ok = {"description": answer.__name__, "content": {"application/json": {"schema": _reference(answer)}}}
    return {"responses": {"200": ok} | {str(status): _error() for status in (*errors, 401, 403)}}


def _error() -> dict[str, Any]:
    return {"description": "an error", "content": {"application/json": {"schema": _reference(Error)}}}


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _add_neutral_fields(components: dict[str, Any]) -> None:
    """Say which fields may be sent only as they make no difference."""
    for body in (CompletionRequest, ChatRequest):
        for name, neutral in body.not_available().items():
            components[body.__name__]["properties"][name] = {"enum": [None, *neutral]}

"""Errors as the OpenAI API shapes them: {"error": {message, type, param, code}}, wherever a program asks."""

import re
from http import HTTPStatus

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from engine.async_llm import EngineDeadError
from engine.sampling_params import SamplingParams
from tracer.trace_format import TraceError

HTML_PREFIXES = ("/static", "/socket.io")  # and "/" itself: there, people and browsers ask
RETRY_AFTER = "1"  # seconds
FIELDS = {"prompt", *SamplingParams.__struct_fields__}
WORD = re.compile(r"\w+")
TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 410: "GoneError",
         429: "RateLimitError", 500: "InternalServerError", 503: "ServiceUnavailableError"}  # fmt: skip


class ApiError(Exception):
    """What went wrong with a request, in one sentence, and where: `param` names the field."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


def error_body(status: int, message: str, param: str | None = None) -> bytes:
    """Return the JSON that tells of an error."""
    kind = TYPES.get(status) or HTTPStatus(status).phrase.replace(" ", "") + "Error"
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


def error_response(status: int, message: str, param: str | None = None) -> Response:
    """Return the error as a response; clients of the OpenAI kind are told not to retry what would fail again."""
    response = Response(error_body(status, message, param), status, content_type="application/json")
    if status == 429:
        response.headers["Retry-After"] = RETRY_AFTER
    else:
        response.headers["x-should-retry"] = "false"
    return response


def refusal(error: ValueError) -> ApiError:
    """Return what the engine refuses in one sentence as an error of the field that it names first."""
    field = next((word for word in WORD.findall(str(error)) if word in FIELDS), None)
    return ApiError(400, str(error), field)


def as_api_error(error: Exception) -> ApiError:
    """Return what a client may be told about `error`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TraceError):  # the part of a recorded run that was asked for is damaged
        return ApiError(410, str(error))
    if isinstance(error, EngineDeadError):
        return ApiError(503, str(error))
    return ApiError(500, f"internal error ({type(error).__name__}): the server's terminal has the details")


def install_error_handlers(app: Flask) -> None:
    """Answer in JSON, not HTML, wherever a program asks."""

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response | HTTPException:
        for_people = request.path == "/" or request.path.startswith(HTML_PREFIXES)
        if for_people or error.code is None or error.code < 400:
            return error
        response = error_response(error.code, _words(error))
        if "Allow" in (headers := dict(error.get_headers())):
            response.headers["Allow"] = headers["Allow"]
        return response

    @app.errorhandler(Exception)
    def other_error(error: Exception) -> Response:
        told = as_api_error(error)
        if told.status == 500:
            app.logger.exception("%s %s failed", request.method, request.path)
        return error_response(told.status, told.message, told.param)


def _words(error: HTTPException) -> str:
    if error.code == 404:
        return f"there is nothing at {request.path}"
    if error.code == 405:
        return f"{request.path} does not take {request.method}"
    return error.description or error.name

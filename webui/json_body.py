"""JSON bodies, decoded into structs with errors that name the field."""

import re
from typing import Any, TypeVar

import msgspec
from flask import Request

from webui.errors import ApiError

T = TypeVar("T")
PLACE = re.compile(r" - at `\$\.?([\w.\[\]]*)`$")


def read_json(request: Request) -> dict[str, Any]:
    """Return the body of a request, which must be a JSON object. Raises ApiError 400 where it is not."""
    if request.mimetype and request.mimetype != "application/json":
        raise ApiError(400, f"send the body as Content-Type: application/json, not {request.mimetype}")
    try:
        body = msgspec.json.decode(request.get_data())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = str(error).removeprefix("JSON is malformed: ")
        raise ApiError(400, f"the body is not valid JSON: {what}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    return body


def convert(body: dict[str, Any], kind: type[T]) -> T:
    """Return the body as a struct of `kind`; fields that it lacks are passed over. Raises ApiError 400."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _told(str(error)) from None


def _told(message: str) -> ApiError:
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", message):
        return ApiError(400, f"{missing[1]} is missing", missing[1])
    found = PLACE.search(message)
    field = found[1] if found else ""
    if unknown := re.match(r"Object contains unknown field `(.*?)`", message):
        whole = f"{field}.{unknown[1]}" if field else unknown[1]
        return ApiError(400, f"there is no field {whole} here, or it is not available: leave it out", _first(whole))
    what = PLACE.sub("", message).replace("`", "")
    what = what[:1].lower() + what[1:]
    return ApiError(400, f"{field}: {what}" if field else what, _first(field))


def _first(path: str) -> str | None:
    """Return the field of the body in which a path begins."""
    return re.split(r"[.\[]", path)[0] or None

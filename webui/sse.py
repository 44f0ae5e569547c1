"""Server-sent events: how a response streams."""

from collections.abc import Iterable

from flask import Response

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def event(data: bytes) -> bytes:
    """Return one event; `data` is JSON on one line."""
    return b"data: " + data + b"\n\n"


def stream_response(events: Iterable[bytes]) -> Response:
    """Return the response that sends events as they come."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return Response(events, content_type="text/event-stream; charset=utf-8", headers=headers)

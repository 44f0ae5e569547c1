"""History as blocks of the trace file that is being recorded or replayed: /api/trace. A block never changes."""

from typing import Protocol

import msgspec
from flask import Blueprint, Response, request

from tracer.trace_format import BlockEntry
from tracer.trace_reader import TraceReader
from webui.errors import ApiError
from webui.services import services

blueprint = Blueprint("trace", __name__, url_prefix="/api/trace")


class Blocks(Protocol):
    """tracer.trace_writer.TraceWriter, or tracer.trace_reader.TraceReader."""

    index: list[BlockEntry]

    def section(self, number: int) -> bytes: ...


@blueprint.get("/index")
def index() -> Response:
    """The span of every block so far: [first seq, entries, first pass, passes]."""
    spans = [entry.span for entry in _blocks().index]
    body = msgspec.json.encode({"blocks": spans, "passes": spans[-1].next_pass if spans else 0})
    return Response(body, content_type="application/json")


@blueprint.get("/blocks/<int:number>")
def block(number: int) -> Response:
    """A block's section as it is in the file; webui/static/trace_block.js reads it."""
    try:
        data = _blocks().section(number)
    except IndexError:
        raise ApiError(404, f"there is no block {number}: /api/trace/index tells which there are") from None
    response = Response(data, content_type="application/octet-stream")
    response.add_etag()
    response.cache_control.no_cache = True  # kept by the browser, and asked about: another file may be served here
    response.make_conditional(request)
    return response


@blueprint.get("/recording")
def recording() -> Response:
    """How the recording goes: null where there is none."""
    now = services().recording
    return Response(msgspec.json.encode(now and now.status()), content_type="application/json")


def _blocks() -> Blocks:
    """Return the file's blocks. Raises ApiError 404 where nothing is recorded."""
    if isinstance(log := services().llm.log, TraceReader):
        return log
    if (now := services().recording) is None:
        raise ApiError(404, "this run is not recorded: start `batchscope serve` with --record FILE")
    return now.writer

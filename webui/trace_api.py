"""History as blocks of a trace: /api/trace. A block never changes, but for the last one of a run that goes on."""

import msgspec
from flask import Blueprint, Response, request

from tracer.log import Gone
from webui.errors import ApiError
from webui.services import services

blueprint = Blueprint("trace", __name__, url_prefix="/api/trace")


@blueprint.get("/index")
def index() -> Response:
    """The span of every block so far, [first seq, entries, first pass, passes]; the oldest one that is kept; and when
    the run began, in seconds since the epoch, which tells it from others."""
    log = services().llm.log
    spans = log.spans()
    answer = {
        "blocks": spans,
        "passes": spans[-1].next_pass if spans else 0,
        "oldest_block": log.oldest_block,
        "created": log.created,
    }
    return Response(msgspec.json.encode(answer), content_type="application/json")


@blueprint.get("/blocks/<int:number>")
def block(number: int) -> Response:
    """A block's section as it is, or would be, in a file; webui/static/trace_block.js reads it."""
    try:
        data = services().llm.log.section(number)
    except IndexError:
        raise ApiError(404, f"there is no block {number}: /api/trace/index tells which there are") from None
    except Gone:
        raise ApiError(
            410, "these passes are forgotten, for the log's size is bounded: to keep all, serve with --record FILE"
        ) from None
    response = Response(data, content_type="application/octet-stream")
    response.add_etag()
    response.cache_control.no_cache = True  # kept by the browser, and asked about: another run may be served here
    response.make_conditional(request)
    return response


@blueprint.get("/recording")
def recording() -> Response:
    """How the recording goes: null where there is none."""
    now = services().recording
    return Response(msgspec.json.encode(now and now.status()), content_type="application/json")

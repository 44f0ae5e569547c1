"""/api/profile: times the kernels of the next passes, which nobody pays for otherwise."""

import threading

import msgspec
from flask import Blueprint, Response, request

from webui.errors import ApiError
from webui.json_body import convert, read_json
from webui.profiling import profile_passes
from webui.services import services

blueprint = Blueprint("profile", __name__)
MAX_PASSES = 1000
TIMEOUT_S = 15.0
ONE_AT_A_TIME = threading.Lock()


class ProfileRequest(msgspec.Struct):
    passes: int = 32


@blueprint.post("/api/profile")
def profile() -> Response:
    """Time the next `passes` passes; see webui.profiling.Profile. Fewer, where they take too long."""
    passes = convert(read_json(request), ProfileRequest).passes
    if not 1 <= passes <= MAX_PASSES:
        raise ApiError(400, f"passes must be from 1 to {MAX_PASSES}, got {passes}", "passes")
    if not services().llm.config.trace_config.trace:
        raise ApiError(409, "nothing is recorded with --no-trace, so there is nothing to profile")
    if not ONE_AT_A_TIME.acquire(blocking=False):
        raise ApiError(409, "kernels are being timed for somebody already: try again in a moment")
    try:
        answer = profile_passes(services().llm, passes, TIMEOUT_S)
    finally:
        ONE_AT_A_TIME.release()
    if not answer.passes:
        raise ApiError(409, f"no pass ran within {TIMEOUT_S:.0f} seconds: send a prompt, or resume the engine")
    return Response(msgspec.json.encode(answer), content_type="application/json")

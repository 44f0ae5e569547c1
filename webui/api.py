"""The page's own routes, under /api."""

from typing import Any, TypeVar

import msgspec
from flask import Blueprint, Response, request

from engine.sampling_params import SamplingParams
from tracer.explain import explain
from tracer.log import Gone
from webui.errors import ApiError
from webui.json_body import convert, read_json
from webui.live import Prompt
from webui.page_facts import MAX_COPIES, MAX_STEP
from webui.samples import SAMPLES
from webui.services import services

blueprint = Blueprint("api", __name__, url_prefix="/api")
LOG_BYTES = 256_000  # a reply of /api/log ends after about so much
ACTIONS = ("pause", "resume", "step", "step_stop", "rate", "breakpoints")
LOG_STEP = 64  # entries taken from the log at a time
Default = TypeVar("Default", int, None)


class PageRequest(msgspec.Struct, kw_only=True):
    """A prompt typed into the page, to be run `copies` times."""

    prompt: str
    chat: bool = False  # send it as a user's message through the model's chat template
    copies: int = 1
    max_tokens: int | None = 64
    temperature: float | None = 0.0
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    ignore_eos: bool | None = None


class Control(msgspec.Struct):
    """What the gate is to do. `passes` go with "step", `rate` and `breakpoints` with the actions of those names."""

    action: str
    passes: int = 1
    rate: float | msgspec.UnsetType | None = msgspec.UNSET  # passes a second; null for as many as can be
    breakpoints: list[dict[str, Any]] | None = None


@blueprint.get("/config")
def config() -> Response:
    return _json(services().facts.config())


@blueprint.get("/samples")
def samples() -> Response:
    return _json({"samples": SAMPLES})


@blueprint.get("/vocab")
def vocab() -> Response:
    data, digest = services().facts.vocabulary()
    response = Response(data, content_type="application/msgpack")
    response.set_etag(digest)
    response.cache_control.no_cache = True  # kept by the browser, and asked about: another model may be served here
    response.make_conditional(request)
    return response


@blueprint.get("/state")
def state() -> Response:
    return _json(services().llm.log.state())


@blueprint.get("/passes/<int:pass_id>")
def one_pass(pass_id: int) -> Response:
    try:
        data = services().llm.log.pass_bytes(pass_id)
    except Gone as error:
        raise ApiError(410, f"pass {pass_id} is forgotten: {error}") from None
    except KeyError:
        raise ApiError(404, f"there has been no pass {pass_id}") from None
    return _json(msgspec.msgpack.decode(data))


@blueprint.get("/why")
def why() -> Response:
    """Why a request is or isn't in the batch: ?request=ID&pass=N, by default at the newest pass."""
    req_id = request.args.get("request", "")
    if not req_id:
        raise ApiError(400, "request must name a request id", "request")
    pass_id = _number_argument("pass", "a pass", None)
    try:
        return _json(explain(services().llm.log, req_id, pass_id))
    except Gone as error:
        raise ApiError(410, f"pass {pass_id} is forgotten: {error}") from None


@blueprint.get("/log")
def log() -> Response:
    """Entries from..to as they were made, cut where the reply grows too long; X-To-Seq is the last one in it."""
    first = _number_argument("from", "a log entry", 0)
    last = min(_number_argument("to", "a log entry", services().llm.log.last_seq), services().llm.log.last_seq)
    data, upto = bytearray(), first - 1
    try:
        while upto < last and len(data) < LOG_BYTES:
            for entry in services().llm.log.entries(upto + 1, min(last, upto + LOG_STEP)):
                if data and len(data) + len(entry) > LOG_BYTES:
                    last = upto
                    break
                data += entry
                upto += 1
    except Gone as error:
        raise ApiError(410, str(error), "from") from None
    return Response(bytes(data), content_type="application/octet-stream", headers={"X-To-Seq": str(upto)})


@blueprint.post("/requests")
def add_requests() -> Response:
    body = convert(read_json(request), PageRequest)
    if not 1 <= body.copies <= MAX_COPIES:
        raise ApiError(400, f"copies must be from 1 to {MAX_COPIES}, got {body.copies}", "copies")
    prompt, ids = _prompt(body), []
    for params in [_params(body, copy) for copy in range(body.copies)]:  # all, before the first is submitted
        request_id = f"req-{services().next_number()}"
        stream = services().live.submit(prompt, params, request_id)
        services().drain.add(request_id, stream)
        ids.append(request_id)
    return _json({"request_ids": ids})


@blueprint.delete("/requests/<path:request_id>")
def cancel_request(request_id: str) -> Response:
    if not services().live.cancel(request_id):
        raise ApiError(404, f"no request {request_id!r} is running: it has ended, or never was")
    return _json({"request_id": request_id, "cancelled": True})


@blueprint.post("/control")
def control() -> Response:
    body = convert(read_json(request), Control)
    if not 1 <= body.passes <= MAX_STEP:
        raise ApiError(400, f"passes must be from 1 to {MAX_STEP}, got {body.passes}", "passes")
    llm = services().llm
    try:
        match body.action:
            case "pause" | "resume" | "step_stop":
                llm.call(body.action)
            case "step":
                llm.call("step_passes", body.passes)
            case "rate" if body.rate is not msgspec.UNSET:
                llm.call("set_rate", body.rate)
            case "rate":
                raise ApiError(400, "rate is missing: give passes a second, null for as many as can be", "rate")
            case "breakpoints" if body.breakpoints is not None:
                llm.call("set_breakpoints", body.breakpoints)
            case "breakpoints":
                raise ApiError(400, "breakpoints is missing: give a list, empty for none", "breakpoints")
            case _:
                raise ApiError(400, f"action must be one of {', '.join(ACTIONS)}, got {body.action!r}", "action")
    except ValueError as error:  # the gate's own words
        field = body.action if body.action in ("rate", "breakpoints") else "action"
        raise ApiError(400, str(error), field) from None
    return _json({"gate": llm.call("gate_state")})


def _prompt(body: PageRequest) -> Prompt:
    """Return the text, or the token ids of a user's message in the model's chat form. Raises ApiError 400."""
    if not body.chat:
        return body.prompt
    tokenizer = services().llm.tokenizer
    try:
        text = tokenizer.apply_chat_template([{"role": "user", "content": body.prompt}])
    except ValueError as error:
        raise ApiError(400, str(error), "chat") from None
    return tokenizer.encode(text, add_special_tokens=False)


def _params(body: PageRequest, copy: int) -> SamplingParams:
    """Copies of a seeded request differ by their seeds."""
    seed = None if body.seed is None else body.seed + copy
    fields = ("max_tokens", "temperature", "top_p", "top_k", "ignore_eos")
    try:
        return SamplingParams.make(seed=seed, **{name: getattr(body, name) for name in fields})
    except ValueError as error:
        raise ApiError(400, str(error), str(error).split()[0]) from None


def _number_argument(name: str, what: str, default: Default) -> int | Default:
    given = request.args.get(name, "")
    if not given:
        return default
    if not given.isdecimal() or len(given) > 18:
        raise ApiError(400, f"{name} must be the number of {what}, got {given!r}", name)
    return int(given)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), content_type="application/json")

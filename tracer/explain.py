"""Why a request is or isn't in the batch at a pass: a code, its numbers and a sentence, from what was recorded."""

import json
from importlib.resources import files
from typing import Any

import msgspec

from tracer.log_view import LogView
from tracer.phases import Phase
from tracer.schema import PassRecord, PhaseRecord, decode

SENTENCES: dict[str, str] = json.loads(files("tracer").joinpath("why.json").read_text(encoding="utf-8"))


def explain(log: LogView, req_id: str, pass_id: int | None = None) -> dict[str, Any]:
    """Return {request, pass, code, numbers, text} for a pass, by default the newest.

    While the engine is held, the default is the pass that it is held before, or in. Raises tracer.log.Gone for a pass
    that the log has forgotten, ValueError for a negative one.
    """
    last, gate, lifetimes = log.newest()
    if pass_id is None:
        pass_id = last + 1 if _held(gate) else max(last, 0)
    if pass_id < 0:
        raise ValueError(f"passes count from 0, got {pass_id}")
    code, numbers = _reason(log, req_id, pass_id, last, gate, lifetimes.of(req_id))
    text = sentence(code, numbers)
    return {"request": req_id, "pass": pass_id, "code": code, "numbers": numbers, "text": text}


def sentence(code: str, numbers: dict[str, Any]) -> str:
    """Return the sentence for a code and its numbers."""
    whole = code == "no_budget" and "needed" in numbers
    return SENTENCES["no_budget_whole" if whole else code].format(**numbers)


def _reason(log: LogView, req_id: str, pass_id: int, last: int, gate: dict, lives: list) -> tuple[str, dict[str, Any]]:
    here = [life for life in lives if life.arrival_pass <= pass_id]
    if not lives:
        return "unknown", {}
    if not here:
        return "not_arrived", {"arrival_pass": lives[0].arrival_pass}
    life = here[-1]
    if life.end_pass is not None and life.end_pass < pass_id:
        if life.finish_reason == "abort":
            return "aborted", {"pass": life.end_pass}
        return "finished", {"pass": life.end_pass, "reason": life.finish_reason}
    if pass_id > last:
        under_way = gate.get("held")
        if under_way is None or under_way["pass_id"] != pass_id:
            return ("held", {"pass": pass_id}) if _held(gate) else ("not_run", {"pass": pass_id, "last": last})
        code, numbers = _decided(msgspec.convert(under_way["phases"], list[PhaseRecord]))[req_id]
    else:
        entry = decode(log.pass_bytes(pass_id))
        assert isinstance(entry, PassRecord)
        code, numbers = _decided(entry.phases)[req_id]
    return code, numbers


def _decided(phases: list[PhaseRecord]) -> dict[str, Any]:
    return next(phase.facts["why"] for phase in phases if phase.phase == Phase.SCHEDULE)


def _held(gate: dict[str, Any]) -> bool:
    return bool(gate.get("paused")) and not gate.get("permits")

"""A recorded run for Perfetto and chrome://tracing: https://ui.perfetto.dev opens what is written here.

One track for each lane of the engine: the core's own phases, and the runner's inside execute_model and sample_tokens.
Times are real and in microseconds, counted from the first pass.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tracer.phases import Phase
from tracer.schema import Entry, EventRecord, PassRecord, PhaseRecord

PROCESS = 1
CORE, RUNNER, EVENTS = 1, 2, 3
LANES = {CORE: "engine core", RUNNER: "runner", EVENTS: "requests and gate"}
OF_CORE = {
    Phase.SCHEDULE,
    Phase.EXECUTE_MODEL,
    Phase.GRAMMAR_BITMASK,
    Phase.PROCESS_ABORTS,
    Phase.UPDATE_FROM_OUTPUT,
}


def trace_events(entries: Iterable[Entry], name: str) -> Iterator[dict[str, Any]]:
    """Yield the events of Chrome's trace format; `name` is shown as the process."""
    yield _named("process_name", 0, name)
    for lane, words in LANES.items():
        yield _named("thread_name", lane, words)
    clock = None  # monotonic ns and epoch seconds at the first pass
    for entry in entries:
        if isinstance(entry, PassRecord):
            clock = clock or (entry.start_ns, entry.time)
            yield from _pass_events(entry, entry.start_ns - clock[0])
        elif clock:
            yield _instant(entry, (entry.time - clock[1]) * 1e6)


def _pass_events(entry: PassRecord, offset_ns: int) -> Iterator[dict[str, Any]]:
    last = max((phase.end for phase in entry.phases), default=0)
    yield _span(f"pass {entry.pass_id}", CORE, offset_ns, offset_ns + last, {"pass": entry.pass_id, "seq": entry.seq})
    for phase in entry.phases:
        lane = CORE if phase.phase in OF_CORE else RUNNER
        yield _span(phase.phase, lane, offset_ns + phase.start, offset_ns + phase.end, {"pass": entry.pass_id})
        if phase.phase == Phase.SCHEDULE:
            yield from _counters(phase, offset_ns + phase.end)


def _counters(schedule: PhaseRecord, at_ns: int) -> Iterator[dict[str, Any]]:
    facts = schedule.facts
    values = {
        "tokens a pass": facts.get("total_num_scheduled_tokens"),
        "running": len(facts.get("running", ())),
        "waiting": len(facts.get("waiting", ())),
        "free blocks": facts.get("num_free_blocks"),
    }
    for name, value in values.items():
        if value is not None:
            yield {"ph": "C", "name": name, "pid": PROCESS, "ts": at_ns / 1e3, "args": {name: value}}


def _span(name: str, lane: int, start_ns: int, end_ns: int, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start_ns / 1e3, "dur": max(end_ns - start_ns, 0) / 1e3}
    return {"ph": "X", "name": name, "pid": PROCESS, "tid": lane, **times, "args": args}


def _instant(entry: EventRecord, at: float) -> dict[str, Any]:
    name = f"{entry.kind} {entry.facts.get('event', '')}".strip()
    args = {fact: value for fact, value in entry.facts.items() if fact != "held"}  # its pass says it all
    return {"ph": "i", "s": "t", "name": name, "pid": PROCESS, "tid": EVENTS, "ts": at, "args": args}


def _named(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": PROCESS, "tid": lane, "args": {"name": name}}

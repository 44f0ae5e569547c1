"""Where the time of an engine's next passes goes: by phase, from their records, and by kernel, timed while asked."""

import time
from itertools import pairwise
from typing import Any

import msgspec

from tracer.pass_times import pass_ns, sum_phase_ns
from tracer.schema import PassRecord, decode
from webui.engine_like import EngineLike


class KernelTime(msgspec.Struct):
    """One kernel's calls and nanoseconds, in all passes together."""

    name: str
    calls: int
    ns: int


class Profile(msgspec.Struct):
    """Of `passes` passes from `first_pass` on. `phases` add up to `pass_ns`; what is missing in `kernels` lies outside
    of kernels. `between_ns` lies between these passes: records and outputs on their way, and waiting for requests.
    """

    first_pass: int
    passes: int
    tokens: int  # that were scheduled
    pass_ns: int
    between_ns: int
    phases: dict[str, int]
    kernels: list[KernelTime]


def profile_passes(llm: EngineLike, passes: int, timeout: float) -> Profile:
    """Time the kernels of the next `passes` passes, or as many as there are within `timeout` seconds."""
    first = llm.call("profile", True)["pass_id"]
    try:
        _wait_for(llm, first + passes - 1, timeout)
    finally:
        stopped = llm.call("profile", False)
    records = _records(llm, first, stopped["pass_id"])
    return Profile(
        first_pass=first,
        passes=len(records),
        tokens=sum(_tokens(record) for record in records),
        pass_ns=sum(map(pass_ns, records)),
        between_ns=_between_ns(records),
        phases=sum_phase_ns(records),
        kernels=msgspec.convert(stopped["kernels"], list[KernelTime]),
    )


def _wait_for(llm: EngineLike, pass_id: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not _has_run(llm, pass_id) and llm.log.wait(llm.log.last_seq, deadline - time.monotonic()):
        pass


def _has_run(llm: EngineLike, pass_id: int) -> bool:
    try:
        return bool(llm.log.pass_bytes(pass_id))
    except KeyError:
        return False


def _records(llm: EngineLike, first: int, end: int) -> list[PassRecord]:
    entries = (decode(llm.log.pass_bytes(pass_id)) for pass_id in range(first, end))
    return [entry for entry in entries if isinstance(entry, PassRecord)]


def _between_ns(records: list[PassRecord]) -> int:
    return sum(max(0, after.start_ns - before.start_ns - pass_ns(before)) for before, after in pairwise(records))


def _tokens(record: PassRecord) -> int:
    facts: dict[str, Any] = record.phases[0].facts
    return int(facts.get("total_num_scheduled_tokens", 0))

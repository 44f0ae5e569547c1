"""What in a pass may stop the engine: the conditions that a gate can be told to wait for."""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tracer.phases import Phase

MAX_BREAKPOINTS = 32


class On(StrEnum):
    """What a breakpoint waits for."""

    ROW_MOVED = "row_moved"  # by condense or reorder
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    FINISHED = "finished"
    REQUEST_IN_BATCH = "request_in_batch"  # comes true when the request enters
    TOTAL_TOKENS_ABOVE = "total_tokens_above"  # of one pass


OF_ONE_REQUEST = (On.PREEMPTED, On.RESUMED, On.FINISHED, On.REQUEST_IN_BATCH)


class Breakpoint(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`request`: no other request than this meets it. `value`: what total_tokens_above compares with."""

    on: On
    request: str | None = None
    value: int | None = None

    def met_by(self, happened: "Happened") -> bool:
        return (
            happened.on is self.on
            and self.request in (None, happened.request)
            and (self.value is None or happened.value > self.value)
        )


class Happened(NamedTuple):
    """One thing that a pass did, and the phase that did it."""

    on: On
    phase: Phase
    words: str
    request: str | None = None
    value: int = 0


def read_breakpoints(plain: Any) -> list[Breakpoint]:
    """Return breakpoints from plain maps. Raises ValueError with the reason for what none can be."""
    try:
        breakpoints = msgspec.convert(plain, list[Breakpoint])
    except msgspec.ValidationError as error:
        words = str(error).replace("`", "").replace("$", "breakpoints")
        raise ValueError(f"{words}; on is one of {', '.join(On)}") from None
    if len(breakpoints) > MAX_BREAKPOINTS:
        raise ValueError(f"breakpoints: {MAX_BREAKPOINTS} at most, got {len(breakpoints)}")
    for i, breakpoint in enumerate(breakpoints):
        if why := _nonsense(breakpoint):
            raise ValueError(f"breakpoints[{i}]: {why}")
    return list(dict.fromkeys(breakpoints))


def _nonsense(breakpoint: Breakpoint) -> str | None:
    on, request, value = breakpoint.on, breakpoint.request, breakpoint.value
    if on is On.REQUEST_IN_BATCH and not request:
        return f"{on} needs a request: give its id"
    if request is not None and (on not in OF_ONE_REQUEST or not request):
        return f"{on} cannot wait for the request {request!r}: leave request out"
    if on is On.TOTAL_TOKENS_ABOVE and (value is None or value < 0):
        return f"{on} needs a value of 0 or more, got {value}"
    if on is not On.TOTAL_TOKENS_ABOVE and value is not None:
        return f"{on} compares with nothing: leave value out"
    return None

"""Collects the phases of one pass on one side of the executor seam."""

import time
from collections.abc import Callable
from typing import Any

from tracer.phases import Phase
from tracer.schema import Change, PhaseRecord


class Recorder:
    """Takes one line a phase: `begin()` where the side starts to work, `mark(phase, ...)` where a phase has ended.

    A phase lasts from the previous mark, or `begin`, to its own mark. Absolute monotonic nanoseconds are kept until
    the pass is assembled. Code that is not being traced holds None in place of a recorder.
    """

    def __init__(self) -> None:
        self._phases: list[PhaseRecord] = []
        self._changes: list[Change] = []
        self._last = time.monotonic_ns()

    def begin(self) -> int:
        """Start the clock of the next phase and return it, in ns."""
        self._last = time.monotonic_ns()
        return self._last

    def mark(
        self, phase: Phase, facts: Callable[[], dict[str, Any]] | None = None, *, start: int | None = None
    ) -> PhaseRecord:
        """End `phase` now, with the batch changes made since the last mark, and return its record.

        `facts` is called after the time has been taken, so that no phase is charged for being watched. `start` is given
        for a phase that encloses others, such as execute_model.
        """
        now = time.monotonic_ns()
        changes, self._changes = self._changes, []
        began = self._last if start is None else start
        record = PhaseRecord(phase, began, now, facts() if facts else {}, changes)
        self._phases.append(record)
        self._last = time.monotonic_ns()
        return record

    def set(self, field: str, rows: list[int], values: list[Any]) -> None:
        """rows[i][field] = values[i]."""
        self._changes.append(["set", field, rows, values])

    def put(self, field: str, rows: list[int], starts: list[int], values: list[list[int]]) -> None:
        """rows[i][field][starts[i]:] = values[i]."""
        self._changes.append(["put", field, rows, starts, values])

    def clear(self, row: int) -> None:
        self._changes.append(["clear", row])

    def move(self, src: int, dst: int) -> None:
        self._changes.append(["move", src, dst])

    def swap(self, a: int, b: int) -> None:
        self._changes.append(["swap", a, b])

    def take(self) -> list[PhaseRecord]:
        """Return the phases collected so far and forget them."""
        phases, self._phases = self._phases, []
        return phases

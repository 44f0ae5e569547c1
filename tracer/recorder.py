"""Collects the phases of one pass on one side of the executor seam."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tracer.phases import Phase
from tracer.schema import Change

APPEND = "append"  # heads what `append_tokens` notes, among changes
RequestChange = tuple[str, dict[str, Any]]


class Mark(msgspec.Struct):
    """A phase that has ended, at absolute monotonic ns. tracer.facts makes its facts of `args`; () where it has none.

    The other fields are those of its PhaseRecord.
    """

    phase: Phase
    start: int
    end: int
    changes: Sequence[Change]
    args: tuple[Any, ...]
    requests: Sequence[RequestChange] = ()
    blocks: Sequence[tuple[int, int, int]] = ()


class Recorder:
    """Takes one line a phase: `begin()` where the side starts to work, `mark(phase, ...)` where a phase has ended.

    A phase lasts from the previous mark, or `begin`, to its own mark. Its facts are made later, where they are wanted:
    so their arguments, those of the function in tracer.facts, are plain values that nobody changes any more, or copies.
    Code that is not being traced holds None in place of a recorder.
    """

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._changes: list[Change] = []
        self._last = time.monotonic_ns()

    def begin(self) -> int:
        """Start the clock of the next phase and return it, in ns."""
        self._last = time.monotonic_ns()
        return self._last

    def mark(self, phase: Phase, *args: Any, start: int | None = None) -> None:
        """End `phase` now, with the batch changes made since the last mark; its facts will be made of `args`.

        `start` is given for a phase that encloses others, such as execute_model.
        """
        now = time.monotonic_ns()
        changes: Sequence[Change] = ()
        if self._changes:
            changes, self._changes = self._changes, []
        self._marks.append(Mark(phase, self._last if start is None else start, now, changes, args))
        self._last = time.monotonic_ns()

    def tell(
        self, *args: Any, requests: Sequence[RequestChange] = (), blocks: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """Give the last mark its arguments and fields after all: such as take time, which no phase is charged for."""
        mark = self._marks[-1]
        mark.args, mark.requests, mark.blocks = args, requests, blocks
        self._last = time.monotonic_ns()

    def set(self, field: str, rows: list[int], values: list[Any]) -> None:
        """rows[i][field] = values[i]."""
        self._changes.append(["set", field, rows, values])

    def put(self, field: str, rows: list[int], starts: list[int], values: list[list[int]]) -> None:
        """rows[i][field][starts[i]:] = values[i]."""
        self._changes.append(["put", field, rows, starts, values])

    def append_tokens(self, rows: np.ndarray, ends: np.ndarray, token_ids: np.ndarray) -> None:
        """rows[i] got token_ids[i] at its end, which was ends[i]: the arrays are kept as they are until described."""
        self._changes.append([APPEND, rows, ends, token_ids])

    def clear(self, row: int) -> None:
        self._changes.append(["clear", row])

    def move(self, src: int, dst: int) -> None:
        self._changes.append(["move", src, dst])

    def swap(self, a: int, b: int) -> None:
        self._changes.append(["swap", a, b])

    def take(self) -> list[Mark]:
        """Return the marks since the last call and forget them."""
        marks, self._marks = self._marks, []
        return marks

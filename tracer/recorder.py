"""Collects the phases of one pass on one side of the executor seam."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from tracer.phases import Phase
from tracer.schema import Change, PhaseRecord

Fields = dict[str, Any]  # fields of a PhaseRecord: facts, requests, output, blocks
Describe = Callable[..., Fields]

_APPEND = "append"  # heads what `append_tokens` notes, among changes


class Mark(msgspec.Struct):
    """A phase that has ended, at absolute monotonic ns, and what will put its record together: describe(*args)."""

    phase: Phase
    start: int
    end: int
    changes: list[Change]
    describe: Describe | None
    args: tuple[Any, ...]


class Recorder:
    """Takes one line a phase: `begin()` where the side starts to work, `mark(phase, ...)` where a phase has ended.

    A phase lasts from the previous mark, or `begin`, to its own mark. Its facts are described later, for many passes at
    once where nobody waits for them: so arguments are either never changed any more or copies. Code that is not being
    traced holds None in place of a recorder.
    """

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._changes: list[Change] = []
        self._last = time.monotonic_ns()

    def begin(self) -> int:
        """Start the clock of the next phase and return it, in ns."""
        self._last = time.monotonic_ns()
        return self._last

    def mark(self, phase: Phase, describe: Describe | None = None, *args: Any, start: int | None = None) -> None:
        """End `phase` now, with the batch changes made since the last mark. describe(*args) will be its fields.

        `start` is given for a phase that encloses others, such as execute_model.
        """
        now = time.monotonic_ns()
        changes, self._changes = self._changes, []
        self._marks.append(Mark(phase, self._last if start is None else start, now, changes, describe, args))
        self._last = time.monotonic_ns()

    def tell(self, describe: Describe, *args: Any) -> None:
        """Say what describes the last mark: for arguments that take time, which no phase is charged for."""
        mark = self._marks[-1]
        mark.describe, mark.args = describe, args
        self._last = time.monotonic_ns()

    def set(self, field: str, rows: list[int], values: list[Any]) -> None:
        """rows[i][field] = values[i]."""
        self._changes.append(["set", field, rows, values])

    def put(self, field: str, rows: list[int], starts: list[int], values: list[list[int]]) -> None:
        """rows[i][field][starts[i]:] = values[i]."""
        self._changes.append(["put", field, rows, starts, values])

    def append_tokens(self, rows: np.ndarray, ends: np.ndarray, token_ids: np.ndarray) -> None:
        """rows[i] got token_ids[i] at its end, which was ends[i]: the arrays are kept as they are until described."""
        self._changes.append([_APPEND, rows, ends, token_ids])

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


def describe(marks: Sequence[Mark], start_ns: int = 0) -> list[PhaseRecord]:
    """Return the marked phases' records, with times from `start_ns`. May be asked again for the same marks."""
    return [
        PhaseRecord(
            mark.phase, mark.start - start_ns, mark.end - start_ns, changes=_spelled_out(mark.changes),
            **(mark.describe(*mark.args) if mark.describe else {}),
        )
        for mark in marks
    ]  # fmt: skip


def _spelled_out(changes: list[Change]) -> list[Change]:
    """Put what `append_tokens` noted into the assignments of tracer.schema.Change."""
    return [each for change in changes for each in (_appended(*change[1:]) if change[0] == _APPEND else [change])]


def _appended(rows: np.ndarray, ends: np.ndarray, token_ids: np.ndarray) -> list[Change]:
    where = rows.tolist()
    return [
        ["put", "token_ids", where, ends.tolist(), token_ids[:, np.newaxis].tolist()],
        ["set", "num_tokens_no_spec", where, (ends + 1).tolist()],
    ]

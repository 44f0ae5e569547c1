"""A pass as its marks, before its record is put together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tracer import facts
from tracer.phases import PHASE_ORDER, Phase
from tracer.recorder import APPEND, Mark
from tracer.schema import Change, PassRecord, PhaseRecord


class MarkedPass(NamedTuple):
    """The fields of a PassRecord, with `marks` for its phases; `call`: of sample_tokens, monotonic ns."""

    seq: int
    pass_id: int
    time: float
    start_ns: int
    marks: list[Mark]
    call: tuple[int, int]

    def record(self) -> PassRecord:
        phases = describe(self.marks, self.start_ns, self.call)
        return PassRecord(self.seq, "pass", self.pass_id, self.time, self.start_ns, phases)


def describe(marks: Sequence[Mark], start_ns: int = 0, call: tuple[int, int] = (0, 0)) -> list[PhaseRecord]:
    """Return the marks' records in the order of a pass, their times and those of the `call` counted from its start.

    May be asked again for the same marks.
    """
    phases = [_record(mark, start_ns) for mark in sorted(marks, key=lambda mark: PHASE_ORDER[mark.phase])]
    sampled = next((phase for phase in phases if phase.phase == Phase.SAMPLE_TOKENS), None)
    if sampled:
        sampled.facts["call_ns"] = [time_ns - start_ns for time_ns in call]
    return phases


def _record(mark: Mark, start_ns: int) -> PhaseRecord:
    return PhaseRecord(
        mark.phase,
        mark.start - start_ns,
        mark.end - start_ns,
        facts.of(mark.phase, mark.args),
        spelled_out(mark.changes),
        list(mark.requests),
        facts.output(mark.phase, mark.args),
        list(mark.blocks),
    )


def spelled_out(changes: Sequence[Change]) -> list[Change]:
    """Put what `append_tokens` noted into the assignments of tracer.schema.Change."""
    return [each for change in changes for each in (appended(*change[1:]) if change[0] == APPEND else [change])]


def appended(rows: np.ndarray, ends: np.ndarray, token_ids: np.ndarray) -> list[Change]:
    """rows int [R], the first positions of their new tokens int [R], the tokens int [R, how many]."""
    where = rows.tolist()
    return [
        ["put", "token_ids", where, ends.tolist(), token_ids.reshape(len(where), -1).tolist()],
        ["set", "num_tokens_no_spec", where, (ends + token_ids.size // max(1, len(where))).tolist()],
    ]

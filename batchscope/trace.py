"""A stretch of the engine's log as something to ask: which rows, which arrays, which writes, pass by pass."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from batchscope.tables import Table
from tracer.fold import apply_change
from tracer.log import Log
from tracer.phases import Phase
from tracer.schema import Change, Entry, PassRecord, PhaseRecord, decode

Row = dict[str, Any]  # the fields of tracer.schema.ROW_FIELDS


class Logged(Protocol):
    """An engine that keeps a log, or None where its trace is off."""

    @property
    def log(self) -> Log | None: ...


class Write(NamedTuple):
    """One assignment to the batch: in this phase, `field` of `row`, which is or was the row of `req_id`."""

    phase: str
    row: int
    req_id: str | None
    field: str  # a field of the row; "(cleared)", or "(moved to N)" where the row itself went
    value: Any


class Trace:
    """Takes encoded log entries in order. `rows` is the batch before the first of them, None for an empty row."""

    def __init__(self, rows: list[Row | None]) -> None:
        self.entries: list[Entry] = []
        self._first_rows = rows

    def append(self, data: bytes) -> None:
        """Take the next entry of the log."""
        self.entries.append(decode(data))

    @property
    def passes(self) -> list[PassRecord]:
        return [entry for entry in self.entries if isinstance(entry, PassRecord)]

    def __getitem__(self, pass_id: int) -> PassRecord:
        """The record of a pass. Raises KeyError where it isn't in this stretch."""
        for record in self.passes:
            if record.pass_id == pass_id:
                return record
        raise KeyError(f"pass {pass_id} was not recorded; recorded: {[record.pass_id for record in self.passes]}")

    def phase(self, pass_id: int, phase: str) -> PhaseRecord:
        """One phase of a pass. Raises KeyError where the pass did not go through it."""
        for record in self[pass_id].phases:
            if record.phase == phase:
                return record
        raise KeyError(f"pass {pass_id} has no phase {phase!r}; it has {[p.phase for p in self[pass_id].phases]}")

    def facts(self, pass_id: int, phase: str) -> dict[str, Any]:
        """What a phase made: arrays and values under vLLM's names."""
        return self.phase(pass_id, phase).facts

    def batch(self, pass_id: int, phase: str | None = None) -> list[Row]:
        """The rows in use after the pass, or after one of its phases, in row order."""
        return [row for row in self._rows(pass_id, phase) if row is not None]

    def writes(self, pass_id: int, phase: str | None = None) -> list[Write]:
        """Every assignment to the batch that the pass made, or made up to the end of one of its phases, in order."""
        rows = self._rows_before(pass_id)
        writes = []
        for record in self._phases(pass_id, phase):
            for change in copy.deepcopy(record.changes):
                before = [row and row.get("req_id") for row in rows]
                apply_change(rows, change)
                after = [row and row.get("req_id") for row in rows]
                writes += _writes(record.phase, change, before, after)
        return writes

    def table(self, pass_id: int, phase: str | None = Phase.REFRESH_METADATA) -> Table:
        """The batch as a table, by default as it stood when the diff was done and before anything was computed."""
        scheduled = self.facts(pass_id, Phase.SCHEDULE)["num_scheduled_tokens"]
        headers = ("row", "request", "prompt", "computed", "scheduled", "known tokens", "blocks")
        rows = [
            (index, row["req_id"], row["num_prompt_tokens"], row["num_computed_tokens"],
             scheduled.get(row["req_id"], 0), row["num_tokens_no_spec"], row["block_table"])
            for index, row in enumerate(self._rows(pass_id, phase)) if row is not None
        ]  # fmt: skip
        return Table(headers, rows, f"pass {pass_id}, the batch after {phase or 'the pass'}")

    def token_axis(self, pass_id: int) -> Table:
        """The flat arrays of a pass, one column a token."""
        inputs = self.facts(pass_id, Phase.PREPARE_INPUTS)
        names = ("req_indices", "query_pos", "positions", "token_indices", "input_ids", "slot_mapping")
        total = len(inputs["input_ids"])
        marks = ["*" if token in set(inputs["logits_indices"]) else "" for token in range(total)]
        rows = [(name, *inputs[name]) for name in names] + [("logits", *marks)]
        return Table(["token", *map(str, range(total))], rows, f"pass {pass_id}, the flat token axis")

    def _rows(self, pass_id: int, phase: str | None) -> list[Row | None]:
        rows = self._rows_before(pass_id)
        for record in self._phases(pass_id, phase):
            _apply(rows, record)
        return rows

    def _phases(self, pass_id: int, last: str | None) -> list[PhaseRecord]:
        phases = self[pass_id].phases
        return phases if last is None else phases[: phases.index(self.phase(pass_id, last)) + 1]

    def _rows_before(self, pass_id: int) -> list[Row | None]:
        rows = copy.deepcopy(self._first_rows)
        for record in self.passes:
            if record.pass_id < pass_id:
                for phase in record.phases:
                    _apply(rows, phase)
        return rows


def _apply(rows: list[Row | None], phase: PhaseRecord) -> None:
    for change in copy.deepcopy(phase.changes):  # rows take the lists in and grow them; the record keeps its own
        apply_change(rows, change)


def _writes(phase: str, change: Change, before: list[Any], after: list[Any]) -> list[Write]:
    """Name the rows of one change by the requests that held them."""
    match change:
        case ["set", field, rows, values] | ["put", field, rows, _, values]:
            return [Write(phase, row, after[row], field, value) for row, value in zip(rows, values, strict=True)]
        case ["clear", row]:
            return [Write(phase, row, before[row], "(cleared)", None)]
        case ["move", src, dst]:
            return [Write(phase, src, before[src], f"(moved to {dst})", None)]
        case ["swap", a, b]:
            return [Write(phase, src, before[src], f"(moved to {dst})", None) for src, dst in ((a, b), (b, a))]
    raise AssertionError("apply_change has refused every other change")


@contextmanager
def record(llm: Logged) -> Iterator[Trace]:
    """Record what happens to the batch of an engine while the block runs; the trace is complete after it.

    Raises ValueError where the engine's trace is off.
    """
    if llm.log is None:
        raise ValueError("this engine keeps no trace: make it with trace=True")
    state = llm.log.state()
    trace = Trace(state["rows"])
    try:
        yield trace
    finally:
        for data in llm.log.entries(state["seq"] + 1, llm.log.last_seq):
            trace.append(data)

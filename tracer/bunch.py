"""Passes that are alike, as one message: what is the same in all of them is said once, and arrays stand as their bytes.

Between an engine and its log alone: who reads the log gets the entries, byte for byte as if each had been sent.
"""

from array import array
from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from tracer import facts
from tracer.marked_pass import MarkedPass, appended, spelled_out
from tracer.phases import Phase
from tracer.recorder import APPEND, Mark
from tracer.schema import Change, PassRecord, PhaseRecord, encode

MAGIC = b"\xc1"  # no msgpack begins with it
HEAD = len(MAGIC) + 4  # and the number of passes
STAYING = ("set", "put", APPEND)  # changes that leave the rows where they are


class _Column(msgspec.Struct, array_like=True, gc=False):
    """One value of each pass, or one for all. Opened only when it is asked for: who reads the log may not want it.

    raw: values as msgpack. array: dtype and shape of them all, where `data` is their bytes.
    """

    same: bool
    raw: list[msgspec.Raw] = []
    array: tuple[str, list[int]] | None = None
    data: bytes = b""

    @classmethod
    def of(cls, values: Sequence[Any]) -> "_Column":
        """Raises ValueError for arrays of several lengths."""
        first = values[0]
        if isinstance(first, np.ndarray):
            if len(set(map(len, values))) > 1:
                raise ValueError("the passes have arrays of several lengths")
            joined = np.concatenate(values).reshape(len(values), *first.shape)
            same = bool((joined == first).all())
            stored = joined[:1] if same else joined
            return cls(same, [], (stored.dtype.str, list(stored.shape)), stored.tobytes())
        same = values.count(first) == len(values)
        return cls(same, list(map(_raw, values[:1] if same else values)))

    def at(self, number: int) -> Any:
        """Return the value of a pass."""
        place = 0 if self.same else number
        return _decode(self.raw[place]) if self.array is None else self._arrays(*self.array)[place]

    def each(self, count: int) -> Any:
        """Return the value of each pass, an array of arrays or a list; `count`: how many there are."""
        if self.same:
            return [self.at(0)] * count
        return list(map(_decode, self.raw)) if self.array is None else self._arrays(*self.array)

    def _arrays(self, dtype: str, shape: list[int]) -> np.ndarray:
        return np.frombuffer(self.data, dtype).reshape(shape)


class _Phase(msgspec.Struct, array_like=True):
    """The marks of one phase. `appends`: what `append_tokens` noted in each pass, where that is all that changed."""

    phase: Phase
    args: list[_Column]
    appends: list[_Column] = []
    changes: _Column | None = None  # None: nothing in any pass
    merged: list[Change] = []  # `changes` of all passes, without what a later one assigns anew
    requests: _Column | None = None
    blocks: _Column | None = None

    @classmethod
    def of(cls, marks: Sequence[Mark]) -> "_Phase":
        """Of the marks of one phase in all passes. Raises ValueError where they differ too much."""
        if len({mark.phase for mark in marks}) > 1:
            raise ValueError("the passes have other phases")
        phase = cls(marks[0].phase, _columns([mark.args for mark in marks]))
        changes = [mark.changes for mark in marks]
        if any(changes):
            if all(len(each) == 1 and each[0][0] == APPEND for each in changes):
                phase.appends = _columns([each[0][1:] for each in changes])
            else:
                spelled = [spelled_out(each) for each in changes]
                phase.changes, phase.merged = _Column.of(spelled), _merged([*chain.from_iterable(spelled)])
        if any(requests := [mark.requests for mark in marks]):
            phase.requests = _Column.of(requests)
        if any(blocks := [mark.blocks for mark in marks]):
            phase.blocks = _Column.of(blocks)
        return phase


class _Packed(msgspec.Struct, array_like=True):
    first_seq: int
    first_pass: int
    time: list[float]
    start_ns: list[int]
    call: list[tuple[int, int]]
    spans: bytes  # int64 [passes, phases, 2]: start and end of each mark
    phases: list[_Phase]


_CHANGES, _PREPARE_INPUTS = attrgetter("changes"), Phase.PREPARE_INPUTS
_DECODER = msgspec.msgpack.Decoder(_Packed)
_decode = msgspec.msgpack.decode


def pack(passes: Sequence[MarkedPass]) -> list[bytes]:
    """Return the messages of passes that follow one another: those that are alike go into one."""
    messages: list[bytes] = []
    for _, group in groupby(passes, _kind):
        alike = list(group)
        try:
            messages += [_pack(alike)] if len(alike) > 1 else [encode(alike[0].record())]
        except ValueError:  # they were not
            messages += [encode(each.record()) for each in alike]
    return messages


def num_entries(message: bytes) -> int:
    """Return how many entries are in a message: more than one if it is a bunch."""
    return int.from_bytes(message[len(MAGIC) : HEAD], "big") if message.startswith(MAGIC) else 1


class Bunch:
    """A bunch that was sent."""

    def __init__(self, message: bytes) -> None:
        self.count = num_entries(message)
        self._packed = _DECODER.decode(memoryview(message)[HEAD:])
        self.first_seq = self._packed.first_seq
        self.first_pass = self._packed.first_pass
        self._spans = np.frombuffer(self._packed.spans, np.int64).reshape(self.count, -1, 2)

    def entry(self, number: int) -> bytes:
        """Return the entry of one of the passes."""
        packed, spans = self._packed, self._spans[number].tolist()
        marks = [self._mark(phase, number, *span) for phase, span in zip(packed.phases, spans, strict=True)]
        times = packed.time[number], packed.start_ns[number]
        marked = MarkedPass(
            self.first_seq + number, self.first_pass + number, *times, marks, packed.call[number]
        )  # fmt: skip
        return encode(marked.record())

    def argument(self, phase: Phase, name: str) -> Any:
        """Return what tracer.facts gets as the named argument of a phase, pass by pass."""
        return self._column(phase, name).each(self.count)

    def num_new_tokens(self) -> list[tuple[list[str], list[int]]]:
        """Return, pass by pass, the ids of the requests that got tokens, and how many each."""
        req_ids, counts = (self.argument(Phase.UPDATE_FROM_OUTPUT, name) for name in ("req_ids", "counts"))
        return list(zip(req_ids, counts, strict=True))

    def ends(self) -> list[float]:
        """When each pass ended, in seconds since the epoch."""
        began = np.array(self._packed.start_ns)
        return (np.array(self._packed.time) + (self._spans.max(axis=(1, 2)) - began) / 1e9).tolist()

    def merged(self) -> PassRecord:
        """Return what the passes change all together, as one pass, the last of them: without facts and times."""
        phases, last = self._packed.phases, self.count - 1
        changes = [change for phase in phases for change in self._merged_changes(phase)]
        requests = self._joined([phase.requests for phase in phases])
        blocks = self._joined([phase.blocks for phase in phases])
        record = PhaseRecord("", 0, 0, {}, changes, requests, self._merged_output(), blocks)
        return PassRecord(self.first_seq + last, "pass", self.first_pass + last, 0.0, 0, [record])

    def _mark(self, phase: _Phase, number: int, start: int, end: int) -> Mark:
        args, appends = (tuple(column.at(number) for column in columns) for columns in (phase.args, phase.appends))
        changes, requests, blocks = (
            column.at(number) if column else [] for column in (phase.changes, phase.requests, phase.blocks)
        )
        changes = [[APPEND, *appends]] if appends else changes
        return Mark(phase.phase, start, end, changes, args, requests, blocks)

    def _merged_changes(self, phase: _Phase) -> list[Change]:
        if not phase.appends:
            return phase.merged
        rows, ends, token_ids = (column.each(self.count) for column in phase.appends)
        if phase.appends[0].same:
            return appended(rows[0], ends[0], np.asarray(token_ids).T)
        return _merged([*chain.from_iterable(map(appended, rows, ends, token_ids))])

    def _merged_output(self) -> list[tuple[str, int, list[int]]]:
        columns = [
            self._column(Phase.UPDATE_FROM_OUTPUT, name) for name in ("req_ids", "starts", "counts", "token_ids")
        ]
        req_ids, starts, counts, token_ids = columns
        if req_ids.same and counts.same and set(counts.at(0)) == {1}:
            tokens = np.asarray(token_ids.each(self.count)).T.tolist()
            return list(zip(req_ids.at(0), starts.at(0), tokens, strict=True))
        passes = zip(*(column.each(self.count) for column in columns), strict=True)
        return [each for args in passes for each in facts.output(Phase.UPDATE_FROM_OUTPUT, (*args, {}))]

    def _joined(self, columns: Sequence[_Column | None]) -> list[Any]:
        """The lists of all passes one after the other, in a pass those of one column after the other."""
        filled = [column.each(self.count) for column in columns if column]
        return [*chain.from_iterable(each for one_pass in zip(*filled, strict=True) for each in one_pass)]

    def _column(self, phase: Phase, argument: str) -> _Column:
        return next(each for each in self._packed.phases if each.phase == phase).args[facts.place(phase, argument)]


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def _columns(rows: Sequence[Sequence[Any]]) -> list[_Column]:
    return [_Column.of(values) for values in zip(*rows, strict=True)]


def _pack(passes: Sequence[MarkedPass]) -> bytes:
    first = passes[0]
    spans = array("q", [time_ns for each in passes for mark in each.marks for time_ns in (mark.start, mark.end)])
    packed = _Packed(
        first.seq,
        first.pass_id,
        [each.time for each in passes],
        [each.start_ns for each in passes],
        [each.call for each in passes],
        spans.tobytes(),
        [_Phase.of(marks) for marks in zip(*(each.marks for each in passes), strict=True)],
    )
    return MAGIC + len(passes).to_bytes(4, "big") + msgspec.msgpack.encode(packed)


def _kind(one: MarkedPass) -> Any:
    """What passes have in common that may be alike. A pass that moves rows is like none."""
    for changes in filter(None, map(_CHANGES, one.marks)):
        for change in changes:
            if change[0] not in STAYING:
                return one.seq
    return len(one.marks), [[*map(len, mark.args[:2])] for mark in one.marks if mark.phase is _PREPARE_INPUTS]


def _merged(changes: list[Change]) -> list[Change]:
    """Leave out the assignments to fields of rows that a later one assigns anew."""
    puts: list[Change] = []
    sets: dict[tuple[str, tuple[int, ...]], Change] = {}
    for change in changes:
        if change[0] == "set":
            sets.pop(key := (change[1], tuple(change[2])), None)  # so that the newest stands last
            sets[key] = change
        else:
            puts.append(change)
    return puts + list(sets.values())

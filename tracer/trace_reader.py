"""Reads the file of a recorded run. It is untrusted: what is wrong with it is a TraceError, in bounded memory."""

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tracer.fold import fold, new_state
from tracer.keyframe import Requests, unpack_keyframe
from tracer.lifetimes import Lifetimes
from tracer.log import Gone
from tracer.log_view import Part
from tracer.planes import join
from tracer.schema import Entry, decode
from tracer.trace_format import (
    BLCK,
    BLOCK_ENTRIES,
    BLOCK_PASSES,
    SECTION,
    SPAN,
    BlockEntry,
    Span,
    TraceError,
    inflate,
    verify,
)
from tracer.trace_index import open_trace

CACHED_BLOCKS = 4
CACHED_ENDED = 64


class Block(NamedTuple):
    """A block's contents: its keyframe as msgpack of tracer.keyframe.Keyframe, and its entries as the log had them."""

    keyframe: bytes
    entries: list[bytes]
    ended: Requests


class TraceReader:
    """A recorded run with the interface of tracer.log.Log, and the file's blocks. Used from any thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and check the parts that come before the blocks, and the index.

        Raises TraceError where it is no trace that this version can read. `damage` says what is wrong with a file of
        which only the beginning can be replayed.
        """
        self.path = Path(path)
        self._file, found = open_trace(self.path)
        self.header, self.vocabulary, self.index = found.header, found.vocabulary, found.blocks
        self.complete, self.damage, self.size = found.complete, found.damage, found.size
        self.dropped = 0
        self._seqs = [entry.span.first_seq for entry in self.index]
        self._passes = [entry.span.first_pass for entry in self.index]
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._ended: OrderedDict[int, Requests] = OrderedDict()
        self._lock = threading.RLock()
        self._lifetimes = found.lifetimes
        self._reading_lifetimes = threading.Lock()  # takes long where the file has no index: nobody else waits for it
        self._final: dict[str, Any] | None = None

    @property
    def created(self) -> float:
        """When the run began, in seconds since the epoch."""
        return self.header.created

    @property
    def num_passes(self) -> int:
        """The number of the pass after the last one."""
        return self.index[-1].span.next_pass if self.index else 0

    @property
    def last_seq(self) -> int:
        """The seq of the last entry, -1 where there is none."""
        return self.index[-1].span.next_seq - 1 if self.index else -1

    def entries(self, from_seq: int, to_seq: int) -> list[bytes]:
        """Return the entries from_seq..to_seq as the log had them, as far as they exist. Raises Gone, TraceError."""
        first = self.index[0].span.first_seq if self.index else 0
        if 0 <= from_seq < first:
            raise Gone(f"entry {from_seq} is older than what was recorded")
        found: list[bytes] = []
        seq = max(from_seq, 0)
        while seq <= min(to_seq, self.last_seq):
            number = bisect_right(self._seqs, seq) - 1
            span = self.index[number].span
            found += self.block(number).entries[seq - span.first_seq : to_seq + 1 - span.first_seq]
            seq = span.next_seq
        return found

    def parts(self, from_seq: int, to_seq: int) -> list[Part]:
        """See Log.parts: a file has no bunches."""
        return list(self.entries(from_seq, to_seq))

    def pass_bytes(self, pass_id: int) -> bytes:
        """Return the record of a pass. Raises KeyError where it never was, Gone where it is not here, TraceError."""
        if not 0 <= pass_id < self.num_passes:
            raise KeyError(pass_id)
        number = bisect_right(self._passes, pass_id) - 1
        if number < 0:
            raise Gone(f"pass {pass_id} is older than what was recorded")
        records = [data for data in self.block(number).entries if _is_pass(data)]
        return records[pass_id - self._passes[number]]

    def state(self) -> dict[str, Any]:
        """Return the batch and the requests after the last entry; the copy is the caller's. Raises TraceError."""
        with self._lock:
            if self._final is None:
                self._final = self._fold_last()
            return msgspec.msgpack.decode(msgspec.msgpack.encode(self._final))

    def state_before(self, number: int) -> dict[str, Any]:
        """Return the state before a block's first entry. Raises TraceError."""
        return unpack_keyframe(self.block(number).keyframe, self.header.max_num_seqs, self._ended_in)

    def newest(self) -> tuple[int, dict[str, Any], Lifetimes]:
        """Return the last pass's number, the gate's state then, and all requests' lifetimes. Raises TraceError."""
        with self._reading_lifetimes:
            if self._lifetimes is None:
                lifetimes = Lifetimes()
                for entry in self:
                    lifetimes.observe(entry)
                self._lifetimes = lifetimes
        return self.num_passes - 1, self.state()["gate"], self._lifetimes

    def wait(self, seq: int, timeout: float | None = None) -> bool:
        """Return whether an entry after `seq` exists: none will come."""
        return self.last_seq > seq

    oldest_block = 0  # each block that there is can be read

    def spans(self) -> list[Span]:
        """The span of every block."""
        return [entry.span for entry in self.index]

    def __iter__(self) -> Iterator[Entry]:
        """Every entry, decoded. Raises TraceError at the first that cannot be read."""
        for number in range(len(self.index)):
            yield from map(decode_entry, self.block(number).entries)

    def section(self, number: int) -> bytes:
        """Return the bytes of a block's section as they are in the file. Raises IndexError."""
        entry = self.index[number]
        with self._lock:
            self._file.seek(entry.offset)
            return self._file.read(entry.length)

    def block(self, number: int) -> Block:
        """Return a block's contents; the last few are kept. Raises IndexError, TraceError."""
        with self._lock:
            if number in self._blocks:
                self._blocks.move_to_end(number)
                return self._blocks[number]
            entry = self.index[number]
            try:
                block = read_block(self.section(number), entry)
            except TraceError as error:
                raise TraceError(f"{self.path}: block {number} at byte {entry.offset}: {error}") from None
            self._blocks[number] = block
            if len(self._blocks) > CACHED_BLOCKS:
                self._blocks.popitem(last=False)
            return block

    def close(self) -> None:
        self._file.close()

    def _ended_in(self, number: int) -> Requests:
        if not 0 <= number < len(self.index):
            raise TraceError(f"a keyframe names block {number}, which is not there")
        with self._lock:
            if number not in self._ended:
                self._ended[number] = self.block(number).ended
                if len(self._ended) > CACHED_ENDED:
                    self._ended.popitem(last=False)
            return self._ended[number]

    def _fold_last(self) -> dict[str, Any]:
        if not self.index:
            return new_state(self.header.max_num_seqs)
        state = self.state_before(len(self.index) - 1)
        for data in self.block(len(self.index) - 1).entries:
            fold_entry(state, decode_entry(data))
        return state


def read_block(section: bytes, entry: BlockEntry) -> Block:
    """Return the contents of a block's section. Raises TraceError where they are not what the index says."""
    head, stored = section[: SECTION.size], section[SECTION.size :]
    if head[:4] != BLCK or len(stored) < SPAN.size:
        raise TraceError("this is no block")
    verify(head, stored)
    if Span(*SPAN.unpack(stored[: SPAN.size])) != entry.span:
        raise TraceError("the index tells something else of it")
    try:
        content = msgspec.convert(join(inflate(head, stored[SPAN.size :])), _Content)
        ended = dict(content.ended)
        entries = [item if isinstance(item, bytes) else msgspec.msgpack.encode(item) for item in content.entries]
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise TraceError(f"its contents cannot be read: {error}") from None
    _check_span(entries, entry.span)
    return Block(msgspec.msgpack.encode(content.keyframe), entries, ended)


def decode_entry(data: bytes) -> Entry:
    """Return a log entry. Raises TraceError."""
    try:
        return decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"an entry cannot be read: {error}") from None


def fold_entry(state: dict[str, Any], entry: Entry) -> None:
    """Fold an entry into a state. Raises TraceError where it assigns to what isn't there."""
    try:
        fold(state, entry)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"entry {entry.seq} does not fit the batch: {type(error).__name__}: {error}") from None


class _Content(msgspec.Struct):
    keyframe: dict[str, Any]
    entries: list[bytes | dict[str, Any]]
    ended: list[tuple[str, dict[str, Any]]]


class _Head(msgspec.Struct):
    seq: int
    kind: str
    pass_id: int = -1


def _is_pass(data: bytes) -> bool:
    return msgspec.msgpack.decode(data, type=_Head).kind == "pass"


def _check_span(entries: list[bytes], span: Span) -> None:
    """Raise TraceError where seqs or passes are not one after the other from where the span begins."""
    if len(entries) != span.num_entries or len(entries) > BLOCK_ENTRIES or span.num_passes > BLOCK_PASSES:
        raise TraceError("it does not hold the entries that it promises")
    seq, pass_id = span.first_seq, span.first_pass
    for data in entries:
        try:
            head = msgspec.msgpack.decode(data, type=_Head)
        except msgspec.DecodeError as error:
            raise TraceError(f"entry {seq} cannot be read: {error}") from None
        if head.seq != seq or (head.kind == "pass" and head.pass_id != pass_id):
            raise TraceError(f"entry {seq} is missing")
        seq, pass_id = seq + 1, pass_id + (head.kind == "pass")
    if pass_id != span.next_pass:
        raise TraceError("it does not hold the passes that it promises")

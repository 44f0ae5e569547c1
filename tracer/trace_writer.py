"""Writes the file of a recorded run, block by block."""

import os
from pathlib import Path
from typing import Any

import msgspec

from tracer.fold import fold, new_state
from tracer.keyframe import pack_keyframe
from tracer.lifetimes import Lifetimes
from tracer.planes import pack_planes, take
from tracer.schema import PassRecord, decode
from tracer.trace_format import (
    BLCK,
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    BLOCK_PASSES,
    FORMAT_VERSION,
    HEAD,
    INDX,
    MAGIC,
    SPAN,
    VERSION,
    VOCB,
    BlockEntry,
    Header,
    Index,
    Span,
    TraceError,
    pack,
    trailer,
)


class TraceWriter:
    """Takes log entries in the order of their seq, from one thread. Every block reaches the file by one write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the file, which must not exist. Raises TraceError, with what to do, where it can't be made."""
        self.path = Path(path)
        self.size = 0
        self.index: list[BlockEntry] = []
        try:
            self._file = self.path.open("x+b", buffering=0)
        except FileExistsError:
            raise TraceError(f"{self.path} exists already: choose another name, or remove it first") from None
        except OSError as error:
            raise TraceError(f"{self.path} cannot be written: {error.strerror}: choose another place") from None

    def begin(self, header: Header, vocabulary: bytes) -> None:
        """Write what was recorded; `vocabulary` is what /api/vocab gives. Raises TraceError, and leaves no file."""
        self._state = new_state(header.max_num_seqs)
        self._lifetimes = Lifetimes()
        self._ended_in: dict[str, int] = {}  # finished requests that the state still knows, and their blocks
        self._start_block()
        head = pack(HEAD, msgspec.msgpack.encode(header))
        try:
            self._write(MAGIC + VERSION.pack(FORMAT_VERSION) + head + pack(VOCB, vocabulary))
        except OSError as error:
            self.abandon()
            raise TraceError(f"{self.path} cannot be written: {error.strerror}: choose another place") from None

    @property
    def pending(self) -> int:
        """How many entries wait for their block to be written."""
        return len(self._entries)

    @property
    def num_passes(self) -> int:
        """How many passes have been taken."""
        return self._state["pass_id"] + 1

    def append(self, data: bytes) -> None:
        """Take the next entry; write the block once it is full. Raises OSError, TraceError."""
        entry = decode(data)
        if not self._entries:
            self._begin_block(entry.seq)
        fold(self._state, entry)
        self._lifetimes.observe(entry)
        self._note_ended(entry.requests if not isinstance(entry, PassRecord) else _requests_of(entry))
        self._entries.append(self._taken(data))
        self._num_bytes += len(data)
        self._num_passes += isinstance(entry, PassRecord)
        full = self._num_passes == BLOCK_PASSES or len(self._entries) == BLOCK_ENTRIES
        if full or self._num_bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the entries that wait as a block. Raises OSError, TraceError."""
        if not self._entries:
            return
        span = Span(self._first_seq, len(self._entries), self._first_pass, self._num_passes)
        content = {"keyframe": self._keyframe, "entries": self._entries, "ended": take(self._ended(), self._numbers)}
        section = pack(BLCK, pack_planes(content, self._numbers), SPAN.pack(*span))
        offset = self.size
        self._write(section)
        self.index.append(BlockEntry(offset, len(section), span))
        self._start_block()

    def section(self, number: int) -> bytes:
        """Return the bytes of a block's section that has been written. Raises IndexError."""
        offset, length, _ = self.index[number]
        return os.pread(self._file.fileno(), length, offset)

    def close(self) -> None:
        """Write what waits and the index, and see it to the disk. Raises OSError, TraceError."""
        try:
            self.flush()
            index = msgspec.msgpack.encode(Index(self.index, self._lifetimes.all()))
            self._write(pack(INDX, index) + trailer(self.size))
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Leave the file as it is, whole blocks and no index; remove it where nothing has been written."""
        if not self.size:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        """Append all of it or nothing."""
        written = 0
        try:
            while written < len(data):
                written += self._file.write(data[written:]) or 0
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(data)

    def _start_block(self) -> None:
        self._entries: list[Any] = []
        self._numbers: list[int] = []
        self._ended_here: dict[str, None] = {}
        self._num_bytes = self._num_passes = 0

    def _begin_block(self, seq: int) -> None:
        self._first_seq, self._first_pass = seq, self._state["pass_id"] + 1
        known = self._state["requests"]
        self._ended_in = {req_id: block for req_id, block in self._ended_in.items() if req_id in known}
        self._keyframe = _packed(take(pack_keyframe(self._state, self._ended_in), self._numbers))

    def _taken(self, data: bytes) -> Any:
        """Return an entry without its numbers, or as its bytes where other bytes would come of it."""
        plain, count = msgspec.msgpack.decode(data), len(self._numbers)
        try:
            if msgspec.msgpack.encode(plain) == data:
                return _packed(take(plain, self._numbers))
        except TypeError:
            del self._numbers[count:]
        return data

    def _note_ended(self, requests: list[tuple[str, dict[str, Any]]]) -> None:
        for req_id, partial in requests:
            if "prompt_token_ids" in partial:
                self._ended_in.pop(req_id, None)
                self._ended_here.pop(req_id, None)
            if "finish_reason" in partial or req_id in self._ended_in:
                self._ended_in[req_id] = len(self.index)
                self._ended_here[req_id] = None

    def _ended(self) -> list[list[Any]]:
        """The last states of the requests that finished in this block, as far as the state still knows them."""
        known = self._state["requests"]
        return [[req_id, known[req_id]] for req_id in self._ended_here if req_id in known]


def _requests_of(entry: PassRecord) -> list[tuple[str, dict[str, Any]]]:
    return [pair for phase in entry.phases for pair in phase.requests]


def _packed(value: Any) -> msgspec.Raw:
    """Keep a value as msgpack until its block is written: as lists and maps it would keep the collector busy."""
    return msgspec.Raw(msgspec.msgpack.encode(value))

"""Writes the file of a recorded run, block by block."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tracer.block_cutter import BlockCutter
from tracer.lifetimes import Lifetimes
from tracer.planes import pack_planes, take
from tracer.schema import decode_changes
from tracer.trace_format import (
    BLCK,
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
    TraceError,
    pack,
    trailer,
)

Scan = Callable[[bytes, list[int]], bytes | None]


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

    def begin(self, header: Header, vocabulary: bytes, scan: Scan | None = None) -> None:
        """Write what was recorded; `vocabulary` is what /api/vocab gives. Raises TraceError, and leaves no file.

        scan: a faster way to take the numbers out of an entry, if there is one. It gets the entry and the list to put
        them in, and returns what is left, or None for an entry that it does not take.
        """
        self._cutter = BlockCutter(header.max_num_seqs)
        self._lifetimes = Lifetimes()
        self._entries: list[Any] = []
        self._numbers: list[int] = []
        self._scan = scan
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
        return self._cutter.state["pass_id"] + 1

    def append(self, data: bytes) -> None:
        """Take the next entry; write the block once it is full. Raises OSError, TraceError."""
        entry = decode_changes(data)
        if not self._entries:
            self._keyframe = self._packed(self._cutter.begin(entry.seq))
        self._cutter.fold(entry, len(data))
        self._lifetimes.observe(entry)
        self._entries.append(self._taken(data))
        if self._cutter.full:
            self.flush()

    def flush(self) -> None:
        """Write the entries that wait as a block. Raises OSError, TraceError."""
        if not self._entries:
            return
        span, ended = self._cutter.span, self._packed(self._cutter.ended())
        content = {"keyframe": self._keyframe, "entries": self._entries, "ended": ended}
        section = pack(BLCK, pack_planes(content, self._numbers), SPAN.pack(*span))
        offset = self.size
        self._write(section)
        self.index.append(BlockEntry(offset, len(section), span))
        self._cutter.cut()
        self._entries, self._numbers = [], []

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

    def _taken(self, data: bytes) -> Any:
        """Return an entry without its numbers, or as its bytes where other bytes would come of it."""
        if self._scan and (skeleton := self._scan(data, self._numbers)):
            return msgspec.Raw(skeleton)
        plain, count = msgspec.msgpack.decode(data), len(self._numbers)
        if msgspec.msgpack.encode(plain) != data:
            return data
        try:
            return self._without_numbers(plain)
        except TypeError:
            del self._numbers[count:]
            return data

    def _packed(self, value: Any) -> msgspec.Raw:
        """Return what is read as a structure without its numbers; the value stays. Raises TypeError."""
        return self._without_numbers(msgspec.msgpack.decode(msgspec.msgpack.encode(value)))

    def _without_numbers(self, plain: Any) -> msgspec.Raw:
        """As msgpack until the block is written: as lists and maps it would keep the collector busy."""
        take(plain, self._numbers)
        return msgspec.Raw(msgspec.msgpack.encode(plain))

"""Writes the file of a recorded run, block by block."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tracer.history import Edges
from tracer.lifetimes import Lifetime
from tracer.planes import pack_planes, take
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
    Span,
    TraceError,
    pack,
    trailer,
)

Scan = Callable[[bytes, list[int]], bytes | None]


class TraceWriter:
    """Used from one thread. Every block reaches the file by one write."""

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
        self._scan = scan
        head = pack(HEAD, msgspec.msgpack.encode(header))
        try:
            self._write(MAGIC + VERSION.pack(FORMAT_VERSION) + head + pack(VOCB, vocabulary))
        except OSError as error:
            self.abandon()
            raise TraceError(f"{self.path} cannot be written: {error.strerror}: choose another place") from None

    @property
    def num_passes(self) -> int:
        """How many passes are in the file."""
        return self.index[-1].span.next_pass if self.index else 0

    def write(self, span: Span, edges: Edges, entries: list[bytes]) -> None:
        """Write the next block, with the entries of its span. Raises OSError, TraceError, TypeError."""
        numbers: list[int] = []
        content = {
            "keyframe": self._structure(edges.keyframe, numbers),
            "entries": [self._taken(data, numbers) for data in entries],
            "ended": self._structure(edges.ended, numbers),
        }
        section = pack(BLCK, pack_planes(content, numbers), SPAN.pack(*span))
        offset = self.size
        self._write(section)
        self.index.append(BlockEntry(offset, len(section), span))

    def close(self, lifetimes: list[tuple[str, Lifetime]]) -> None:
        """Write the index and see it to the disk. Raises OSError, TraceError."""
        try:
            index = msgspec.msgpack.encode(Index(self.index, lifetimes))
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

    def _taken(self, data: bytes, numbers: list[int]) -> Any:
        """Return an entry without its numbers, or as its bytes where other bytes would come of it."""
        if self._scan and (skeleton := self._scan(data, numbers)):
            return msgspec.Raw(skeleton)
        plain, count = msgspec.msgpack.decode(data), len(numbers)
        if msgspec.msgpack.encode(plain) != data:
            return data
        try:
            return _without_numbers(plain, numbers)
        except TypeError:
            del numbers[count:]
            return data

    def _structure(self, edge: msgspec.Raw, numbers: list[int]) -> msgspec.Raw:
        """Return what is read as a structure without its numbers. Raises TypeError."""
        if self._scan and (skeleton := self._scan(bytes(edge), numbers)):
            return msgspec.Raw(skeleton)
        return _without_numbers(msgspec.msgpack.decode(edge), numbers)


def _without_numbers(plain: Any, numbers: list[int]) -> msgspec.Raw:
    take(plain, numbers)
    return msgspec.Raw(msgspec.msgpack.encode(plain))

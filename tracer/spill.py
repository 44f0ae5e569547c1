"""Bytes by number in temporary files of a bounded size: the newest can be read, the oldest are forgotten."""

import contextlib
import tempfile
from array import array
from typing import IO


class Gone(LookupError):
    """The entry existed and has been forgotten to bound the log's size."""


class Spill:
    """Items 0, 1, 2, ... in two temporary files of half the size each: when the newer is full, the older goes.

    Where the disk takes no more, everything spilled is forgotten and counted, and the engine goes on.
    """

    def __init__(self, max_bytes: int) -> None:
        self._segment_bytes = max_bytes // 2
        self._segments: list[_Segment] = []
        self._next = 0

    @property
    def oldest(self) -> int:
        """The number of the oldest item that can be read, or of the next one where there is none."""
        return self._segments[0].first if self._segments else self._next

    def append(self, data: bytes) -> int:
        """Store the next item and return how many were forgotten for it."""
        forgotten = 0
        try:
            if not self._segments or self._segments[-1].size + len(data) > self._segment_bytes:
                self._segments.append(_Segment(self._next))
            self._segments[-1].append(data)
            if len(self._segments) > 2:
                forgotten = self._drop(1)
        except OSError:
            forgotten = self._drop(len(self._segments)) + 1
        self._next += 1
        return forgotten

    def read(self, number: int) -> bytes:
        """Return an item. Raises Gone."""
        for segment in self._segments:
            if segment.first <= number < segment.first + len(segment.offsets):
                return segment.read(number)
        raise Gone("it is older than what the log keeps")

    def close(self) -> None:
        self._drop(len(self._segments))

    def _drop(self, count: int) -> int:
        dropped, self._segments = self._segments[:count], self._segments[count:]
        for segment in dropped:
            with contextlib.suppress(OSError):  # what the full disk did not take is still in the buffer
                segment.file.close()
        return sum(len(segment.offsets) for segment in dropped)


class _Segment:
    def __init__(self, first: int) -> None:
        self.first = first
        self.size = 0
        self.offsets = array("q")
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="batchscope-log-")  # noqa: SIM115 (closed by Spill)

    def append(self, data: bytes) -> None:
        self.file.seek(self.size)
        self.file.write(data)
        self.file.flush()
        self.offsets.append(self.size)
        self.size += len(data)

    def read(self, number: int) -> bytes:
        i = number - self.first
        end = self.offsets[i + 1] if i + 1 < len(self.offsets) else self.size
        self.file.seek(self.offsets[i])
        return self.file.read(end - self.offsets[i])

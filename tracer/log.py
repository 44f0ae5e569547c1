"""The numbered log of one engine: recent entries in memory, older ones in a temporary file, the oldest forgotten."""

import contextlib
import copy
import tempfile
import threading
from array import array
from collections import deque
from typing import IO, Any

import msgspec

from tracer.fold import fold, new_state
from tracer.lifetimes import Lifetimes
from tracer.schema import decode

MEMORY_BYTES = 32 << 20
SPILL_BYTES = 1 << 30
FOLD_EVERY = 256  # entries that may wait to be folded


class Gone(LookupError):
    """The entry existed and has been forgotten to bound the log's size."""


class Log:
    """Takes encoded entries in the order of their seq, from one thread, and serves them to many.

    Memory is bounded by `memory_bytes` (or the newest 257 entries, where those are larger), some 16 bytes an entry to
    find the older ones, and the lifetimes of KEPT_LIFETIMES requests; the temporary file by `spill_bytes`.
    """

    def __init__(self, max_num_seqs: int, memory_bytes: int = MEMORY_BYTES, spill_bytes: int = SPILL_BYTES) -> None:
        self.dropped = 0  # entries forgotten
        self._memory_bytes = memory_bytes
        self._recent: deque[bytes] = deque()
        self._recent_size = 0
        self._next = 0
        self._pass_seqs = array("q")
        self._spill = _Spill(spill_bytes)
        self._state = new_state(max_num_seqs)
        self._lifetimes = Lifetimes()
        self._changed = threading.Condition()

    @property
    def last_seq(self) -> int:
        """The seq of the newest entry, -1 before the first."""
        return self._next - 1

    def append(self, data: bytes) -> None:
        """Take the next entry. Raises ValueError where its seq is not the next one."""
        head = msgspec.msgpack.decode(data, type=_Head)
        with self._changed:
            if head.seq != self._next:
                raise ValueError(f"the log expected entry {self._next} and got {head.seq}: an entry was lost")
            if head.kind == "pass":
                self._pass_seqs.append(head.seq)
            self._recent.append(data)
            self._recent_size += len(data)
            self._next += 1
            if self._next - 1 - self._state["seq"] > FOLD_EVERY:
                self._catch_up()
            self._shrink()
            self._changed.notify_all()

    def entries(self, from_seq: int, to_seq: int) -> list[bytes]:
        """Return the entries from_seq..to_seq, both included, as far as they exist. Raises Gone."""
        with self._changed:
            return [self._read(seq) for seq in range(max(from_seq, 0), min(to_seq, self.last_seq) + 1)]

    def pass_bytes(self, pass_id: int) -> bytes:
        """Return the record of a pass. Raises KeyError where it never was and Gone where it was forgotten."""
        with self._changed:
            if not 0 <= pass_id < len(self._pass_seqs):
                raise KeyError(pass_id)
            return self._read(self._pass_seqs[pass_id])

    def state(self) -> dict[str, Any]:
        """Return the batch and the requests after the newest entry; the copy is the caller's."""
        with self._changed:
            self._catch_up()
            return copy.deepcopy(self._state)

    def newest(self) -> tuple[int, dict[str, Any], Lifetimes]:
        """Return the newest pass's number (-1 before the first), the gate's state and all requests' lifetimes."""
        with self._changed:
            self._catch_up()
            return self._state["pass_id"], self._state["gate"], self._lifetimes

    def wait(self, seq: int, timeout: float | None = None) -> bool:
        """Wait until an entry after `seq` exists; return whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self.last_seq > seq, timeout)

    def close(self) -> None:
        self._spill.close()

    def _catch_up(self) -> None:
        for seq in range(self._state["seq"] + 1, self._next):
            entry = decode(self._read(seq))
            fold(self._state, entry)
            self._lifetimes.observe(entry)

    def _shrink(self) -> None:
        while self._recent_size > self._memory_bytes and len(self._recent) > FOLD_EVERY + 1:
            data = self._recent.popleft()
            self._recent_size -= len(data)
            self.dropped += self._spill.append(data)

    def _read(self, seq: int) -> bytes:
        oldest = self._next - len(self._recent)
        return self._recent[seq - oldest] if seq >= oldest else self._spill.read(seq)


class _Head(msgspec.Struct):
    seq: int
    kind: str


class _Spill:
    """Entries 0, 1, 2, ... in two temporary files of half the size each: when the newer is full, the older goes.

    Where the disk takes no more, everything spilled is forgotten and counted, and the engine goes on.
    """

    def __init__(self, max_bytes: int) -> None:
        self._segment_bytes = max_bytes // 2
        self._segments: list[_Segment] = []
        self._next = 0

    def append(self, data: bytes) -> int:
        """Store the next entry and return how many were forgotten for it."""
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

    def read(self, seq: int) -> bytes:
        for segment in self._segments:
            if segment.first <= seq < segment.first + len(segment.offsets):
                return segment.read(seq)
        raise Gone(f"entry {seq} is older than what the log keeps")

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
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="batchscope-log-")  # noqa: SIM115 (closed by _Spill)

    def append(self, data: bytes) -> None:
        self.file.seek(self.size)
        self.file.write(data)
        self.file.flush()
        self.offsets.append(self.size)
        self.size += len(data)

    def read(self, seq: int) -> bytes:
        i = seq - self.first
        end = self.offsets[i + 1] if i + 1 < len(self.offsets) else self.size
        self.file.seek(self.offsets[i])
        return self.file.read(end - self.offsets[i])

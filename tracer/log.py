"""The numbered log of one engine: recent entries in memory, older ones in a temporary file, the oldest forgotten."""

import copy
import threading
import time
from array import array
from bisect import bisect_left
from collections import deque
from typing import Any

from tracer.history import Cuts, Edges, History
from tracer.lifetimes import Lifetime, Lifetimes
from tracer.schema import PassRecord, decode_changes
from tracer.spill import Gone, Spill
from tracer.trace_format import Span

__all__ = ["Gone", "Log"]

MEMORY_BYTES = 32 << 20
SPILL_BYTES = 1 << 30
FOLD_EVERY = 16  # entries that may wait to be folded: one by one each would find the caches cold


class Log:
    """Takes encoded entries in the order of their seq, from one thread, and serves them to many.

    Memory is bounded by `memory_bytes` (or the newest 65 entries, where those are larger), some 16 bytes an entry and
    150 a block to find the older ones, the edges of the newest blocks, and the lifetimes of KEPT_LIFETIMES requests;
    the temporary files by `spill_bytes` and by what tracer.history keeps.
    """

    def __init__(self, max_num_seqs: int, memory_bytes: int = MEMORY_BYTES, spill_bytes: int = SPILL_BYTES) -> None:
        self.created = time.time()  # seconds since the epoch
        self.dropped = 0  # entries forgotten
        self._memory_bytes = memory_bytes
        self._recent: deque[bytes] = deque()
        self._recent_size = 0
        self._next = 0
        self._pass_seqs = array("q")
        self._spill = Spill(spill_bytes)
        self._cuts = Cuts(max_num_seqs)
        self._state = self._cuts.state
        self._history = History(self)
        self._lifetimes = Lifetimes()
        self._changed = threading.Condition()

    @property
    def last_seq(self) -> int:
        """The seq of the newest entry, -1 before the first."""
        return self._next - 1

    def append(self, data: bytes) -> None:
        """Take the next entry, as it is. Raises ValueError where one of the entries so far is not the next of its seq.

        That is noticed where the entries are folded, FOLD_EVERY of them later at most.
        """
        with self._changed:
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
            if pass_id >= len(self._pass_seqs):
                self._catch_up()
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

    def spans(self) -> list[Span]:
        """The span of every block that the run is cut into; the last one may grow."""
        with self._changed:
            self._catch_up()
            return self._cuts.spans()

    @property
    def oldest_block(self) -> int:
        """The number of the oldest block that is not forgotten."""
        with self._changed:
            spans = self._cuts.spans()
            number = bisect_left(spans, self.dropped, key=lambda span: span.first_seq)
            return max(number, self._cuts.oldest)

    def section(self, number: int) -> bytes:
        """Return a block as it would be in a file. Raises IndexError, and Gone where it is forgotten."""
        return self._history.section(number)

    def edges(self, number: int) -> tuple[Span, Edges]:
        """Return the span of a block and what it needs besides its entries. Raises IndexError, Gone."""
        with self._changed:
            self._catch_up()
            return self._cuts.spans()[number], self._cuts.edges(number)

    @property
    def num_closed_blocks(self) -> int:
        """How many of the blocks grow no more."""
        with self._changed:
            self._catch_up()
            return self._cuts.num_closed

    def cut(self) -> list[tuple[str, Lifetime]]:
        """End the open block, if there is one; return the lifetimes of all requests up to there."""
        with self._changed:
            self._catch_up()
            self._cuts.cut()
            return self._lifetimes.all()

    def wait(self, seq: int, timeout: float | None = None) -> bool:
        """Wait until an entry after `seq` exists; return whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self.last_seq > seq, timeout)

    def close(self) -> None:
        self._spill.close()
        self._cuts.close()

    def _catch_up(self) -> None:
        for seq in range(self._state["seq"] + 1, self._next):
            data = self._read(seq)
            entry = decode_changes(data)
            if entry.seq != seq:
                raise ValueError(f"the log expected entry {seq} and got {entry.seq}: an entry was lost")
            if isinstance(entry, PassRecord):
                self._pass_seqs.append(seq)
            self._cuts.fold(entry, len(data))
            self._lifetimes.observe(entry)

    def _shrink(self) -> None:
        while self._recent_size > self._memory_bytes and len(self._recent) > FOLD_EVERY + 1:
            data = self._recent.popleft()
            self._recent_size -= len(data)
            self.dropped += self._spill.append(data)

    def _read(self, seq: int) -> bytes:
        oldest = self._next - len(self._recent)
        return self._recent[seq - oldest] if seq >= oldest else self._spill.read(seq)

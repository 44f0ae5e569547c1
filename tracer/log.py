"""The numbered log of one engine: recent entries in memory, older ones in a temporary file, the oldest forgotten."""

import copy
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any

from tracer.bunch import Bunch, num_entries
from tracer.history import Cuts, Edges, History
from tracer.lifetimes import Lifetime, Lifetimes
from tracer.log_view import Part
from tracer.schema import PassRecord, decode_changes
from tracer.spill import Gone, Spill
from tracer.trace_format import Span

__all__ = ["Gone", "Log"]

MEMORY_BYTES = 32 << 20
SPILL_BYTES = 1 << 30
FOLD_EVERY = 16  # entries that may wait to be folded: one by one each would find the caches cold


class Log:
    """Takes encoded entries in the order of their seq, from one thread, and serves them to many.

    A message is an entry or a bunch of them (tracer.bunch), which is kept as it came and opened for who reads it.

    Memory is bounded by `memory_bytes` (or the newest 17 messages, where those are larger), some 16 bytes a message, 8
    a pass and 150 a block to find the older ones, the edges of the newest blocks, and the lifetimes of KEPT_LIFETIMES
    requests; the temporary files by `spill_bytes` and by what tracer.history keeps.
    """

    def __init__(self, max_num_seqs: int, memory_bytes: int = MEMORY_BYTES, spill_bytes: int = SPILL_BYTES) -> None:
        self.created = time.time()  # seconds since the epoch
        self._memory_bytes = memory_bytes
        self._firsts = array("q")  # the first seq of each message
        self._recent: deque[bytes] = deque()  # the newest messages
        self._recent_size = 0
        self._next = 0
        self._pass_seqs = array("q")
        self._pass_size = 0  # in bytes, of the last pass that came by itself
        self._spill = Spill(spill_bytes)
        self._cuts = Cuts(max_num_seqs)
        self._state = self._cuts.state
        self._history = History(self)
        self._lifetimes = Lifetimes()
        self._open: Bunch | None = None  # that was read last: the next entry is likely in it too
        self._changed = threading.Condition()

    @property
    def last_seq(self) -> int:
        """The seq of the newest entry, -1 before the first."""
        return self._next - 1

    @property
    def dropped(self) -> int:
        """How many entries are forgotten."""
        oldest = self._spill.oldest
        return self._firsts[oldest] if oldest < len(self._firsts) else self._next

    def append(self, message: bytes) -> None:
        """Take the next message, as it is. Raises ValueError where an entry so far is not the next of its seq.

        That is noticed where the entries are folded, FOLD_EVERY of them later at most.
        """
        with self._changed:
            self._firsts.append(self._next)
            self._recent.append(message)
            self._recent_size += len(message)
            self._next += num_entries(message)
            if self._next - 1 - self._state["seq"] > FOLD_EVERY:
                self._catch_up()
            self._shrink()
            self._changed.notify_all()

    def entries(self, from_seq: int, to_seq: int) -> list[bytes]:
        """Return the entries from_seq..to_seq, both included, as far as they exist. Raises Gone."""
        with self._changed:
            messages = list(self._messages(max(from_seq, 0), min(to_seq, self.last_seq)))
        return [entry for first, message in messages for entry in self._spelled_out(message, first, from_seq, to_seq)]

    def parts(self, from_seq: int, to_seq: int) -> list[Part]:
        """As `entries`, for who can do with a bunch as it is: one that begins in the range comes whole."""
        with self._changed:
            messages = list(self._messages(max(from_seq, 0), min(to_seq, self.last_seq)))
        parts: list[Part] = []
        for first, message in messages:
            whole = first >= from_seq and num_entries(message) > 1
            parts += [self._bunch(message, first)] if whole else self._spelled_out(message, first, from_seq, to_seq)
        return parts

    def pass_bytes(self, pass_id: int) -> bytes:
        """Return the record of a pass. Raises KeyError where it never was and Gone where it was forgotten."""
        with self._changed:
            if pass_id >= len(self._pass_seqs):
                self._catch_up()
            if not 0 <= pass_id < len(self._pass_seqs):
                raise KeyError(pass_id)
            seq = self._pass_seqs[pass_id]
        return self.entries(seq, seq)[0]

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
        for first, message in self._messages(self._state["seq"] + 1, self.last_seq):
            if num_entries(message) > 1:
                self._fold_bunch(self._bunch(message, first))
                continue
            entry = decode_changes(message)
            self._check_next(first, entry.seq)
            if isinstance(entry, PassRecord):
                self._pass_seqs.append(first)
                self._pass_size = len(message)
            self._cuts.fold(entry, len(message))
            self._lifetimes.observe(entry)

    def _fold_bunch(self, bunch: Bunch) -> None:
        """Fold the passes together, each as long as the last one that came by itself: or nearly."""
        self._check_next(self._state["seq"] + 1, bunch.first_seq)
        self._pass_seqs.extend(range(bunch.first_seq, bunch.first_seq + bunch.count))
        merged = bunch.merged()
        self._cuts.fold(merged, self._pass_size * bunch.count, bunch.count)
        self._lifetimes.observe(merged)

    def _check_next(self, seq: int, got: int) -> None:
        if got != seq:
            raise ValueError(f"the log expected entry {seq} and got {got}: an entry was lost")

    def _shrink(self) -> None:
        while self._recent_size > self._memory_bytes and len(self._recent) > FOLD_EVERY + 1:
            message = self._recent.popleft()
            self._recent_size -= len(message)
            self._spill.append(message)

    def _messages(self, from_seq: int, to_seq: int) -> Iterator[tuple[int, bytes]]:
        """The messages that have the entries from_seq..to_seq, each with the seq of its first entry. Raises Gone."""
        number = bisect_right(self._firsts, from_seq) - 1
        while from_seq <= to_seq and number < len(self._firsts) and self._firsts[number] <= to_seq:
            oldest = len(self._firsts) - len(self._recent)
            yield (
                self._firsts[number],
                self._recent[number - oldest] if number >= oldest else self._spill.read(number),
            )  # fmt: skip
            number += 1

    def _spelled_out(self, message: bytes, first: int, from_seq: int, to_seq: int) -> list[bytes]:
        """Return those entries of a message that are in a range."""
        if num_entries(message) == 1:
            return [message]
        bunch = self._bunch(message, first)
        wanted = range(max(from_seq - first, 0), min(to_seq - first + 1, bunch.count))
        return [bunch.entry(number) for number in wanted]

    def _bunch(self, message: bytes, first: int) -> Bunch:
        """Return a message that is a bunch, opened."""
        bunch = self._open
        if bunch is None or bunch.first_seq != first:
            self._open = bunch = Bunch(message)
        return bunch

"""Folds the entries of a run and cuts it into blocks: the same cuts for a file and for the history of a live run."""

from typing import Any

from tracer.block_states import BlockStates
from tracer.fold import fold, new_state
from tracer.keyframe import pack_keyframe
from tracer.schema import Entry, PassRecord
from tracer.trace_format import BLOCK_BYTES, BLOCK_ENTRIES, BLOCK_PASSES, Span


class BlockCutter:
    """Takes entries in the order of their seq. Knows of the open block what it needs besides its entries."""

    def __init__(self, max_num_seqs: int) -> None:
        self.state = new_state(max_num_seqs)
        self.blocks = BlockStates()  # those of the state
        self._number = 0  # of the open block
        self._ended_in: dict[str, int] = {}  # finished requests that the state still knows, and their blocks
        self._start()

    def begin(self, seq: int) -> dict[str, Any]:
        """Open a block whose first entry is `seq`; return its keyframe, which holds until the next fold.

        It lacks the KV blocks: take `blocks`.
        """
        self._first_seq, self._first_pass = seq, self.state["pass_id"] + 1
        known = self.state["requests"]
        self._ended_in = {req_id: block for req_id, block in self._ended_in.items() if req_id in known}
        return pack_keyframe(self.state, self._ended_in)

    def fold(self, entry: Entry, size: int, count: int = 1) -> None:
        """Take the next entry, which was `size` bytes long; or `count` passes merged into one, for which is room."""
        fold(self.state, entry)
        for blocks in _blocks_of(entry):
            self.blocks.assign(blocks)
        self._note_ended(_requests_of(entry))
        self.num_entries += count
        self._num_passes += count * isinstance(entry, PassRecord)
        self._num_bytes += size

    def has_room(self, count: int) -> bool:
        """Whether so many passes more go into the open block."""
        return self._num_passes + count <= BLOCK_PASSES and self.num_entries + count <= BLOCK_ENTRIES

    @property
    def full(self) -> bool:
        """Whether the open block takes no more."""
        many = self._num_passes == BLOCK_PASSES or self.num_entries == BLOCK_ENTRIES
        return many or self._num_bytes >= BLOCK_BYTES

    @property
    def span(self) -> Span:
        """What the open block holds so far."""
        return Span(self._first_seq, self.num_entries, self._first_pass, self._num_passes)

    def ended(self) -> list[list[Any]]:
        """The last states of the requests that finished in the open block, as far as the state still knows them."""
        known = self.state["requests"]
        return [[req_id, known[req_id]] for req_id in self._ended_here if req_id in known]

    def cut(self) -> None:
        """End the open block."""
        self._number += 1
        self._start()

    def _start(self) -> None:
        self._ended_here: dict[str, None] = {}
        self.num_entries = self._num_passes = self._num_bytes = 0

    def _note_ended(self, requests: list[tuple[str, dict[str, Any]]]) -> None:
        for req_id, partial in requests:
            if "prompt_token_ids" in partial:
                self._ended_in.pop(req_id, None)
                self._ended_here.pop(req_id, None)
            if "finish_reason" in partial or req_id in self._ended_in:
                self._ended_in[req_id] = self._number
                self._ended_here[req_id] = None


def _requests_of(entry: Entry) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(entry, PassRecord):
        return [pair for phase in entry.phases for pair in phase.requests]
    return entry.requests


def _blocks_of(entry: Entry) -> list[list[tuple[int, int, int]]]:
    found = [phase.blocks for phase in entry.phases] if isinstance(entry, PassRecord) else [entry.blocks]
    return [blocks for blocks in found if blocks]

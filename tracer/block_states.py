"""The KV blocks of a folded state in arrays: all of them are in each keyframe, and a copy of arrays costs little."""

from collections.abc import Sequence

import numpy as np

UNKNOWN = -1  # in place of a reference count: no entry has told of this block


class BlockStates:
    """What tracer.fold has in `blocks`, in the order of the ids."""

    def __init__(self) -> None:
        self._states = np.full((2, 0), UNKNOWN, "<i4")  # reference counts, whether cached: by block id

    def assign(self, blocks: Sequence[tuple[int, int, int]]) -> None:
        """blocks: as PhaseRecord.blocks has them. A later one counts."""
        ids, *states = np.array(blocks, "<i4").T
        if ids.max() >= self._states.shape[1]:
            grown = np.full((2, 2 * (int(ids.max()) + 1)), UNKNOWN, "<i4")
            grown[:, : self._states.shape[1]] = self._states
            self._states = grown
        self._states[:, ids] = states

    def pack(self) -> bytes:
        return self._states.tobytes()


def unpack_blocks(data: bytes) -> list[list[int]]:
    """Return [id, reference count, cached] of each block that is known."""
    states = np.frombuffer(data, "<i4").reshape(2, -1)
    ids = np.flatnonzero(states[0] != UNKNOWN)
    return np.vstack([ids, states[:, ids]]).T.tolist()

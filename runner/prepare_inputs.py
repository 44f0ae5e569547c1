"""Index arithmetic of one pass: rows of different lengths, end to end on one token axis."""

import numpy as np


def cumsum_and_arange(counts: np.ndarray, arange: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the running sums of counts [R] and write 0, 1, ... counts[i] - 1 for each i, end to end, into out.

    [2, 5, 3] gives [2, 7, 10] and writes [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]. `arange` is 0, 1, 2, ... as long as out.
    """
    cu_num_tokens = np.cumsum(counts, dtype=np.int64)
    total = int(cu_num_tokens[-1])
    starts = np.repeat(cu_num_tokens - counts, counts)
    np.subtract(arange[:total], starts, out=out[:total])
    return cu_num_tokens


def flat_token_indices(positions: np.ndarray, req_indices: np.ndarray, row_width: int) -> np.ndarray:
    """Return where each token stands in the flattened token buffer: position + row * row_width, in 64 bits."""
    return positions + req_indices.astype(np.int64) * row_width

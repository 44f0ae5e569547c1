"""Row and column of a table to an index into the flat table, in 64 bits."""

from typing import TypeVar

import numpy as np
import torch

from kernels.triton_support import tl, triton

Indices = TypeVar("Indices", int, np.ndarray, torch.Tensor)


def flat_index(rows: Indices, columns: Indices, width: int) -> Indices:
    """Return rows * width + columns as int64, whatever integer type comes in.

    Tables of long requests pass 2**31 elements (row 598 of width 3,600,000), so 32-bit rows are widened first.
    """
    if isinstance(rows, torch.Tensor):
        return rows.to(torch.int64) * width + columns
    if isinstance(rows, np.ndarray):
        return np.multiply(rows, width, dtype=np.int64) + columns
    return rows * width + columns


def flat_index_reference(rows: list[int], columns: list[int], width: int) -> list[int]:
    """Say the same in Python's unbounded integers."""
    return [row * width + column for row, column in zip(rows, columns, strict=True)]


if triton is not None:

    @triton.jit
    def flat_index_triton(row, column, width):
        """Same, inside a Triton kernel, where program ids and loaded ids are 32 bits wide."""
        return tl.cast(row, tl.int64) * width + column

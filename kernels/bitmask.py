"""A grammar's mask: one bit a token, 1 where it may come."""

import numpy as np
import torch
from numba import prange

from kernels.cpu import as_numpy, jit_both, run

BITS = 32


def apply_token_bitmask(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """Set the logits of forbidden tokens to -inf, in place. logits: float32 [R, V].

    bitmask: int32 [N, W], W >= V / 32, on the CPU or the device; bit i % 32 of word i // 32 is token i's. rows:
    int64 [N], the row of logits that each mask is for. Raises ValueError where the masks are too short.
    """
    if bitmask.shape[1] * BITS < logits.shape[1]:
        raise ValueError(f"a bitmask of {bitmask.shape[1]} words is too short for {logits.shape[1]} tokens")
    if logits.is_cpu:
        work = bitmask.shape[0] * logits.shape[1]
        run(_apply_cpu, work, as_numpy(logits), as_numpy(bitmask), as_numpy(rows))
    else:
        _apply_torch(logits, bitmask.to(logits.device), rows.to(logits.device))


@jit_both
def _apply_cpu(logits, bitmask, rows):
    vocab = logits.shape[1]
    for i in prange(rows.shape[0]):
        row = rows[i]
        for word in range((vocab + 31) // 32):
            bits = bitmask[i, word]
            if bits != -1:
                for bit in range(min(32, vocab - word * 32)):
                    if not (bits >> bit) & 1:
                        logits[row, word * 32 + bit] = -np.inf


def _apply_torch(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    bits = torch.arange(BITS, dtype=torch.int32, device=logits.device)
    allowed = ((bitmask[:, :, None] >> bits) & 1).flatten(1)[:, : logits.shape[1]].bool()
    logits[rows] = logits[rows].masked_fill(~allowed, -torch.inf)


def apply_token_bitmask_reference(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return what the logits become, token by token."""
    result = logits.clone()
    for mask, row in zip(bitmask.tolist(), rows.tolist(), strict=True):
        for token_id in range(logits.shape[1]):
            if not (mask[token_id // BITS] >> token_id % BITS) & 1:
                result[row, token_id] = -torch.inf
    return result

"""Log-probabilities of chosen tokens and of the likeliest ones, without a row of them for the whole vocabulary."""

import math

import numpy as np
import torch
from numba import prange

from kernels.cpu import as_numpy, jit, jit_both, run
from kernels.sampling_cpu import BLOCK, at_least, highest_of, sum_blocks, weigh


def gather_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, num_logprobs: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, int64 [N, 1 + num_logprobs], their log-probabilities, float32, and the first one's rank, int64 [N].

    logits: float32 [N, V]; token_ids: int64 [N]. Each row has its token first, then the likeliest in falling order.
    The rank counts the tokens at least as likely: 1 for the likeliest.
    """
    if not logits.is_cpu:
        return gather_logprobs_reference(logits, token_ids, num_logprobs)
    shape = len(logits), 1 + num_logprobs
    ids, logprobs = torch.empty(shape, dtype=torch.int64), torch.empty(shape)
    ranks = torch.empty(len(logits), dtype=torch.int64)
    arrays = logits.contiguous(), token_ids, ids, logprobs, ranks
    run(_gather_cpu, logits.numel(), *map(as_numpy, arrays))
    return ids, logprobs, ranks


@jit()
def _likely(row, wanted):
    """Return the ids of the `wanted` highest logits, and of some others, in the order of ids."""
    least = at_least(row, wanted)
    ids = np.empty(len(row) + 1, np.int32)
    count = 0
    for i in range(len(row)):
        ids[count] = i
        count += not row[i] < least
    return ids[:count]


@jit_both
def _gather_cpu(logits, token_ids, ids, logprobs, ranks):
    vocab, wanted = logits.shape[1], ids.shape[1] - 1
    for r in prange(len(ranks)):
        row = logits[r]
        highest = highest_of(row)
        weights, sums = np.empty(vocab, np.float32), np.empty((vocab + BLOCK - 1) // BLOCK)
        weigh(row, highest, np.float32(1.0), np.float32(0.0), weights)
        normalizer = highest + math.log(sum_blocks(weights, sums))
        chosen, rank = row[token_ids[r]], 0
        for i in range(vocab):
            rank += row[i] >= chosen
        ids[r, 0], logprobs[r, 0], ranks[r] = token_ids[r], chosen - normalizer, rank
        if wanted > 0:
            likely = _likely(row, wanted)
            order = np.argsort(-row[likely], kind="mergesort")
            for i in range(wanted):
                token_id = likely[order[i]]
                ids[r, 1 + i], logprobs[r, 1 + i] = token_id, row[token_id] - normalizer


def gather_logprobs_reference(
    logits: torch.Tensor, token_ids: torch.Tensor, num_logprobs: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same by whole tensors; of equal logits any may come first."""
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, token_ids[:, None])
    values, ids = logprobs.topk(num_logprobs, dim=-1)
    ranks = (logits >= logits.gather(1, token_ids[:, None])).sum(-1)
    return torch.cat([token_ids[:, None], ids], 1), torch.cat([chosen, values], 1), ranks

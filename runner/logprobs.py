"""Log-probabilities as the model gives them, before anything changes the logits (vLLM's raw_logprobs)."""

from collections.abc import Sequence

import torch

from engine.outputs import LogprobsLists
from kernels.logprobs import gather_logprobs


def logprobs_lists(logits: torch.Tensor, token_ids: torch.Tensor, num_logprobs: Sequence[int]) -> LogprobsLists:
    """Return N positions: the token there, then the num_logprobs likeliest, -1 for all.

    logits: float32 [N, V]; token_ids: int64 [N].
    """
    vocab = logits.shape[1]
    wanted = [vocab if n == -1 else min(n, vocab) for n in num_logprobs]
    ids, logprobs, ranks = gather_logprobs(logits, token_ids, max(wanted))
    return LogprobsLists(
        [each[: 1 + n] for each, n in zip(ids.tolist(), wanted, strict=True)],
        [each[: 1 + n] for each, n in zip(logprobs.tolist(), wanted, strict=True)],
        ranks.tolist(),
    )


def spread(some: LogprobsLists, rows: Sequence[int], num_rows: int) -> LogprobsLists:
    """Put the positions of some rows where they belong among all; the others stay empty."""
    lists = LogprobsLists([[] for _ in range(num_rows)], [[] for _ in range(num_rows)], [0] * num_rows)
    for i, row in enumerate(rows):
        lists.logprob_token_ids[row] = some.logprob_token_ids[i]
        lists.logprobs[row] = some.logprobs[i]
        lists.sampled_token_ranks[row] = some.sampled_token_ranks[i]
    return lists

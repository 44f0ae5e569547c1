"""Log-probabilities of prompt tokens, gathered chunk by chunk while the prompt is computed."""

from collections.abc import Callable

import torch

from engine.outputs import LogprobsLists
from runner.cached_request import CachedRequestState
from runner.logprobs import logprobs_lists

_POSITIONS_AT_ONCE = 64  # logits of so many prompt positions are in memory together


def add_chunk(
    request: CachedRequestState, hidden_states: torch.Tensor, compute_logits: Callable[[torch.Tensor], torch.Tensor]
) -> LogprobsLists | None:
    """Take the request's chunk of this pass, hidden_states [T, hidden]; return all positions once the prompt is done.

    Position i is about prompt token i + 1. A prompt that is computed again from an earlier token, after a preemption,
    overwrites; what has been returned is not calculated again. Raises RuntimeError where a chunk is missing.
    """
    lists, start = request.prompt_logprobs, request.num_computed_tokens
    if lists is None:
        return None
    if start > len(lists.logprobs):
        raise RuntimeError(
            f"request {request.req_id} wants prompt_logprobs, so its prompt must be computed from the first token: "
            f"{start} are taken as computed and {len(lists.logprobs)} were"
        )
    for of_all in (lists.logprob_token_ids, lists.logprobs, lists.sampled_token_ranks):
        del of_all[start:]
    targets = request.prompt_token_ids[start + 1 : start + 1 + len(hidden_states)]
    for i in range(0, len(targets), _POSITIONS_AT_ONCE):
        slice_targets = targets[i : i + _POSITIONS_AT_ONCE]
        logits = compute_logits(hidden_states[i : i + len(slice_targets)])
        _append(lists, logits, slice_targets, request.sampling_params.prompt_logprobs or 0)
    if start + len(hidden_states) < len(request.prompt_token_ids):
        return None
    request.prompt_logprobs = None
    return lists


def _append(lists: LogprobsLists, logits: torch.Tensor, targets: list[int], wanted: int) -> None:
    more = logprobs_lists(logits, torch.tensor(targets, device=logits.device), [wanted] * len(targets))
    lists.logprob_token_ids += more.logprob_token_ids
    lists.logprobs += more.logprobs
    lists.sampled_token_ranks += more.sampled_token_ranks

"""Repetition, frequency and presence penalties on the logits of tokens that have come before."""

import torch


def apply_penalties(
    logits: torch.Tensor,
    rows: torch.Tensor,
    token_ids: torch.Tensor,
    counts: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
) -> None:
    """Change logits, float32 [R, V], in place at N entries. All others: [N]; no two entries name one place.

    rows, token_ids: int64. counts: how often the token stands in the output, 0 where it is in the prompt alone.
    repetition divides a positive logit and multiplies another; then frequency is taken off once for each time, and
    presence once.
    """
    where = rows, token_ids
    values = logits[where]
    values = torch.where(values > 0, values / repetition, values * repetition)
    logits[where] = values - frequency * counts - presence * (counts > 0)


def apply_penalties_reference(
    logits: torch.Tensor,
    prompts: list[list[int]],
    outputs: list[list[int]],
    presence: list[float],
    frequency: list[float],
    repetition: list[float],
) -> torch.Tensor:
    """Say what the penalties mean, row by row and token by token, from the token lists. Returns new logits."""
    result = logits.clone()
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        for token_id in set(prompt) | set(output):
            logit = float(logits[row, token_id])
            logit = logit / repetition[row] if logit > 0 else logit * repetition[row]
            logit -= frequency[row] * output.count(token_id)
            logit -= presence[row] if token_id in output else 0.0
            result[row, token_id] = logit
    return result

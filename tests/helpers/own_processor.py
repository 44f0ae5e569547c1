"""Logits processors as users write them."""

from typing import Any

import torch

from runner.logits_processors import BatchUpdate, LogitsProcessor, update_rows


class OnlyMultiplesOf(LogitsProcessor):
    """extra_args {"multiples_of": n}: no token but the multiples of n."""

    def __init__(self, config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.factors: dict[int, int] = {}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if (params.extra_args or {}).get("multiples_of", 1) < 1:
            raise ValueError("multiples_of must be at least 1")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        update_rows(self.factors, batch_update, lambda params, *_: (params.extra_args or {}).get("multiples_of"))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        ids = torch.arange(logits.shape[1])
        for row, factor in self.factors.items():
            logits[row, ids % factor != 0] = -torch.inf
        return logits


class OnlyTheTwoLikeliest(LogitsProcessor):
    """Leaves the highest logit where it is, so greedy requests need not have it run."""

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(logits < logits.topk(2).values[:, -1:], -torch.inf)

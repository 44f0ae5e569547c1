"""allowed_token_ids: nothing else may come."""

import torch

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from runner.logits_processors.interface import BatchUpdate, LogitsProcessor, update_rows
from runner.logits_processors.row_tokens import RowTokens


class AllowedTokenIdsLogitsProcessor(LogitsProcessor):
    def __init__(self, config: EngineConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._allowed: dict[int, list[int]] = {}
        self._flat = RowTokens.make([], device)
        self._rows = self._flat.rows

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if update_rows(self._allowed, batch_update, _allowed_token_ids):
            self._flat = RowTokens.make(self._allowed.items(), self._device)
            self._rows = self._flat.rows.unique()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._allowed:
            kept = logits[self._flat]
            logits[self._rows] = -torch.inf
            logits[self._flat] = kept
        return logits


def _allowed_token_ids(params: SamplingParams, prompt: list[int], output: list[int]) -> list[int] | None:
    return params.allowed_token_ids

"""logit_bias: a number to be added to a token's logit."""

import torch

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from runner.logits_processors.interface import BatchUpdate, LogitsProcessor, update_rows
from runner.logits_processors.row_tokens import RowTokens


class LogitBiasLogitsProcessor(LogitsProcessor):
    def __init__(self, config: EngineConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._biases: dict[int, dict[int, float]] = {}
        self._flat = RowTokens.make([], device)
        self._values = torch.zeros(0, device=device)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if update_rows(self._biases, batch_update, _bias):
            self._flat = RowTokens.make(self._biases.items(), self._device)
            values = [value for bias in self._biases.values() for value in bias.values()]
            self._values = torch.tensor(values, dtype=torch.float32, device=self._device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._biases:
            logits[self._flat] += self._values
        return logits


def _bias(params: SamplingParams, prompt: list[int], output: list[int]) -> dict[int, float] | None:
    return params.logit_bias or None

"""min_tokens: until then no token may come that would end the request."""

from typing import NamedTuple

import torch

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from runner.logits_processors.interface import BatchUpdate, LogitsProcessor, update_rows
from runner.logits_processors.row_tokens import RowTokens


class _Wait(NamedTuple):
    min_tokens: int
    stop_token_ids: set[int]
    output_token_ids: list[int]

    @property
    def over(self) -> bool:
        return len(self.output_token_ids) >= self.min_tokens


class MinTokensLogitsProcessor(LogitsProcessor):
    def __init__(self, config: EngineConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._waits: dict[int, _Wait] = {}
        self._flat = RowTokens.make([], device)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        changed = update_rows(self._waits, batch_update, _wait)
        over = [row for row, wait in self._waits.items() if wait.over]
        for row in over:
            del self._waits[row]
        if changed or over:
            ids_of_rows = ((row, wait.stop_token_ids) for row, wait in self._waits.items())
            self._flat = RowTokens.make(ids_of_rows, self._device)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._waits:
            logits[self._flat] = -torch.inf
        return logits


def _wait(params: SamplingParams, prompt: list[int], output: list[int]) -> _Wait | None:
    ends = set(params.stop_token_ids)
    if params.eos_token_id is not None:
        ends.add(params.eos_token_id)
    wait = _Wait(params.min_tokens, ends, output)
    return None if wait.over or not ends else wait

"""bad_words: the last token of a forbidden sequence may not come when the others have just been put out."""

from typing import NamedTuple

import torch

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from runner.logits_processors.interface import BatchUpdate, LogitsProcessor, update_rows
from runner.logits_processors.row_tokens import RowTokens


class _Watch(NamedTuple):
    sequences: list[list[int]]
    output_token_ids: list[int]

    def forbidden(self) -> set[int]:
        """Return the ids that would complete a sequence now. The prompt doesn't count."""
        output = self.output_token_ids
        return {
            sequence[-1]
            for sequence in self.sequences
            if len(sequence) <= len(output) + 1 and output[len(output) + 1 - len(sequence) :] == sequence[:-1]
        }


class BadWordsLogitsProcessor(LogitsProcessor):
    def __init__(self, config: EngineConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._watches: dict[int, _Watch] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        update_rows(self._watches, batch_update, _watch)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._watches:
            forbidden = ((row, watch.forbidden()) for row, watch in self._watches.items())
            logits[RowTokens.make(forbidden, self._device)] = -torch.inf
        return logits


def _watch(params: SamplingParams, prompt: list[int], output: list[int]) -> _Watch | None:
    return _Watch(params.bad_words_token_ids, output) if params.bad_words_token_ids else None

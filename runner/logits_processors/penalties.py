"""presence_penalty, frequency_penalty and repetition_penalty: what has been said is worth less, or more."""

import numpy as np
import torch

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from kernels.penalties import apply_penalties
from runner.logits_processors.interface import BatchUpdate, LogitsProcessor, update_rows


class TokenCounts:
    """How often each token stands in one request's output, kept up as it grows.

    Only tokens that occur have an entry: a row of counts over the vocabulary would be nearly all zeros. Prompt tokens
    have one, of count 0, where the request has a repetition penalty.
    """

    def __init__(self, params: SamplingParams, prompt_token_ids: list[int], output_token_ids: list[int]) -> None:
        self.penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
        self._output_token_ids = output_token_ids
        self._num_counted = 0
        ids = list(dict.fromkeys(prompt_token_ids)) if params.repetition_penalty != 1 else []
        self._entry = {token_id: i for i, token_id in enumerate(ids)}
        self._ids = np.array(ids, dtype=np.int64)
        self._counts = np.zeros(len(ids), dtype=np.int32)

    def current(self) -> tuple[np.ndarray, np.ndarray]:
        """Count what is new; return the token ids, int64 [N], and their counts, int32 [N]."""
        for token_id in self._output_token_ids[self._num_counted :]:
            entry = self._entry.setdefault(token_id, len(self._entry))
            if entry == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros(64 + entry, dtype=np.int64)])
                self._counts = np.concatenate([self._counts, np.zeros(64 + entry, dtype=np.int32)])
            self._ids[entry] = token_id
            self._counts[entry] += 1
        self._num_counted = len(self._output_token_ids)
        return self._ids[: len(self._entry)], self._counts[: len(self._entry)]


class PenaltiesLogitsProcessor(LogitsProcessor):
    def __init__(self, config: EngineConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._counts: dict[int, TokenCounts] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        update_rows(self._counts, batch_update, _token_counts)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._counts:
            apply_penalties(logits, *map(self._to_device, self._entries()))
        return logits

    def _entries(self) -> tuple[np.ndarray, ...]:
        """Return the rows, token ids and counts of all entries, and the three penalties of each."""
        ids, counts = zip(*(each.current() for each in self._counts.values()), strict=True)
        lengths = [len(of_row) for of_row in ids]
        rows = np.repeat(np.fromiter(self._counts, dtype=np.int64), lengths)
        penalties = np.array([each.penalties for each in self._counts.values()], dtype=np.float32)
        return rows, np.concatenate(ids), np.concatenate(counts), *np.repeat(penalties, lengths, axis=0).T

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _token_counts(params: SamplingParams, prompt: list[int], output: list[int]) -> TokenCounts | None:
    return TokenCounts(params, prompt, output) if params.has_penalties else None

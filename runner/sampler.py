"""Turns logits into token ids."""

import torch

from engine.outputs import LogprobsLists
from kernels.sampling import SMALLEST_TEMPERATURE, greedy_sample, random_sample
from runner.logits_processors import LogitsProcessors
from runner.logprobs import logprobs_lists, spread
from runner.sampling_metadata import SamplingMetadata


class Sampler:
    """Samples one token a row. Chance comes from a row's seed and position alone."""

    def __init__(self, logits_processors: LogitsProcessors) -> None:
        self.logits_processors = logits_processors

    def __call__(
        self, logits: torch.Tensor, metadata: SamplingMetadata, positions: torch.Tensor
    ) -> tuple[torch.Tensor, LogprobsLists | None]:
        """Return int64 [R] for logits float32 [R, V], which may be changed in place, and the wanted log-probabilities.

        positions: int64 [R], where each sampled token will stand in its request. The order: log-probabilities, then
        masks, biases and penalties, then temperature, min_p, top_k and top_p.
        """
        raw = logits[list(metadata.num_logprobs)] if metadata.num_logprobs else None
        for processor in self.logits_processors.non_argmax_invariant:
            logits = processor.apply(logits)
        if metadata.all_greedy:
            sampled = greedy_sample(logits)
        else:
            sampled = self._random_sample(logits, metadata, positions)
        return sampled, self._gather(raw, sampled, metadata)

    def _random_sample(self, logits: torch.Tensor, metadata: SamplingMetadata, positions: torch.Tensor) -> torch.Tensor:
        temperature = metadata.temperature
        if self.logits_processors.argmax_invariant:  # the user's own, which come after the temperature
            random = temperature >= SMALLEST_TEMPERATURE
            logits = logits / temperature.where(random, 1.0)[:, None]
            temperature = random.float()
            for processor in self.logits_processors.argmax_invariant:
                logits = processor.apply(logits)
        return random_sample(
            logits, temperature, metadata.top_k, metadata.top_p, metadata.min_p, metadata.seeds, positions
        )

    def _gather(
        self, raw: torch.Tensor | None, sampled: torch.Tensor, metadata: SamplingMetadata
    ) -> LogprobsLists | None:
        if raw is None:
            return None
        rows = list(metadata.num_logprobs)
        some = logprobs_lists(raw, sampled[rows], list(metadata.num_logprobs.values()))
        return spread(some, rows, len(sampled))

    def warm_up(self, logits: torch.Tensor) -> None:
        """Sample greedily and at random once, for logits float32 [R, V]."""
        rows, device = logits.shape[0], logits.device
        ones, zeros = torch.ones(rows, device=device), torch.zeros(rows, device=device)
        whole = torch.zeros(rows, dtype=torch.int64, device=device)
        greedy_sample(logits)
        random_sample(logits, ones, whole, ones, zeros, whole, whole)

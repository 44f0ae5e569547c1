"""Turns logits into token ids."""

import numpy as np
import torch

from kernels.sampling import greedy_sample, random_sample
from runner.sampling_metadata import SamplingMetadata


class Sampler:
    """Samples one token a row. Chance comes from a row's seed and position alone."""

    def __call__(
        self, logits: torch.Tensor, metadata: SamplingMetadata, num_output_tokens: np.ndarray, positions: torch.Tensor
    ) -> torch.Tensor:
        """Return int64 [R] for logits float32 [R, V], which may be changed in place.

        num_output_tokens is int32 [R]; positions, int64 [R], is where each sampled token will stand in its request.
        """
        for row, (min_tokens, ids) in metadata.min_tokens.items():
            if num_output_tokens[row] < min_tokens:
                logits[row, ids] = -torch.inf
        if metadata.all_greedy:
            return greedy_sample(logits)
        return random_sample(
            logits, metadata.temperature, metadata.top_k, metadata.top_p, metadata.min_p, metadata.seeds, positions
        )

    def warm_up(self, logits: torch.Tensor) -> None:
        """Sample greedily and at random once, for logits float32 [R, V]."""
        rows, device = logits.shape[0], logits.device
        ones, zeros = torch.ones(rows, device=device), torch.zeros(rows, device=device)
        whole = torch.zeros(rows, dtype=torch.int64, device=device)
        for all_greedy in (True, False):
            metadata = SamplingMetadata(all_greedy, ones, ones, whole.int(), zeros, whole, {})
            self(logits, metadata, np.zeros(rows, dtype=np.int32), whole)

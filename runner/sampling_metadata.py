"""What sampling needs to know of the batch, built anew only when the batch has changed."""

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class SamplingMetadata:
    """Parameters of R rows, on the device; rows are in batch order. What changes logits is in LogitsProcessors."""

    all_greedy: bool
    temperature: torch.Tensor  # float32 [R]
    top_p: torch.Tensor  # float32 [R]
    top_k: torch.Tensor  # int32 [R], 0 for off
    min_p: torch.Tensor  # float32 [R]
    seeds: torch.Tensor  # int64 [R]
    num_logprobs: dict[int, int]  # of the rows that want log-probabilities: how many beside the sampled token's

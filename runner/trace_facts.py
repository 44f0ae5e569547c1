"""The facts that the runner's phases record: copies of the real arrays, under their own names."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from runner.block_table import BlockTable
from runner.forward_context import AttentionMetadata
from runner.grammar import MaskedRows

if TYPE_CHECKING:
    from runner.gpu_model_runner import GPUModelRunner


def refresh_metadata(runner: "GPUModelRunner", rebuilt: bool) -> dict[str, Any]:
    batch = runner.input_batch
    return {
        "req_ids": list(batch.req_ids),
        "num_reqs": batch.num_reqs,
        "cached_requests": list(runner.requests),
        "rebuilt": rebuilt,
    }


def prepare_inputs(
    runner: "GPUModelRunner",
    counts: np.ndarray,
    req_indices: np.ndarray,
    token_indices: np.ndarray,
    logits_indices: torch.Tensor,
) -> dict[str, Any]:
    num_reqs, total = len(counts), len(req_indices)
    return {
        "num_scheduled_tokens": counts.tolist(),
        "req_indices": req_indices.tolist(),
        "query_pos": runner.query_pos.np[:total].tolist(),
        "positions": runner.positions.np[:total].tolist(),
        "token_indices": token_indices.tolist(),
        "row_width": runner.input_batch.token_ids_cpu.shape[1],
        "input_ids": runner.input_ids.np[:total].tolist(),
        "query_start_loc": runner.query_start_loc.np[: num_reqs + 1].tolist(),
        "query_start_loc_padding": runner.query_start_loc.np[num_reqs + 1 :].tolist(),
        "seq_lens": runner.seq_lens.np[:num_reqs].tolist(),
        "slot_mapping": runner.input_batch.block_table.slot_mapping.gpu[:total].tolist(),
        "logits_indices": logits_indices.tolist(),
        "discard_request_mask": runner.discard_request_mask.np[:num_reqs].tolist(),
    }


def attention_metadata(metadata: AttentionMetadata, block_table: BlockTable) -> dict[str, Any]:
    return {
        "num_actual_tokens": metadata.num_actual_tokens,
        "max_query_len": metadata.max_query_len,
        "max_seq_len": metadata.max_seq_len,
        "block_size": block_table.block_size,
    }


def forward(model: Any, device: torch.device, num_tokens: int) -> dict[str, Any]:
    dtype = str(model.dtype).removeprefix("torch.")
    return {"num_tokens": num_tokens, "dtype": dtype, "device": str(device), "path": model.path(num_tokens)}


def park_logits(runner: "GPUModelRunner", logits: torch.Tensor) -> dict[str, Any]:
    return {"parked": True, "logits_shape": list(logits.shape), "req_ids": list(runner.input_batch.req_ids)}


def sample_tokens(
    runner: "GPUModelRunner", sampled: np.ndarray, masked: MaskedRows | None, unmasked: torch.Tensor | None
) -> dict[str, Any]:
    masks = {} if masked is None or unmasked is None else masked.facts(unmasked)
    return {
        "sampled": sampled.tolist(),
        "all_greedy": runner.input_batch.sampling_metadata.all_greedy,
        "masked_rows": [],
        **masks,
    }

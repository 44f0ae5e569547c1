"""The facts that the runner's phases record: copies of the real arrays, under their own names.

A function named like a phase describes it, perhaps some passes later: its arguments are what nobody changes any more.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from runner.cached_request import CachedRequestState
from runner.forward_context import AttentionMetadata
from tracer.recorder import Fields

if TYPE_CHECKING:
    from runner.gpu_model_runner import GPUModelRunner


def synchronize_input_prep(fence: bool) -> Fields:
    return {"facts": {"fence": fence}}


def remove_finished(finished_req_ids: set[str]) -> Fields:
    return {"facts": {"finished_req_ids": sorted(finished_req_ids)}}


def remove_unscheduled(unscheduled_req_ids: list[str]) -> Fields:
    return {"facts": {"unscheduled_req_ids": unscheduled_req_ids}}


def update_cached(rows: list[int], absent: list[CachedRequestState]) -> Fields:
    return {"facts": {"rows": rows, "absent": [request.req_id for request in absent]}}


def add_requests(requests: list[CachedRequestState], rows: list[int]) -> Fields:
    return {"facts": {"req_ids": [request.req_id for request in requests], "rows": rows}}


def condense(moves: list[tuple[int, int]]) -> Fields:
    return {"facts": {"moved": [[src, dst, "UNIDIRECTIONAL"] for src, dst in moves]}}


def reorder(swaps: list[tuple[int, int]]) -> Fields:
    return {"facts": {"moved": [[a, b, "SWAP"] for a, b in swaps]}}


def refresh_metadata(req_ids: list[str], cached_requests: list[str], rebuilt: bool) -> Fields:
    facts = {"req_ids": req_ids, "num_reqs": len(req_ids), "cached_requests": cached_requests, "rebuilt": rebuilt}
    return {"facts": facts}


def prepared(runner: "GPUModelRunner", num_reqs: int, total: int) -> tuple[Any, ...]:
    """Return the last arguments of prepare_inputs: copies of buffers, which the next pass overwrites."""
    return (
        runner.input_batch.token_ids_cpu.shape[1],
        runner.query_pos.np[:total].copy(),
        runner.positions.np[:total].copy(),
        runner.input_ids.np[:total].copy(),
        runner.query_start_loc.np.copy(),
        runner.seq_lens.np[:num_reqs].copy(),
        runner.input_batch.block_table.slot_mapping.copy_from_gpu(total),
        runner.discard_request_mask.np[:num_reqs].copy(),
    )


def prepare_inputs(
    counts: np.ndarray,
    req_indices: np.ndarray,
    token_indices: np.ndarray,
    logits_indices: torch.Tensor,
    row_width: int,
    query_pos: np.ndarray,
    positions: np.ndarray,
    input_ids: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    slot_mapping: np.ndarray,
    discard_request_mask: np.ndarray,
) -> Fields:
    num_reqs = len(counts)
    facts = {
        "num_scheduled_tokens": counts.tolist(),
        "req_indices": req_indices.tolist(),
        "query_pos": query_pos.tolist(),
        "positions": positions.tolist(),
        "token_indices": token_indices.tolist(),
        "row_width": row_width,
        "input_ids": input_ids.tolist(),
        "query_start_loc": query_start_loc[: num_reqs + 1].tolist(),
        "query_start_loc_padding": query_start_loc[num_reqs + 1 :].tolist(),
        "seq_lens": seq_lens.tolist(),
        "slot_mapping": slot_mapping.tolist(),
        "logits_indices": logits_indices.tolist(),
        "discard_request_mask": discard_request_mask.tolist(),
    }
    return {"facts": facts}


def attention_metadata(metadata: AttentionMetadata, block_size: int) -> Fields:
    facts = {
        "num_actual_tokens": metadata.num_actual_tokens,
        "max_query_len": metadata.max_query_len,
        "max_seq_len": metadata.max_seq_len,
        "block_size": block_size,
    }
    return {"facts": facts}


def forward(model: Any, device: torch.device, num_tokens: int) -> Fields:
    dtype = str(model.dtype).removeprefix("torch.")
    facts = {"num_tokens": num_tokens, "dtype": dtype, "device": str(device), "path": model.path(num_tokens)}
    return {"facts": facts}


def park_logits(logits_shape: torch.Size, req_ids: list[str]) -> Fields:
    return {"facts": {"parked": True, "logits_shape": list(logits_shape), "req_ids": req_ids}}


def sample_tokens(sampled: np.ndarray, all_greedy: bool, masks: dict[str, Any]) -> Fields:
    return {"facts": {"sampled": sampled.tolist(), "all_greedy": all_greedy, "masked_rows": [], **masks}}


def bookkeeping(sampled_token_ids: list[list[int]]) -> Fields:
    return {"facts": {"sampled_token_ids": sampled_token_ids}}

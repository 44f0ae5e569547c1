"""The facts of each phase, under the field names of vLLM and of tests/vectors/README.md.

A function named like a phase makes its facts, perhaps some passes later and in another process: so its arguments are
arrays and plain values, and nobody changes them any more. A set may come as a list.
"""

from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from itertools import islice
from typing import Any

import numpy as np

from tracer.phases import Phase

Facts = dict[str, Any]
BlockIds = tuple[list[int], ...]


def of(phase: str, args: Sequence[Any]) -> Facts:
    """Return the facts that a phase's arguments make; none where it has no arguments."""
    return _MAKERS[phase](*args) if args else {}


@cache
def place(phase: str, argument: str) -> int:
    """Return where the named argument stands among a phase's."""
    return list(signature(_MAKERS[phase]).parameters).index(argument)


def output(phase: str, args: Sequence[Any]) -> list[tuple[str, int, list[int]]]:
    """Return a phase's PhaseRecord.output."""
    if phase != Phase.UPDATE_FROM_OUTPUT or not args:
        return []
    req_ids, starts, counts, token_ids, _ = args
    return list(zip(req_ids, starts, _split(token_ids, counts), strict=True))


# --- the engine core's -----------------------------------------------------------------------------------------------


def schedule(
    scheduled_new_reqs: list[dict[str, Any]],
    req_ids: list[str],
    resumed_req_ids: set[str],
    new_block_ids: list[BlockIds | None],
    num_computed_tokens: list[int],
    num_output_tokens: list[int],
    num_scheduled_tokens: dict[str, int],
    total_num_scheduled_tokens: int,
    scheduled_spec_decode_tokens: dict[str, list[int]],
    finished_req_ids: set[str],
    preempted_req_ids: set[str],
    waiting: list[str],
    running: list[str],
    why: dict[str, Any],
    num_free_blocks: int,
    num_gpu_blocks: int,
    evicted: list[int],
    hits: dict[str, list[int]],
    num_cached_blocks: int,
) -> Facts:
    """Return the decision, the queues after it, why each live request is or isn't in the pass, and the KV blocks.

    why: of the requests that aren't.
    """
    scheduled = {req_id: ["scheduled", {"num_new_tokens": count}] for req_id, count in num_scheduled_tokens.items()}
    return {
        "scheduled_new_reqs": scheduled_new_reqs,
        "scheduled_cached_reqs": {
            "req_ids": req_ids,
            "resumed_req_ids": sorted(resumed_req_ids),
            "new_block_ids": new_block_ids,
            "num_computed_tokens": num_computed_tokens,
            "num_output_tokens": num_output_tokens,
        },
        "num_scheduled_tokens": num_scheduled_tokens,
        "total_num_scheduled_tokens": total_num_scheduled_tokens,
        "scheduled_spec_decode_tokens": scheduled_spec_decode_tokens,
        "finished_req_ids": sorted(finished_req_ids),
        "preempted_req_ids": sorted(preempted_req_ids),
        "waiting": waiting,
        "running": running,
        "why": scheduled | why,
        "num_free_blocks": num_free_blocks,
        "num_gpu_blocks": num_gpu_blocks,
        "evicted": evicted,
        "hits": hits,
        "num_cached_blocks": num_cached_blocks,
    }


def execute_model(executor: str, returned: str) -> Facts:
    """Return how the pass was launched and what there was when the call came back."""
    return {"non_block": True, "executor": executor, "returned": returned}


def grammar_bitmask(structured_output_request_ids: list[str], bitmask: bytes) -> Facts:
    """Return the requests that have a mask, in the scheduler's order, and how many tokens each mask allows."""
    num_allowed: list[int] = []
    if structured_output_request_ids:
        words = np.frombuffer(bitmask, dtype=np.uint32).reshape(len(structured_output_request_ids), -1)
        num_allowed = np.bitwise_count(words).sum(axis=1, dtype=np.int64).tolist()
    return {
        "structured_output_request_ids": structured_output_request_ids,
        "num_allowed_tokens": dict(zip(structured_output_request_ids, num_allowed, strict=True)),
    }


def process_aborts(aborted: list[str]) -> Facts:
    return {"aborted": aborted}


def update_from_output(
    req_ids: list[str], starts: list[int], counts: list[int], token_ids: np.ndarray, finished: dict[str, str]
) -> Facts:
    """counts: how many of `token_ids` each request got; starts: where they begin in its output."""
    return {"new_token_ids": dict(zip(req_ids, _split(token_ids, counts), strict=True)), "finished": finished}


# --- the runner's: copies of the real arrays -------------------------------------------------------------------------


def synchronize_input_prep(fence: bool) -> Facts:
    return {"fence": fence}


def remove_finished(finished_req_ids: set[str]) -> Facts:
    return {"finished_req_ids": sorted(finished_req_ids)}


def remove_unscheduled(unscheduled_req_ids: list[str]) -> Facts:
    return {"unscheduled_req_ids": unscheduled_req_ids}


def update_cached(rows: list[int], absent: list[str]) -> Facts:
    return {"rows": rows, "absent": absent}


def add_requests(req_ids: list[str], rows: list[int]) -> Facts:
    return {"req_ids": req_ids, "rows": rows}


def condense(moves: list[tuple[int, int]]) -> Facts:
    return {"moved": [[src, dst, "UNIDIRECTIONAL"] for src, dst in moves]}


def reorder(swaps: list[tuple[int, int]]) -> Facts:
    return {"moved": [[a, b, "SWAP"] for a, b in swaps]}


def refresh_metadata(req_ids: list[str], cached_requests: list[str], rebuilt: bool) -> Facts:
    return {"req_ids": req_ids, "num_reqs": len(req_ids), "cached_requests": cached_requests, "rebuilt": rebuilt}


def prepare_inputs(
    counts: np.ndarray,
    req_indices: np.ndarray,
    token_indices: np.ndarray,
    logits_indices: np.ndarray,
    row_width: int,
    query_pos: np.ndarray,
    positions: np.ndarray,
    input_ids: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    slot_mapping: np.ndarray,
    discard_request_mask: np.ndarray,
) -> Facts:
    num_reqs = len(counts)
    return {
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


def attention_metadata(num_actual_tokens: int, max_query_len: int, max_seq_len: int, block_size: int) -> Facts:
    return {
        "num_actual_tokens": num_actual_tokens,
        "max_query_len": max_query_len,
        "max_seq_len": max_seq_len,
        "block_size": block_size,
    }


def forward(num_tokens: int, dtype: str, device: str, path: str) -> Facts:
    return {"num_tokens": num_tokens, "dtype": dtype, "device": device, "path": path}


def park_logits(logits_shape: list[int], req_ids: list[str]) -> Facts:
    return {"parked": True, "logits_shape": logits_shape, "req_ids": req_ids}


def sample_tokens(sampled: np.ndarray, all_greedy: bool, masks: dict[str, Any]) -> Facts:
    return {"sampled": sampled.tolist(), "all_greedy": all_greedy, "masked_rows": [], **masks}


def bookkeeping(num_reqs: int, kept: np.ndarray, tokens: np.ndarray) -> Facts:
    """kept: the rows whose samples count. tokens: these."""
    sampled_token_ids: list[list[int]] = [[] for _ in range(num_reqs)]
    for row, token in zip(kept.tolist(), tokens.tolist(), strict=True):
        sampled_token_ids[row].append(token)
    return {"sampled_token_ids": sampled_token_ids}


def _split(token_ids: np.ndarray, counts: list[int]) -> list[list[int]]:
    """Return each request's tokens."""
    each = iter(token_ids.tolist())
    return [list(islice(each, count)) for count in counts]


_MAKERS: dict[str, Callable[..., Facts]] = {phase: globals()[phase] for phase in Phase}

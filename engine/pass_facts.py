"""What the engine core's own phases tell the trace, under the field names of tests/vectors/README.md.

A function named like a phase describes it, perhaps some passes later: its arguments are what nobody changes any more.
"""

from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from engine.messages import EngineCoreOutputs
from engine.outputs import GrammarOutput, ModelRunnerOutput, NewRequestData, SchedulerOutput
from engine.pass_plan import Why
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from engine.why import explain
from tracer.recorder import Fields

FAILED = RequestStatus.FINISHED_ERROR  # these have got no token
RequestChange = tuple[str, dict[str, Any]]

# --- descriptions: made later, of what nobody changes any more -------------------------------------------------------


def schedule(output: SchedulerOutput, seen: "Seen") -> Fields:
    """Return the decision, the queues after it, why each live request is or isn't in the pass, and the KV blocks."""
    return {"facts": _decision(output, seen), "requests": seen.requests, "blocks": seen.blocks}


def execute_model(executor: str, future: Future[ModelRunnerOutput | None] | None) -> Fields:
    """Return how the pass was launched and what there was when the call came back. future: None if not done then."""
    if future is None:
        returned = "pending"
    else:
        result = future.exception() or future.result()
        returned = "None" if result is None else type(result).__name__
    return {"facts": {"non_block": True, "executor": executor, "returned": returned}}


def grammar_bitmask(grammar_output: GrammarOutput | None) -> Fields:
    """Return the requests that have a mask, in the scheduler's order, and how many tokens each mask allows."""
    if grammar_output is None:
        return {"facts": {"structured_output_request_ids": [], "num_allowed_tokens": {}}}
    ids = grammar_output.structured_output_request_ids
    words = np.frombuffer(grammar_output.grammar_bitmask, dtype=np.uint32).reshape(len(ids), -1)
    num_allowed = np.bitwise_count(words).sum(axis=1, dtype=np.int64).tolist()
    return {
        "facts": {
            "structured_output_request_ids": ids,
            "num_allowed_tokens": dict(zip(ids, num_allowed, strict=True)),
        }
    }


def process_aborts(aborted: list[str], blocks: list[tuple[int, int, int]]) -> Fields:
    return {"facts": {"aborted": aborted}, "requests": aborted_changes(aborted), "blocks": blocks}


def update_from_output(
    scheduled: SchedulerOutput,
    outputs: dict[int, EngineCoreOutputs],
    stopped: list[Request],
    blocks: list[tuple[int, int, int]],
) -> Fields:
    """Return each request's new tokens, with where in its output they begin, and who has finished and why."""
    each = [output for client in outputs.values() for output in client.outputs]
    cached = scheduled.scheduled_cached_reqs
    starts = dict(zip(cached.req_ids, cached.num_output_tokens, strict=True))
    starts |= {request.request_id: request.num_output_tokens for request in stopped if request.status is FAILED}
    return {
        "facts": {
            "new_token_ids": {output.request_id: output.new_token_ids for output in each},
            "finished": {output.request_id: output.finish_reason for output in each if output.finish_reason},
        },
        "requests": [_finished_change(request) for request in stopped],
        "output": [(output.request_id, starts.get(output.request_id, 0), output.new_token_ids) for output in each],
        "blocks": blocks,
    }


# --- what they are made of: taken at once -----------------------------------------------------------------------------


class Seen(NamedTuple):
    """What the scheduler was like after it had decided a pass."""

    waiting: list[Request]
    running: list[Request]
    why: dict[str, Why]
    pool: dict[str, Any]  # facts of the KV blocks
    requests: list[RequestChange]
    blocks: list[tuple[int, int, int]]


def seen(scheduler: Scheduler) -> Seen:
    """Copy from the scheduler what the next pass changes."""
    blocks = block_changes(scheduler)
    requests = _grown(scheduler) if scheduler.plan.quiet else _status_changes(scheduler) + _grown(scheduler)
    return Seen(
        list(scheduler.waiting), list(scheduler.running), explain(scheduler), _pool_facts(scheduler), requests, blocks
    )  # fmt: skip


def block_changes(scheduler: Scheduler) -> list[tuple[int, int, int]]:
    """Return the KV blocks that changed since the last call, as PhaseRecord.blocks holds them."""
    journal = scheduler.kv_cache_manager.block_pool.journal
    return journal.take() if journal else []


def added_change(request: Request, arrival_pass: int) -> RequestChange:
    return request.request_id, {
        "status": request.status.name,
        "prompt_token_ids": request.prompt_token_ids,
        "num_prompt_tokens": request.num_prompt_tokens,
        "max_tokens": request.max_tokens,
        "temperature": request.sampling_params.temperature,
        "priority": request.priority,
        "arrival_pass": arrival_pass,
    }


def preempted_change(request: Request) -> RequestChange:
    return request.request_id, {
        "status": request.status.name,
        "num_preemptions": request.num_preemptions,
        "block_ids": [],
    }


def aborted_changes(request_ids: list[str]) -> list[RequestChange]:
    status = RequestStatus.FINISHED_ABORTED
    ended: dict[str, Any] = {"status": status.name, "finish_reason": status.finish_reason, "block_ids": []}
    return [(request_id, dict(ended)) for request_id in request_ids]


def _finished_change(request: Request) -> RequestChange:
    structured = request.structured_output_request
    failed = request.status is RequestStatus.FINISHED_ERROR and structured is not None
    return request.request_id, {
        **({"error": structured.error} if failed and structured else {}),
        "status": request.status.name,
        "finish_reason": request.status.finish_reason,
        "stop_reason": request.stop_reason,
        "block_ids": [],
    }


def _decision(output: SchedulerOutput, seen: Seen) -> dict[str, Any]:
    cached = output.scheduled_cached_reqs
    return {
        "scheduled_new_reqs": [_new_request(new) for new in output.scheduled_new_reqs],
        "scheduled_cached_reqs": {
            "req_ids": cached.req_ids,
            "resumed_req_ids": sorted(cached.resumed_req_ids),
            "new_block_ids": cached.new_block_ids,
            "num_computed_tokens": cached.num_computed_tokens,
            "num_output_tokens": cached.num_output_tokens,
        },
        "num_scheduled_tokens": output.num_scheduled_tokens,
        "total_num_scheduled_tokens": output.total_num_scheduled_tokens,
        "scheduled_spec_decode_tokens": output.scheduled_spec_decode_tokens,
        "finished_req_ids": sorted(output.finished_req_ids),
        "preempted_req_ids": sorted(output.preempted_req_ids),
        "waiting": [request.request_id for request in seen.waiting],
        "running": [request.request_id for request in seen.running],
        "why": seen.why,
        **seen.pool,
    }


def _status_changes(scheduler: Scheduler) -> list[RequestChange]:
    plan = scheduler.plan
    block_ids = scheduler.kv_cache_manager.get_block_ids
    started = [
        (
            request.request_id,
            {
                "status": "RUNNING",
                "num_cached_tokens": request.num_cached_tokens,
                "block_ids": block_ids(request.request_id),
            },
        )
        for request in plan.new + plan.resumed
    ]
    ready = [(request.request_id, {"status": "WAITING"}) for request in plan.grammar_ready]
    return ready + started + [preempted_change(request) for request in plan.preempted]


def _grown(scheduler: Scheduler) -> list[RequestChange]:
    """Return the block ids of running requests that got more of them in this pass."""
    block_ids = scheduler.kv_cache_manager.get_block_ids
    return [(request_id, {"block_ids": block_ids(request_id)}) for request_id in scheduler.plan.new_block_ids]


def _pool_facts(scheduler: Scheduler) -> dict[str, Any]:
    """Return how many blocks are free, which cached ones lost their contents to a new holder, and which were hit."""
    manager, plan = scheduler.kv_cache_manager, scheduler.plan
    pool = manager.block_pool
    hits = {}
    for request in plan.new + plan.resumed:
        num_scheduled = plan.num_scheduled_tokens[request.request_id]
        num_hit = (request.num_computed_tokens - num_scheduled) // manager.block_size
        if num_hit:
            hits[request.request_id] = manager.get_block_ids(request.request_id)[:num_hit]
    return {
        "num_free_blocks": pool.num_free_blocks,
        "num_gpu_blocks": pool.num_gpu_blocks,
        "evicted": pool.journal.take_evicted() if pool.journal else [],
        "hits": hits,
        "num_cached_blocks": pool.journal.num_cached_blocks if pool.journal else 0,
    }


def _new_request(new: NewRequestData) -> dict[str, Any]:
    return {
        "req_id": new.req_id,
        "num_prompt_tokens": len(new.prompt_token_ids),
        "block_ids": new.block_ids,
        "num_computed_tokens": new.num_computed_tokens,
    }

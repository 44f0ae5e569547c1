"""What the engine core's own phases tell the trace: the arguments of tracer.facts, and the changes of requests."""

from concurrent.futures import Future
from itertools import chain
from typing import Any

import numpy as np

from engine.messages import EngineCoreOutputs
from engine.outputs import GrammarOutput, ModelRunnerOutput, NewRequestData, SchedulerOutput
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from engine.why import explain
from tracer.recorder import RequestChange

FAILED = RequestStatus.FINISHED_ERROR  # these have got no token


def schedule(output: SchedulerOutput, scheduler: Scheduler) -> tuple[Any, ...]:
    """Return the arguments of tracer.facts.schedule, with copies from the scheduler of what the next pass changes."""
    cached = output.scheduled_cached_reqs
    return (
        [_new_request(new) for new in output.scheduled_new_reqs],
        cached.req_ids,
        cached.resumed_req_ids,
        cached.new_block_ids,
        cached.num_computed_tokens,
        cached.num_output_tokens,
        output.num_scheduled_tokens,
        output.total_num_scheduled_tokens,
        output.scheduled_spec_decode_tokens,
        output.finished_req_ids,
        output.preempted_req_ids,
        [request.request_id for request in scheduler.waiting],
        [request.request_id for request in scheduler.running],
        explain(scheduler),
        *_pool_facts(scheduler),
    )


def execute_model(executor: str, future: Future[ModelRunnerOutput | None]) -> tuple[str, str]:
    """Return the arguments of tracer.facts.execute_model, of the moment when the call has come back."""
    if not future.done():
        return executor, "pending"
    try:
        result: Any = future.result()
    except Exception as error:  # whoever asks for the result gets it
        result = error
    return executor, "None" if result is None else type(result).__name__


def grammar_bitmask(grammar_output: GrammarOutput | None) -> tuple[list[str], bytes]:
    """Return the arguments of tracer.facts.grammar_bitmask."""
    if grammar_output is None:
        return [], b""
    return grammar_output.structured_output_request_ids, grammar_output.grammar_bitmask


def update_from_output(
    scheduled: SchedulerOutput, outputs: dict[int, EngineCoreOutputs], stopped: list[Request]
) -> tuple[Any, ...]:
    """Return the arguments of tracer.facts.update_from_output."""
    each = [output for client in outputs.values() for output in client.outputs]
    req_ids, new_token_ids = [output.request_id for output in each], [output.new_token_ids for output in each]
    token_ids = [*chain.from_iterable(new_token_ids)]
    cached = scheduled.scheduled_cached_reqs
    starts, finished = cached.num_output_tokens, {}
    counts = [1] * len(each)  # only a request that failed gets none
    if stopped or len(token_ids) > len(each) or req_ids != cached.req_ids:
        counts = [*map(len, new_token_ids)]
        known = dict(zip(cached.req_ids, starts, strict=True))
        known |= {request.request_id: request.num_output_tokens for request in stopped if request.status is FAILED}
        starts = [known.get(req_id, 0) for req_id in req_ids]
        finished = {output.request_id: output.finish_reason for output in each if output.finish_reason}
    return req_ids, starts, counts, np.array(token_ids, np.int32), finished


def request_changes(scheduler: Scheduler) -> list[RequestChange]:
    """Return what the pass that was just decided changes in requests: their states and their blocks."""
    grown = _grown(scheduler)
    return grown if scheduler.plan.quiet else _status_changes(scheduler) + grown


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


def finished_change(request: Request) -> RequestChange:
    structured = request.structured_output_request
    failed = request.status is RequestStatus.FINISHED_ERROR and structured is not None
    return request.request_id, {
        **({"error": structured.error} if failed and structured else {}),
        "status": request.status.name,
        "finish_reason": request.status.finish_reason,
        "stop_reason": request.stop_reason,
        "block_ids": [],
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


def _pool_facts(scheduler: Scheduler) -> tuple[Any, ...]:
    """Return how many blocks are free, and there; which cached ones lost their contents to a new holder; the hits."""
    manager, plan = scheduler.kv_cache_manager, scheduler.plan
    pool = manager.block_pool
    hits = {}
    for request in plan.new + plan.resumed:
        num_scheduled = plan.num_scheduled_tokens[request.request_id]
        num_hit = (request.num_computed_tokens - num_scheduled) // manager.block_size
        if num_hit:
            hits[request.request_id] = manager.get_block_ids(request.request_id)[:num_hit]
    journal = pool.journal
    evicted, num_cached = (journal.take_evicted(), journal.num_cached_blocks) if journal else ([], 0)
    return pool.num_free_blocks, pool.num_gpu_blocks, evicted, hits, num_cached


def _new_request(new: NewRequestData) -> dict[str, Any]:
    return {
        "req_id": new.req_id,
        "num_prompt_tokens": len(new.prompt_token_ids),
        "block_ids": new.block_ids,
        "num_computed_tokens": new.num_computed_tokens,
    }

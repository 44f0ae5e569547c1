"""Runner level: vLLM's own scheduler decisions, fed to our runner through our executor."""

from collections.abc import Iterator
from typing import Any

from batchscope.conformance.passes import Rows, layout_only, observed_pass, recorded_pass
from batchscope.conformance.recording import Recording
from engine.config import EngineConfig
from engine.executor import Executor
from engine.model_source import resolve
from engine.outputs import CachedRequestData, NewRequestData, SchedulerOutput
from engine.sampling_params import SamplingParams
from tracer.compare import first_difference
from tracer.marked_pass import describe


def play(recording: Recording, model: str, dtype: str, layout: bool) -> str | None:
    """Play a recording through the runner; return the first difference, or None.

    With `layout`, everything is compared but the values of token ids, which follow from the weights.
    """
    config = EngineConfig.make(model=model, dtype=dtype, **recording.engine_flags())
    config.model_config = resolve(config.model_config)
    executor = Executor.get_class(config)(config)
    try:
        num_gpu_blocks = executor.collective_rpc("determine_num_gpu_blocks", single_value=True)
        executor.collective_rpc("initialize_cache", args=(num_gpu_blocks,))
        rows: Rows = [None] * config.scheduler_config.max_num_seqs
        for i, (expected, seen) in enumerate(_passes(recording, executor, rows)):
            pair = (layout_only(expected), layout_only(seen)) if layout else (expected, seen)
            if difference := first_difference(*pair):
                return f"pass {i}{difference}"
            if difference := first_difference(executor.collective_rpc("batch_state", single_value=True), rows):
                return f"pass {i}, batch and folded trace: {difference}"
        return None
    finally:
        executor.shutdown()


def _passes(recording: Recording, executor: Executor, rows: Rows) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    prompts = {request["id"]: request for request in recording.requests}
    for entry in recording.passes:
        scheduler_output = scheduler_output_of(entry["scheduler_output"], prompts)
        if executor.execute_model(scheduler_output, non_block=True).result() is None:
            executor.sample_tokens(None)
        yield (
            recorded_pass(entry),
            observed_pass(rows, describe(executor.collective_rpc("take_trace", single_value=True))),
        )


def scheduler_output_of(data: dict[str, Any], requests: dict[str, dict[str, Any]]) -> SchedulerOutput:
    """Build our SchedulerOutput from a recorded one; requests are the recording's, by id."""
    new = [
        NewRequestData(
            req_id=item["req_id"],
            prompt_token_ids=item["prompt_token_ids"],
            sampling_params=SamplingParams(
                temperature=0.0, max_tokens=requests[item["req_id"]]["max_tokens"], ignore_eos=True
            ),
            block_ids=tuple(item["block_ids"]),
            num_computed_tokens=item["num_computed_tokens"],
        )
        for item in data["scheduled_new_reqs"]
    ]
    cached = data["scheduled_cached_reqs"]
    return SchedulerOutput(
        scheduled_new_reqs=new,
        scheduled_cached_reqs=CachedRequestData(
            req_ids=cached["req_ids"],
            resumed_req_ids=set(cached["resumed_req_ids"]),
            new_block_ids=[None if ids is None else tuple(ids) for ids in cached["new_block_ids"]],
            num_computed_tokens=cached["num_computed_tokens"],
            num_output_tokens=cached["num_output_tokens"],
        ),
        num_scheduled_tokens=data["num_scheduled_tokens"],
        total_num_scheduled_tokens=data["total_num_scheduled_tokens"],
        scheduled_spec_decode_tokens=data["scheduled_spec_decode_tokens"],
        finished_req_ids=set(data["finished_req_ids"]),
        preempted_req_ids=set(data["preempted_req_ids"]),
    )

"""Engine level: the recorded requests at the recorded steps; our scheduler decides, our runner computes."""

from collections.abc import Iterator
from typing import Any

from batchscope.conformance.passes import Rows, layout_only, observed_pass, recorded_pass
from batchscope.conformance.recording import Recording
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.messages import EngineCoreRequest
from engine.model_source import resolve
from engine.sampling_params import SamplingParams
from tracer.compare import first_difference
from tracer.phases import Phase
from tracer.schema import PassRecord, decode


def play(recording: Recording, model: str, dtype: str, layout: bool) -> str | None:
    """Play a recording's requests through the engine; return the first difference, or None.

    With `layout`, everything is compared but the values of token ids, which follow from the weights.
    """
    config = EngineConfig.make(model=model, dtype=dtype, check=True, **recording.engine_flags())
    config.model_config = resolve(config.model_config)
    passes: list[PassRecord] = []

    def sink(data: bytes) -> None:
        entry = decode(data)
        if isinstance(entry, PassRecord):
            passes.append(entry)

    core = EngineCore(config, sink)
    try:
        outputs: dict[str, list[int]] = {}
        for _ in _steps(recording, core, outputs):
            if len(passes) >= len(recording.passes):
                break
        return _compare(recording, passes, config.scheduler_config.max_num_seqs, layout) or (
            None if layout else first_difference(recording.outputs, outputs, "outputs")
        )
    finally:
        core.shutdown()


def _steps(recording: Recording, core: EngineCore, outputs: dict[str, list[int]]) -> Iterator[int]:
    """Take the engine's steps one by one, with what the recording does before each."""
    last = max(request["arrive"] for request in recording.requests)
    last = max([last, *recording.reset_prefix_cache_at, *(r["abort"] for r in recording.requests if "abort" in r)])
    step = 0
    while step <= last or core.scheduler.has_requests():
        for request in recording.requests:
            if request["arrive"] == step:
                core.add_request(engine_request(request))
        aborted = [request["id"] for request in recording.requests if request.get("abort") == step]
        if aborted:
            core.abort_requests(aborted)
        if step in recording.reset_prefix_cache_at:
            core.reset_prefix_cache(reset_running_requests=True)
        for client_outputs in core.step()[0].values():
            for output in client_outputs.outputs:
                if output.new_token_ids:
                    outputs.setdefault(output.request_id, []).extend(output.new_token_ids)
        yield step
        step += 1


def engine_request(request: dict[str, Any]) -> EngineCoreRequest:
    """Build our request from a recorded one."""
    params = SamplingParams(temperature=0.0, max_tokens=request["max_tokens"], ignore_eos=True)
    return EngineCoreRequest(
        request["id"], request["prompt_token_ids"], params, arrival_time=float(request["arrive"]),
        priority=request.get("priority", 0),
    )  # fmt: skip


def _compare(recording: Recording, passes: list[PassRecord], max_num_seqs: int, layout: bool) -> str | None:
    rows: Rows = [None] * max_num_seqs
    for i, (entry, seen) in enumerate(zip(recording.passes, passes, strict=False)):
        schedule = next(phase for phase in seen.phases if phase.phase == Phase.SCHEDULE)
        expected_decision = decision(entry["scheduler_output"])
        if difference := first_difference(expected_decision, decision(schedule.facts)):
            return f"pass {i} scheduler_output{difference}"
        pair = recorded_pass(entry), observed_pass(rows, seen.phases)
        if difference := first_difference(*(map(layout_only, pair) if layout else pair)):
            return f"pass {i}{difference}"
    if len(passes) < len(recording.passes):
        return f"expected {len(recording.passes)} passes, got {len(passes)}"
    return None


def decision(scheduler_output: dict[str, Any]) -> dict[str, Any]:
    """Return what a scheduler decided, from a recording or from our schedule phase, with order where order counts."""
    cached = scheduler_output["scheduled_cached_reqs"]
    return {
        "scheduled_new_reqs": [
            {name: data[name] for name in ("req_id", "block_ids", "num_computed_tokens")}
            for data in scheduler_output["scheduled_new_reqs"]
        ],
        "scheduled_cached_reqs": cached | {"resumed_req_ids": sorted(cached["resumed_req_ids"])},
        "num_scheduled_tokens": list(scheduler_output["num_scheduled_tokens"].items()),
        "total_num_scheduled_tokens": scheduler_output["total_num_scheduled_tokens"],
        "scheduled_spec_decode_tokens": scheduler_output["scheduled_spec_decode_tokens"],
        "finished_req_ids": sorted(scheduler_output["finished_req_ids"]),
        "preempted_req_ids": sorted(scheduler_output["preempted_req_ids"]),
    }

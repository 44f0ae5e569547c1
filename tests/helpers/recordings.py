"""Plays the recordings of tests/vectors: their requests, aborts and resets at their steps, and their sampled tokens."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.messages import EngineCoreRequest
from engine.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput, SchedulerOutput
from engine.request import Request, RequestStatus
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler

VECTORS = Path(__file__).parents[1] / "vectors"
NOT_YET = {"ngram_spec", "async"}
NAMES = sorted(path.stem for path in VECTORS.glob("*.json") if path.stem not in NOT_YET)


def load(name: str) -> dict[str, Any]:
    """Return one recording."""
    return json.loads((VECTORS / f"{name}.json").read_text())


def engine_config(recording: dict[str, Any], **flags: Any) -> EngineConfig:
    """Return the engine's configuration for a recording, ready for a Scheduler."""
    settings = dict(recording["config"])
    assert not settings.pop("async_scheduling")
    config = EngineConfig.make(model="tiny-49152", **{"dtype": "float32", **settings, **flags})
    config.cache_config.num_gpu_blocks = recording["num_blocks"]
    return config


def engine_request(spec: dict[str, Any], arrival: int) -> EngineCoreRequest:
    """Return one of a recording's requests."""
    params = SamplingParams.make(temperature=0.0, max_tokens=spec["max_tokens"], ignore_eos=True)
    return EngineCoreRequest(
        spec["id"], spec["prompt_token_ids"], params, float(arrival), priority=spec.get("priority", 0)
    )


def events(recording: dict[str, Any], step: int) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return what happens before a step: arrivals, aborted ids and whether the prefix cache is reset."""
    requests = recording["requests"]
    return (
        [spec for spec in requests if spec["arrive"] == step],
        [spec["id"] for spec in requests if spec.get("abort") == step],
        step in recording["reset_prefix_cache_at"],
    )


def scheduler_output_as_recorded(output: SchedulerOutput) -> dict[str, Any]:
    """Return a SchedulerOutput under the recordings' field names."""
    cached = output.scheduled_cached_reqs
    return {
        "scheduled_new_reqs": [
            {
                "req_id": new.req_id,
                "prompt_token_ids": new.prompt_token_ids,
                "block_ids": [list(ids) for ids in new.block_ids],
                "num_computed_tokens": new.num_computed_tokens,
            }
            for new in output.scheduled_new_reqs
        ],
        "scheduled_cached_reqs": {
            "req_ids": cached.req_ids,
            "resumed_req_ids": sorted(cached.resumed_req_ids),
            "new_block_ids": [ids and [list(group) for group in ids] for ids in cached.new_block_ids],
            "num_computed_tokens": cached.num_computed_tokens,
            "num_output_tokens": cached.num_output_tokens,
        },
        "num_scheduled_tokens": output.num_scheduled_tokens,
        "total_num_scheduled_tokens": output.total_num_scheduled_tokens,
        "scheduled_spec_decode_tokens": output.scheduled_spec_decode_tokens,
        "finished_req_ids": sorted(output.finished_req_ids),
        "preempted_req_ids": sorted(output.preempted_req_ids),
    }


def sampled_as_recorded(recorded_pass: dict[str, Any]) -> ModelRunnerOutput:
    """Return what the recorded runner sampled in a pass."""
    if "sampled_token_ids" not in recorded_pass:
        return EMPTY_MODEL_RUNNER_OUTPUT
    ids = recorded_pass["batch"]["req_ids"]
    return ModelRunnerOutput(ids, {req_id: row for row, req_id in enumerate(ids)}, recorded_pass["sampled_token_ids"])


def play(
    recording: dict[str, Any], check: Callable[[int, Scheduler, SchedulerOutput, dict[str, Any]], None]
) -> Scheduler:
    """Give a Scheduler the recording's requests and sampled tokens; `check` is called in every pass."""
    scheduler = Scheduler(engine_config(recording))
    pass_id = step = arrivals = 0
    while pass_id < len(recording["passes"]):
        added, aborted, reset = events(recording, step)
        for spec in added:
            scheduler.add_request(Request(engine_request(spec, arrivals)))
            arrivals += 1
        scheduler.finish_requests(aborted, RequestStatus.FINISHED_ABORTED)
        if reset:
            assert scheduler.reset_prefix_cache(reset_running_requests=True)
        step += 1
        if not scheduler.has_requests():
            continue
        output = scheduler.schedule()
        recorded_pass = recording["passes"][pass_id]
        check(pass_id, scheduler, output, recorded_pass)
        scheduler.update_from_output(output, sampled_as_recorded(recorded_pass))
        pass_id += 1
    return scheduler

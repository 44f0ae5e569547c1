"""A row that is preempted in the very pass that scheduled it leaves nothing behind that can be hit."""

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.messages import EngineCoreRequest
from engine.model_source import resolve
from engine.sampling_params import SamplingParams

LOW = [(7 * i + 3) % 256 for i in range(21)]
HIGH = [9, 8, 7, 6, 5, 4, 3, 2]


def make_engine(**flags):
    config = EngineConfig.make(model="tiny", dtype="float64", block_size=4, check=True, **flags)
    config.model_config = resolve(config.model_config)
    return EngineCore(config, lambda entry: None)


def add(engine, req_id, tokens, max_tokens, priority=0, arrival=0.0):
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    engine.add_request(EngineCoreRequest(req_id, tokens, params, arrival, priority))


def run(engine, before_step=None):
    tokens, step, unscheduled = {}, 0, []
    while engine.scheduler.has_requests():
        if before_step:
            before_step(step)
        outputs, _ = engine.step()
        unscheduled += [request.request_id for request in engine.scheduler.plan.preempted]
        for output in (output for client in outputs.values() for output in client.outputs):
            tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
        step += 1
    return tokens, unscheduled


def test_blocks_that_a_preempted_pass_was_to_fill_are_not_hit_when_the_request_resumes():
    solo_engine = make_engine(
        max_num_seqs=1, max_num_batched_tokens=64, enable_prefix_caching=False, num_gpu_blocks_override=20
    )
    add(solo_engine, "low", LOW, 4)
    solo, _ = run(solo_engine)

    engine = make_engine(
        max_num_seqs=4, max_num_batched_tokens=32, long_prefill_token_threshold=8, scheduling_policy="priority",
        num_gpu_blocks_override=9, max_model_len=27,
    )  # fmt: skip
    add(engine, "short", [1], 1, priority=6, arrival=0.5)
    add(engine, "low", LOW, 4, priority=5)
    tokens, preempted = run(engine, lambda step: add(engine, "high", HIGH, 4, arrival=1.0) if step == 1 else None)
    assert "low" in preempted
    assert tokens["low"] == solo["low"]

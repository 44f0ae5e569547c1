"""What a pass of decoding rows costs besides the model, in Batchscope. Arguments: model, rows, passes."""

import sys

from batchscope.bench.phase_timer import PhaseTimer
from batchscope.bench.protocol import MARK, PASS_PHASES, prompts_of, report
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.messages import EngineCoreRequest
from engine.model_source import resolve
from engine.sampling_params import SamplingParams


def measure(model: str, rows: int, passes: int) -> dict[str, float]:
    """Return the median of each phase in microseconds, over passes in which `rows` requests decode one token each."""
    config = EngineConfig.make(
        model=model, max_num_seqs=rows, max_num_batched_tokens=max(4096, rows), max_model_len=512, block_size=32,
        kv_cache_memory_bytes=2 << 30, trace=False, enable_prefix_caching=False,
    )  # fmt: skip
    config.model_config = resolve(config.model_config)
    core = EngineCore(config)
    runner = core.model_executor.driver_worker.model_runner  # type: ignore[attr-defined]
    timer = PhaseTimer()
    for owner, method in zip((core.scheduler, runner, runner, core.scheduler), PASS_PHASES, strict=True):
        timer.wrap(owner, method, method)
    job = {"seed": 1, "rows": rows, "prompt_tokens": 16, "vocab_size": config.model_config.hf_config["vocab_size"]}
    params = SamplingParams(temperature=0.0, max_tokens=passes + 8, ignore_eos=True)
    for i, prompt in enumerate(prompts_of(job)):
        core.add_request(EngineCoreRequest(str(i), prompt, params, arrival_time=float(i)))
    for step in range(passes + 4):
        if step == 4:
            timer.clear()
        core.step()
    core.shutdown()
    return timer.medians()


if __name__ == "__main__":
    print(MARK + report(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), flush=True)

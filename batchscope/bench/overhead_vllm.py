"""What a pass of decoding rows costs besides the model, in vLLM. Arguments: model folder, rows, passes.

Run by the Python of vLLM's own environment, in one process, on its V1 model runner.
"""

import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
sys.path[0] = os.path.dirname(os.path.abspath(__file__))
from phase_timer import PhaseTimer  # noqa: E402
from protocol import MARK, PASS_PHASES, prompts_of, report  # noqa: E402


def measure(model: str, rows: int, passes: int) -> dict[str, float]:
    from vllm import LLM, SamplingParams, TokensPrompt
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    timer = PhaseTimer()
    for owner, method in zip((Scheduler, GPUModelRunner, GPUModelRunner, Scheduler), PASS_PHASES, strict=True):
        timer.wrap(owner, method, method)
    llm = LLM(
        model=model, skip_tokenizer_init=True, max_num_seqs=rows, max_num_batched_tokens=max(4096, rows),
        max_model_len=512, block_size=32, enforce_eager=True, enable_prefix_caching=False, async_scheduling=False,
        dtype="bfloat16",
    )  # fmt: skip
    prompts = prompts_of({"seed": 1, "rows": rows, "prompt_tokens": 16, "vocab_size": 49152})
    params = SamplingParams(temperature=0.0, max_tokens=passes + 8, ignore_eos=True, detokenize=False)
    timer.clear()
    llm.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
    timer.samples = {name: samples[4:-4] for name, samples in timer.samples.items()}
    return timer.medians()


if __name__ == "__main__":
    print(MARK + report(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), flush=True)

"""vLLM under measurement, run by the Python of its own environment. Arguments: model folder, settings as JSON."""

import json
import os
import sys

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
from protocol import Engine, serve  # noqa: E402


class VLLM(Engine):
    name = "vllm"

    def __init__(self, model: str, settings: dict) -> None:
        import vllm

        self.version = vllm.__version__
        self.llm = vllm.LLM(model=model, skip_tokenizer_init=True, **settings)

    def generate(self, prompts: list[list[int]], new_tokens: int) -> None:
        outputs = self.llm.generate([_tokens(ids) for ids in prompts], _params(new_tokens), use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == new_tokens for output in outputs)

    def add(self, number: int, prompt: list[int], new_tokens: int) -> None:
        self.llm.llm_engine.add_request(f"churn-{number}", _tokens(prompt), _params(new_tokens))

    def step(self) -> None:
        self.llm.llm_engine.step()

    def busy(self) -> bool:
        return self.llm.llm_engine.has_unfinished_requests()


def _tokens(ids: list[int]) -> dict:
    from vllm import TokensPrompt

    return TokensPrompt(prompt_token_ids=ids)


def _params(new_tokens: int) -> object:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )  # fmt: skip


if __name__ == "__main__":  # vLLM spawns processes that import this file again
    serve(VLLM(sys.argv[1], json.loads(sys.argv[2])))

"""Batchscope under measurement. Arguments: model, then the engine's settings as JSON."""

import json
import sys
from importlib.metadata import version

from batchscope import LLM, SamplingParams
from batchscope.bench.protocol import Engine, serve


class Batchscope(Engine):
    name = "batchscope"

    def __init__(self, model: str, settings: dict) -> None:
        self.version = version("batchscope")
        self.llm = LLM(model=model, **settings)

    def generate(self, prompts: list[list[int]], new_tokens: int) -> None:
        outputs = self.llm.generate(prompts, _params(new_tokens), use_tqdm=False)
        assert all(len(output.token_ids) == new_tokens for output in outputs)

    def add(self, number: int, prompt: list[int], new_tokens: int) -> None:
        self.llm.engine.add_request(f"churn-{number}", prompt, _params(new_tokens))

    def step(self) -> None:
        self.llm.engine.step()

    def busy(self) -> bool:
        return self.llm.engine.has_unfinished_requests()


def _params(new_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)


if __name__ == "__main__":
    serve(Batchscope(sys.argv[1], json.loads(sys.argv[2])))

"""Batchscope under measurement. Arguments: model, then the engine's settings as JSON."""

import json
import sys

from batchscope import LLM, SamplingParams
from batchscope.bench.protocol import serve


def main() -> None:
    llm = LLM(model=sys.argv[1], **json.loads(sys.argv[2]))

    def generate(prompts: list[list[int]], new_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        outputs = llm.generate(prompts, params, use_tqdm=False)
        assert all(len(output.token_ids) == new_tokens for output in outputs)

    serve("batchscope", generate)


if __name__ == "__main__":
    main()

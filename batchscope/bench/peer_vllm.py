"""vLLM under measurement, run by the Python of its own environment. Arguments: model folder, settings as JSON."""

import json
import os
import sys

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
from protocol import serve  # noqa: E402


def main() -> None:
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(model=sys.argv[1], skip_tokenizer_init=True, **json.loads(sys.argv[2]))

    def generate(prompts: list[list[int]], new_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        outputs = llm.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == new_tokens for output in outputs)

    serve("vllm", generate)


if __name__ == "__main__":
    main()

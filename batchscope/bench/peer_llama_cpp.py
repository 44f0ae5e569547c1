"""llama.cpp under measurement, run by the Python of its environment. Arguments: GGUF file, settings as JSON.

Its Python interface runs one prompt at a time.
"""

import json
import os
import sys
from itertools import islice

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
from protocol import Engine, serve  # noqa: E402


class LlamaCpp(Engine):
    name = "llama.cpp"
    max_rows = 1
    takes_arrivals = False

    def __init__(self, model: str, settings: dict) -> None:
        import llama_cpp

        self.version = f"{llama_cpp.__version__} (llama-cpp-python)"
        cores = os.cpu_count()
        self.llm = llama_cpp.Llama(model, n_threads=cores, n_threads_batch=cores, verbose=False, **settings)

    def generate(self, prompts: list[list[int]], new_tokens: int) -> None:
        for prompt in prompts:
            tokens = list(islice(self.llm.generate(prompt, temp=0.0), new_tokens))
            assert len(tokens) == new_tokens


if __name__ == "__main__":
    serve(LlamaCpp(sys.argv[1], json.loads(sys.argv[2])))

"""transformers' `generate` under measurement, run by the Python of its environment. Arguments: model, settings as JSON.

One batch at a time, whose rows all begin and end together: there is nothing that could arrive in between.
"""

import json
import os
import sys

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
from protocol import Engine, serve  # noqa: E402


class Transformers(Engine):
    name = "transformers"
    takes_arrivals = False

    def __init__(self, model: str, settings: dict) -> None:
        import torch
        import transformers

        self.version = transformers.__version__
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=settings["dtype"]).eval()

    def generate(self, prompts: list[list[int]], new_tokens: int) -> None:
        ids = self.torch.tensor(prompts)
        with self.torch.inference_mode():
            out = self.model.generate(
                input_ids=ids, attention_mask=self.torch.ones_like(ids), do_sample=False, pad_token_id=0,
                max_new_tokens=new_tokens, min_new_tokens=new_tokens,
            )  # fmt: skip
        assert out.shape == (ids.shape[0], ids.shape[1] + new_tokens)


if __name__ == "__main__":
    serve(Transformers(sys.argv[1], json.loads(sys.argv[2])))

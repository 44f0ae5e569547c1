"""What a faster way to calculate costs in quality, against float32: perplexity on a fixed text, and how often the
likeliest next token is the same.

The text is the opening of Alice's Adventures in Wonderland (1865, in the public domain). It is read a few tokens a
pass, as many as a small batch decodes, since more rows may take another path.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from batchscope import LLM, SamplingParams

TEXT = Path(__file__).with_suffix(".txt")
ROWS = 8  # tokens read in one pass
EXACT = "float32"


class Reading(NamedTuple):
    """What a model made of the text, for each token after the first."""

    logprobs: list[float]
    likeliest: list[int]


def measure(model: str, variants: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Read the text exactly and in each variant; return perplexities and the share of tokens that agree."""
    exact = read(model, {"dtype": EXACT})
    readings = {EXACT: exact} | {name: read(model, flags) for name, flags in variants.items() if name != EXACT}
    return [
        {
            "variant": name,
            "perplexity": math.exp(-sum(reading.logprobs) / len(reading.logprobs)),
            "same_token": sum(a == b for a, b in zip(reading.likeliest, exact.likeliest, strict=True))
            / len(exact.likeliest),
            "tokens": len(reading.logprobs),
        }
        for name, reading in readings.items()
    ]


def read(model: str, flags: dict[str, Any]) -> Reading:
    """Read the text with an engine of these flags. Raises ConfigError."""
    llm = LLM(model, trace=False, max_num_seqs=1, max_num_batched_tokens=ROWS, **flags)
    try:
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
        positions = llm.generate(TEXT.read_text(encoding="utf-8"), params, use_tqdm=False)[0].prompt_logprobs
    finally:
        llm.shutdown()
    assert positions is not None
    reading = Reading([], [])
    for position in positions[1:]:
        assert position is not None
        reading.logprobs.append(next(iter(position.values())).logprob)
        reading.likeliest.append(min(position, key=lambda token_id: position[token_id].rank))
    return reading


def line(result: dict[str, Any]) -> str:
    """Say a variant's result in one line."""
    return (
        f"{result['variant']:>10}: perplexity {result['perplexity']:.4f} over {result['tokens']} tokens, "
        f"{100 * result['same_token']:.1f}% likeliest tokens as in {EXACT}"
    )

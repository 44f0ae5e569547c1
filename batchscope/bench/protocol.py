"""How an engine under measurement is driven: a process that reads one job a line and answers with seconds.

Standard library alone: it also runs in the environments of other engines, where Batchscope is not installed.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

Generate = Callable[[list[list[int]], int], None]  # (prompts as token ids, new tokens a prompt)
PASS_PHASES = ("schedule", "_update_states", "_prepare_inputs", "update_from_output")  # the names are vLLM's
MARK = "@bench "  # engines log to standard output too; lines of ours begin with this


def prompts_of(job: dict[str, Any]) -> list[list[int]]:
    """Return the job's prompts: random ids, the same for every engine, different for every seed."""
    source = random.Random(job["seed"])
    return [
        [source.randrange(1000, job["vocab_size"]) for _ in range(job["prompt_tokens"])] for _ in range(job["rows"])
    ]


def report(medians: dict[str, float]) -> str:
    """Return phases and their sum as one line of JSON, in microseconds."""
    return json.dumps(medians | {"sum": sum(medians.values())})


def serve(name: str, generate: Generate) -> None:
    """Answer jobs from standard input until it closes."""
    print(MARK + json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        prompts = prompts_of(job)
        start = time.perf_counter()
        generate(prompts, job["new_tokens"])
        print(MARK + json.dumps({"seconds": time.perf_counter() - start}), flush=True)

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
MARK = "@bench "  # engines log to standard output too; lines of ours begin with this


def prompts_of(job: dict[str, Any]) -> list[list[int]]:
    """Return the job's prompts: random ids, the same for every engine, different for every seed."""
    source = random.Random(job["seed"])
    return [
        [source.randrange(1000, job["vocab_size"]) for _ in range(job["prompt_tokens"])] for _ in range(job["rows"])
    ]


def serve(name: str, generate: Generate) -> None:
    """Answer jobs from standard input until it closes."""
    print(MARK + json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        prompts = prompts_of(job)
        start = time.perf_counter()
        generate(prompts, job["new_tokens"])
        print(MARK + json.dumps({"seconds": time.perf_counter() - start}), flush=True)

"""How an engine under measurement is driven: a process that reads one job a line and answers with what it took.

Standard library alone: it also runs in the environments of other engines, where Batchscope is not installed.
"""

import json
import random
import sys
import time
from collections import deque
from typing import Any, ClassVar, NamedTuple

PASS_PHASES = ("schedule", "_update_states", "_prepare_inputs", "update_from_output")  # the names are vLLM's
MARK = "@bench "  # engines log to standard output too; lines of ours begin with this
CHURN_PROMPT, CHURN_NEW = (16, 256), (16, 128)  # shortest and longest, in tokens
CHURN_GAP_S = 0.05  # between arrivals, on average: faster than any engine here is done


class Arrival(NamedTuple):
    """A request of the churning workload. at: seconds after the start."""

    at: float
    prompt: list[int]
    new_tokens: int


class Engine:
    """An engine under measurement. Each peer_*.py fills one in; an engine without `add` takes no arrivals."""

    name: ClassVar[str]
    max_rows: ClassVar[int | None] = None  # None: any number of prompts at once
    takes_arrivals: ClassVar[bool] = True
    version: str

    def generate(self, prompts: list[list[int]], new_tokens: int) -> None:
        """Run all prompts at once, to exactly that many new tokens each."""
        raise NotImplementedError

    def add(self, number: int, prompt: list[int], new_tokens: int) -> None:
        """Let one request wait."""
        raise NotImplementedError

    def step(self) -> None:
        """Run, or wait for, one pass."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Whether any request has not finished."""
        raise NotImplementedError


def prompts_of(job: dict[str, Any]) -> list[list[int]]:
    """Return the job's prompts: random ids, the same for every engine, different for every seed."""
    source = random.Random(job["seed"])
    return [_prompt(source, job["prompt_tokens"], job["vocab_size"]) for _ in range(job["rows"])]


def arrivals_of(job: dict[str, Any]) -> list[Arrival]:
    """Return the job's requests of mixed lengths in the order in which they come, the same for every engine."""
    source = random.Random(job["seed"])
    arrivals, at = [], 0.0
    for _ in range(job["requests"]):
        prompt = _prompt(source, source.randint(*CHURN_PROMPT), job["vocab_size"])
        arrivals.append(Arrival(at, prompt, source.randint(*CHURN_NEW)))
        at += source.expovariate(1 / CHURN_GAP_S)
    return arrivals


def report(medians: dict[str, float]) -> str:
    """Return phases and their sum as one line of JSON, in microseconds."""
    return json.dumps(medians | {"sum": sum(medians.values())})


def serve(engine: Engine) -> None:
    """Answer jobs from standard input until it closes."""
    _say(ready=engine.name, version=engine.version, max_rows=engine.max_rows, takes_arrivals=engine.takes_arrivals)
    for line in sys.stdin:
        job = json.loads(line)
        _say(seconds=_churn(engine, job) if job["kind"] == "churn" else _generate(engine, job))


def _generate(engine: Engine, job: dict[str, Any]) -> float:
    prompts = prompts_of(job)
    start = time.perf_counter()
    engine.generate(prompts, job["new_tokens"])
    return time.perf_counter() - start


def _churn(engine: Engine, job: dict[str, Any]) -> float:
    waiting = deque(enumerate(arrivals_of(job)))
    start = time.perf_counter()
    while waiting or engine.busy():
        while waiting and waiting[0][1].at <= time.perf_counter() - start:
            number, arrival = waiting.popleft()
            engine.add(number, arrival.prompt, arrival.new_tokens)
        if engine.busy():
            engine.step()
        else:
            time.sleep(max(0.0, waiting[0][1].at - (time.perf_counter() - start)))
    return time.perf_counter() - start


def _prompt(source: random.Random, length: int, vocab_size: int) -> list[int]:
    return [source.randrange(vocab_size // 8, vocab_size) for _ in range(length)]  # past bytes and special tokens


def _say(**answer: Any) -> None:
    print(MARK + json.dumps(answer), flush=True)

"""What is measured of every engine, each as one number a turn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batchscope.bench.peer import Peer
from batchscope.bench.protocol import arrivals_of

PREFILL_TOKENS = 512
PREFILL_PROMPTS = 4  # one after the other
FIRST_TOKENS = 8  # requests, one after the other
CHURN_REQUESTS = 64
WARM_UP_TOKENS, WARM_UP_REQUESTS = 8, 4

Measure = Callable[[Peer, int], float]  # (engine, seed) -> the workload's number


@dataclass(frozen=True)
class Workload:
    """unit: "tok/s", of which more is better, or "ms", of which less is. rows: None for the churning workload."""

    name: str
    kind: str
    unit: str
    rows: int | None
    measure: Measure
    warm_up: Callable[[Peer], object]

    def can(self, peer: Peer) -> bool:
        """Whether this engine takes such a workload at all."""
        if self.rows is None:
            return bool(peer.facts["takes_arrivals"])
        return self.rows <= (peer.facts["max_rows"] or self.rows)

    def told(self) -> dict[str, Any]:
        """Return what the results say of it."""
        return {"name": self.name, "kind": self.kind, "rows": self.rows, "unit": self.unit}

    def ratio(self, ours: float, theirs: float) -> float:
        """Return how many times as good as theirs ours is."""
        return ours / theirs if self.unit == "tok/s" else theirs / ours


def workloads(row_counts: list[int], prompt_tokens: int, new_tokens: int, vocab_size: int) -> list[Workload]:
    """Return all of them: decode at each number of rows, prefill, time to first token and churn."""
    common = {"kind": "generate", "vocab_size": vocab_size, "prompt_tokens": prompt_tokens}

    def decode(rows: int) -> Workload:
        job: dict[str, Any] = common | {"rows": rows}

        def measure(peer: Peer, seed: int) -> float:
            first = peer.seconds(new_tokens=1, seed=2 * seed, **job)
            whole = peer.seconds(new_tokens=new_tokens, seed=2 * seed + 1, **job)
            return rows * (new_tokens - 1) / (whole - first)

        def warm_up(peer: Peer) -> object:
            return peer.seconds(new_tokens=WARM_UP_TOKENS, seed=0, **job)

        return Workload(f"decode, {rows} rows", "decode", "tok/s", rows, measure, warm_up)

    def first_token_s(peer: Peer, seed: int, length: int, times: int) -> float:
        job: dict[str, Any] = common | {"rows": 1, "prompt_tokens": length, "new_tokens": 1}
        return sum(peer.seconds(seed=times * seed + i, **job) for i in range(times)) / times

    def prefill(peer: Peer, seed: int) -> float:
        return PREFILL_TOKENS / first_token_s(peer, seed, PREFILL_TOKENS, PREFILL_PROMPTS)

    def first_token(peer: Peer, seed: int) -> float:
        return 1000 * first_token_s(peer, seed, prompt_tokens, FIRST_TOKENS)

    def churn(peer: Peer, seed: int, requests: int = CHURN_REQUESTS) -> float:
        job: dict[str, Any] = {"kind": "churn", "vocab_size": vocab_size, "requests": requests, "seed": seed}
        return churn_tokens(job) / peer.seconds(**job)

    def alone(name: str, kind: str, unit: str, measure: Measure) -> Workload:
        return Workload(name, kind, unit, 1, measure, lambda peer: measure(peer, 0))

    return [
        *(decode(rows) for rows in row_counts),
        alone(f"prefill of {PREFILL_TOKENS} tokens", "prefill", "tok/s", prefill),
        alone(f"first token after {prompt_tokens}", "first token", "ms", first_token),
        Workload(
            f"churn of {CHURN_REQUESTS} requests",
            "churn",
            "tok/s",
            None,
            churn,
            lambda peer: churn(peer, 0, WARM_UP_REQUESTS),
        ),
    ]


def churn_tokens(job: dict[str, Any]) -> int:
    """Return how many tokens, prompts and answers, a churning workload makes an engine compute."""
    return sum(len(arrival.prompt) + arrival.new_tokens for arrival in arrivals_of(job))

"""Random workloads: an engine's settings, and what happens to it, as data that Hypothesis can shrink."""

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

LONGEST_PROMPT, MOST_TOKENS = 26, 22
MODEL_LENGTH = 64


@dataclass(frozen=True)
class Add:
    req_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int
    cache_salt: str | None


@dataclass(frozen=True)
class Abort:
    which: int  # counts the live requests, round and round
    in_pass: bool  # between execute and sample of the next pass


@dataclass(frozen=True)
class Reset:
    reset_running_requests: bool


@dataclass(frozen=True)
class Passes:
    count: int


Workload = tuple[dict[str, Any], list[Any]]


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Return flags for EngineConfig.make and the actions.

    Hypothesis chooses a seed and how many of its actions are kept, which it can shrink; the rest follows from the seed,
    which varies examples far more than mutated lists do.
    """
    choice = Random(draw(st.integers(0, 2**32)))
    return _settings(choice), [_action(choice) for _ in range(draw(st.integers(4, 40)))]


def _settings(choice: Random) -> dict[str, Any]:
    block_size = choice.choice([1, 2, 3, 4, 4, 4, 8, 16, 64])
    fewest = -(-(LONGEST_PROMPT + MOST_TOKENS) // block_size) + 1  # blocks that barely hold one request
    max_num_seqs = choice.choice([1, 2, 3, 4, 4, 5, 8, 16])
    chunked = choice.random() < 0.7
    return {
        "block_size": block_size,
        "num_gpu_blocks_override": fewest + choice.choice([0, 1, fewest // 4, fewest // 2, 3 * fewest]),
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": choice.randint(max_num_seqs, choice.choice([18, 80])) if chunked else MODEL_LENGTH,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": choice.choice([0, 0, 1, 5, 8, 16]),
        "scheduling_policy": choice.choice(["fcfs", "priority", "priority"]),
        "enable_prefix_caching": choice.random() < 0.8,
        "max_model_len": MODEL_LENGTH,
        "reorder_batch_threshold": choice.choice([None, None, 1, 4]),
    }


def _action(choice: Random) -> Any:
    kind = choice.random()
    if kind < 0.5:
        return Add(
            f"r{choice.randrange(8)}",
            _prompt(choice),
            choice.choice([1, 7, 18, MOST_TOKENS]),
            choice.randrange(3),
            choice.choice([None, None, None, "salt"]),
        )
    if kind < 0.85:
        return Passes(choice.randint(1, 4))
    if kind < 0.95:
        return Abort(choice.randrange(8), choice.random() < 0.5)
    return Reset(choice.random() < 0.5)


def _prompt(choice: Random) -> tuple[int, ...]:
    """Some share their beginning, some their middle after another beginning; ends may differ."""
    head, length = choice.randint(1, 2), choice.choice([1, 8, 12, 16, 20, 24, 24])
    tail = choice.choice([(), (), (1,), (1, 2), (2,)])
    return (*(head if i < 4 else 20 + 7 * i % 200 for i in range(length)), *tail)

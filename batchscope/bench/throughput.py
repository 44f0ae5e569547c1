"""`bench throughput`: every engine through every workload."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchscope.bench.peer import READS_GGUF, Peer, foreign_peer, model_for, our_peer
from batchscope.bench.turns import is_ours, ratios, take_turns
from batchscope.bench.workloads import workloads
from engine.config import ModelConfig
from engine.model_source import resolve

Tell = Callable[[str], None]  # takes a line for whoever waits


@dataclass(frozen=True)
class Plan:
    """What to measure. peers: an environment by engine; peer_model: for those of them that read no GGUF file."""

    model: str
    variants: list[str]
    rows: list[int]
    prompt_tokens: int
    new_tokens: int
    turns: int
    peers: dict[str, Path]
    peer_model: str | None = None
    enforce_eager: bool = False

    def settings_of(self, peer: str) -> dict[str, Any]:
        """Return a foreign engine's settings, its own defaults as far as they go."""
        if peer == "vllm":
            return {"dtype": "bfloat16", "enforce_eager": self.enforce_eager, "max_num_seqs": max(self.rows)}
        if peer == READS_GGUF:
            return {"n_ctx": 1024}
        return {"dtype": "bfloat16"}


def measure(plan: Plan, tell: Tell) -> dict[str, Any]:
    """Return each engine's version and, by workload, each engine's numbers and our ratios."""
    vocab_size = resolve(ModelConfig(model=plan.model)).hf_config["vocab_size"]
    results = []
    with _engines(plan, tell) as peers:
        for workload in workloads(plan.rows, plan.prompt_tokens, plan.new_tokens, vocab_size):
            values = take_turns(peers, workload, plan.turns)
            compared = {name: ratios(workload, values, name) for name in values if is_ours(name)}
            results.append(workload.told() | {"values": values, "ratios": compared})
            tell(line(results[-1]))
        versions = {peer.name: peer.facts["version"] for peer in peers}
    return {"engines": versions, "workloads": results}


def line(result: dict[str, Any]) -> str:
    """Return one workload's medians, with the least and the most, and the ratios."""
    shown = "  ".join(
        f"{name} {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"
        for name, values in result["values"].items()
    )
    compared = "".join(
        f"\n{'':>24}  {ours}: " + ", ".join(f"{ratio:.2f}x {name}" for name, ratio in theirs.items())
        for ours, theirs in result["ratios"].items()
        if theirs
    )
    return f"{result['name']:>24}, {result['unit']}: {shown}{compared}"


@contextmanager
def _engines(plan: Plan, tell: Tell) -> Iterator[list[Peer]]:
    models = {name: model_for(name, plan.model, plan.peer_model) for name in plan.peers}  # before anything is started
    with ExitStack() as stack:
        peers = []
        for variant in plan.variants:
            tell(f"starting batchscope {variant}")
            peers.append(our_peer(plan.model, variant, {"max_num_seqs": max(plan.rows)}))
            stack.callback(peers[-1].close)
        for name, environment in plan.peers.items():
            tell(f"starting {name}")
            peers.append(foreign_peer(name, environment, models[name], plan.settings_of(name)))
            stack.callback(peers[-1].close)
        yield peers

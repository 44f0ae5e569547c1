"""Engines in processes of their own, measured in turns."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchscope.bench.protocol import MARK


class Peer:
    """One engine's process. Raises RuntimeError where it ends before it answers."""

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )
        self._answer()

    def seconds(self, **job: Any) -> float:
        """Run one job and return how long it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return dict(json.loads(line.removeprefix(MARK)))
        raise RuntimeError(
            f"{self.name} ended with code {self._process.wait()} before it answered; run it by hand to see why: "
            f"{' '.join(str(part) for part in self._process.args)}"  # type: ignore[union-attr]
        )


def batchscope_peer(model: str, flags: dict[str, Any]) -> Peer:
    return Peer("batchscope", [sys.executable, "-m", "batchscope.bench.peer_batchscope", model, json.dumps(flags)])


def foreign_peer(name: str, environment: Path, model: str, flags: dict[str, Any], env: dict[str, str]) -> Peer:
    """Start another engine with the Python of its own environment."""
    script = Path(__file__).with_name(f"peer_{name}.py")
    return Peer(name, [str(environment / "bin" / "python"), str(script), model, json.dumps(flags)], env)


def decode_rate(peer: Peer, rows: int, prompt_tokens: int, new_tokens: int, vocab_size: int, seed: int) -> float:
    """Return tokens a second of decoding: the time of new_tokens less the time of the first of them."""
    job = {"rows": rows, "prompt_tokens": prompt_tokens, "vocab_size": vocab_size}
    first = peer.seconds(new_tokens=1, seed=2 * seed, **job)
    whole = peer.seconds(new_tokens=new_tokens, seed=2 * seed + 1, **job)
    return rows * (new_tokens - 1) / (whole - first)


def take_turns(
    peers: list[Peer], rows: int, turns: int, prompt_tokens: int, new_tokens: int, vocab_size: int
) -> dict[str, list[float]]:
    """Measure every peer `turns` times, one after the other, after one turn that does not count."""
    rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for turn in range(turns + 1):
        for peer in peers:
            rate = decode_rate(peer, rows, prompt_tokens, new_tokens, vocab_size, seed=turn)
            if turn:
                rates[peer.name].append(rate)
    return rates


def ratios(rates: dict[str, list[float]], ours: str = "batchscope") -> dict[str, float]:
    """Return our median rate over each other's."""
    return {
        name: statistics.median(rates[ours]) / statistics.median(values)
        for name, values in rates.items()
        if name != ours
    }

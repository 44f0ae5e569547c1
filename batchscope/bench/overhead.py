"""The cost of a pass besides the model: by phase, for growing numbers of decoding rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

from batchscope.bench.peer import python_of
from batchscope.bench.protocol import MARK


def ours(model: str, rows: int, passes: int) -> dict[str, float]:
    """Measure Batchscope in a process of its own; medians by phase, in microseconds."""
    return _run([sys.executable, "-m", "batchscope.bench.overhead_batchscope", model, str(rows), str(passes)], {})


def vllm(environment: Path, model: str, rows: int, passes: int) -> dict[str, float]:
    """Measure vLLM with the Python of its environment."""
    script = Path(__file__).with_name("overhead_vllm.py")
    command = [str(python_of(environment)), str(script), model, str(rows), str(passes)]
    return _run(command, {"VLLM_CPU_KVCACHE_SPACE": "2"})


def line(title: str, medians: dict[str, float]) -> str:
    return f"{title:>16}: " + "  ".join(f"{name} {value:.0f} µs" for name, value in medians.items())


def _run(command: list[str], env: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | env, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return dict(json.loads(line.removeprefix(MARK)))
    raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode} and no result:\n{done.stderr[-2000:]}")

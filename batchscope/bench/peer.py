"""An engine in a process of its own, which stands still while others are measured."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchscope.bench.protocol import MARK
from engine.config import ConfigError, ModelConfig
from engine.model_source import resolve

CLOSING_S = 30.0
SCRIPTS = {"vllm": "peer_vllm.py", "transformers": "peer_transformers.py", "llama.cpp": "peer_llama_cpp.py"}
VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16": {"dtype": "bfloat16"},
    "gguf": {"quantization": "gguf"},
    "float32": {"dtype": "float32"},
}
READS_GGUF = "llama.cpp"


class Peer:
    """One engine's processes, stopped by a signal but for the time that a job runs. Raises RuntimeError where it fails.

    facts: what it said of itself: its version, the most rows it takes at once and whether it takes arrivals.
    """

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the peer)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=os.environ | (env or {}), start_new_session=True,
        )  # fmt: skip
        try:
            self.facts = self._answer()
        except BaseException:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    def seconds(self, **job: Any) -> float:
        """Run one job and return how long it took."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        seconds = float(self._answer()["seconds"])
        self._signal(signal.SIGSTOP)
        return seconds

    def close(self) -> None:
        """End it and the processes that it started."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return dict(json.loads(line.removeprefix(MARK)))
        code = self._process.wait()
        self._log.seek(0)
        raise RuntimeError(f"{self.name} ended with code {code} before it answered:\n{self._log.read()[-2000:]}")


def our_peer(model: str, variant: str, settings: dict[str, Any]) -> Peer:
    """Start Batchscope in one of its variants."""
    flags = json.dumps(settings | VARIANTS[variant])
    return Peer(
        f"batchscope {variant}", [sys.executable, "-m", "batchscope.bench.peer_batchscope", model, flags]
    )  # fmt: skip


def foreign_peer(name: str, environment: Path, model: str, settings: dict[str, Any]) -> Peer:
    """Start another engine with the Python of its own environment, a folder or the executable itself."""
    script = Path(__file__).with_name(SCRIPTS[name])
    env = {}
    if name == "vllm":  # by itself it leaves a core to its other processes
        env = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": _all_cores()}
    return Peer(name, [str(python_of(environment)), str(script), model, json.dumps(settings)], env)


def _all_cores() -> str:
    """Return the cores that this process may use as a list, such as 0,1,2."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return ",".join(map(str, sorted(cores)))


def model_for(peer: str, model: str, given: str | None) -> str:
    """Return what a foreign engine is to load to have our model's weights, `given` where it cannot read our file.

    Raises ConfigError where there is nothing that it can read.
    """
    path = resolve(ModelConfig(model=model)).path or ""
    if path and path.endswith(".gguf") == (peer == READS_GGUF):
        return path
    if peer == READS_GGUF:
        raise ConfigError(f"{peer} reads GGUF files and {model} is none: choose one with --model")
    if given is None:
        raise ConfigError(
            f"{peer} reads no GGUF file: name a Hugging Face folder with the weights of {model} by --peer-model"
        )
    return given


def python_of(environment: Path) -> Path:
    """Return the Python of a virtual environment, which may be named by its folder or by that Python itself.

    Raises ConfigError where there is none.
    """
    python = environment / "bin" / "python" if environment.is_dir() else environment
    if not python.is_file():
        raise ConfigError(f"there is no {python}: name a virtual environment's folder or its python")
    return python

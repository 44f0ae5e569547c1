"""What the machine is and what it can do at best, as measured: memory bandwidth and bfloat16 arithmetic."""

import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

READ_BYTES = 1 << 30  # far past any cache
MATRIX = 2048
REPEATS = 5


def describe() -> dict[str, Any]:
    """Return the processor, cores, memory in bytes, system and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": " ".join(filter(None, (platform.system(), platform.machine(), *platform.libc_ver()))),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("batchscope", "torch", "numba")},
    }


def limits(read_bytes: int = READ_BYTES, matrix: int = MATRIX) -> dict[str, float]:
    """Return bytes a second that all cores read from memory, and bfloat16 operations a second, the best of some."""
    memory = torch.ones(read_bytes // 4)
    a = torch.randn(matrix, matrix).bfloat16()
    return {
        "bytes_per_second": read_bytes / _best(lambda: torch.dot(memory, memory)),
        "flops_per_second": 2 * matrix**3 / _best(lambda: a @ a),
    }


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def _processor() -> str:
    if platform.system() == "Darwin":
        command = ("sysctl", "-n", "machdep.cpu.brand_string")
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

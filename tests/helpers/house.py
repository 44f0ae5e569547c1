"""The repository as a place: its rooms, copies of it, and commands run in it."""

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("batchscope", "engine", "runner", "kernels", "tracer", "webui")
FILES = ("pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing on stdin; its stdout and stderr come back together."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS", "CI")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=kept | environment, text=True, timeout=240,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def copy_house(target: Path) -> Path:
    """Copy the rooms and the files that an installation needs into `target`, to be changed at will."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, target / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, target)
    return target


def imported_packages(path: Path) -> Iterator[str]:
    """Yield the top-level package of every import in a file, those inside functions among them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield (node.module or "").split(".")[0]

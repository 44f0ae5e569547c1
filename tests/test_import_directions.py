"""Data flows one way: `make lint` catches an import against the directions of CONTRIBUTING.md."""

import sys
from pathlib import Path

import pytest
from helpers.house import ROOT, copy_house, imported_packages, run


@pytest.mark.parametrize(
    ("room", "statement"),
    [
        ("engine", "import torch"),
        ("engine", "import runner.worker"),
        ("engine", "import webui"),
        ("runner", "import engine.cache"),
        ("runner", "import webui"),
        ("kernels", "import tracer.schema"),
        ("kernels", "import engine.outputs"),
        ("tracer", "import engine.outputs"),
        ("tracer", "import torch"),
        ("webui", "import runner.worker"),
        ("webui", "import torch"),
        ("webui", "import batchscope"),
        ("batchscope", "import kernels"),
    ],
)
def test_an_import_against_the_directions_is_caught(tmp_path: Path, room: str, statement: str) -> None:
    house = copy_house(tmp_path)
    (house / room / "bad.py").write_text(statement + "\n")
    result = run(Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache", cwd=house)
    assert result.returncode == 1, result.stdout
    assert f"{room}.bad -> {statement.split()[1]}" in result.stdout


def test_the_tracer_needs_nothing_but_numpy_and_msgspec() -> None:
    allowed = {"tracer", "numpy", "msgspec"} | sys.stdlib_module_names
    for path in (ROOT / "tracer").rglob("*.py"):
        assert set(imported_packages(path)) <= allowed, path

"""The notebooks run from top to bottom, where their own cells assert what they tell, and are kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from notebook_files import kept_form, notebooks

ALL = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)


@ALL
def test_the_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any("assert " in cell.source for cell in code), "a notebook asserts what it claims"
    outputs = [output for cell in code for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in outputs), "a notebook shows tables"
    assert any("image/png" in output.get("data", {}) for output in outputs), "a notebook shows a figure"


@ALL
def test_the_notebook_is_kept_without_outputs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == kept_form(text), f"{path.name} has outputs: run `make format` before committing"


def test_there_is_a_notebook() -> None:
    assert notebooks()

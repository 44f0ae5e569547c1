"""Notebooks are kept without outputs; `python tests/notebook_files.py` (part of `make format`) takes them out."""

from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebooks() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def kept_form(text: str) -> str:
    """Return the notebook as it is committed: no outputs, no execution counts, no traces of the machine that ran it."""
    notebook = nbformat.reads(text, as_version=4)
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(notebook) + "\n"


if __name__ == "__main__":
    for path in notebooks():
        path.write_text(kept_form(path.read_text(encoding="utf-8")), encoding="utf-8")

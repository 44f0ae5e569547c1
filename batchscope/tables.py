"""Small tables that a notebook shows as HTML and a terminal as Markdown."""

from collections.abc import Iterable
from html import escape
from typing import Any

_CELL = "text-align: left; font-family: monospace; white-space: nowrap"


class Table:
    """Headers and rows of plain values."""

    def __init__(self, headers: Iterable[str], rows: Iterable[Iterable[Any]], caption: str = "") -> None:
        self.headers = list(headers)
        self.rows = [[_text(value) for value in row] for row in rows]
        self.caption = caption

    def _repr_html_(self) -> str:
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        body = "".join(_html_row(row, "td") for row in self.rows)
        return f"<table>{caption}<thead>{_html_row(self.headers, 'th')}</thead><tbody>{body}</tbody></table>"

    def __str__(self) -> str:
        lines = [self.headers, ["---"] * len(self.headers), *self.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"{self.caption}\n\n{table}" if self.caption else table

    __repr__ = __str__


def _html_row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"


def _text(value: Any) -> str:
    """Return a value as a cell shows it: nothing for None, T and F for booleans, spaces between items."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, list | tuple):
        return " ".join(_text(item) for item in value)
    return str(value)

"""The source lines of each phase, read from the files of the running classes, in the process where they run."""

import ast
import contextlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from engine.executor import Executor
from engine.phase_code import PHASE_CODE, PhaseCode
from tracer.phases import Phase

Piece = dict[str, Any]  # function, file, first_line, lines
Places = dict[str, Phase | None]  # the functions to read, each with the phase whose part in it is wanted
Function = ast.FunctionDef


def phase_sources(core: Any, executor: Executor) -> dict[str, Piece]:
    """Return, by phase, {function, file, first_line, lines, part, calls, vllm, names}.

    `file` is a path from where its top package lies. `part` is [first, last], the lines of the function that belong to
    the phase, or None for all of them. `calls` has such pieces of functions that it calls. Phases whose code can't be
    found are left out.
    """
    places: Places = {}
    for phase, code in PHASE_CODE.items():
        places |= {f"{phase} {code.function}": phase} | dict.fromkeys(code.calls)
    pieces = read_sources(core, "core", places)
    with contextlib.suppress(Exception):  # an executor or worker from elsewhere may know nothing of this
        pieces |= executor.collective_rpc(read_sources, args=("worker", places), single_value=True)
    return {
        phase.value: _source(code, main, [pieces[call] for call in code.calls if call in pieces])
        for phase, code in PHASE_CODE.items()
        if (main := pieces.get(f"{phase} {code.function}"))
    }


def read_sources(root: Any, name: str, places: Places) -> dict[str, Piece]:
    """Return what can be read of the places that begin with the name of this root."""
    pieces = {}
    for place, phase in places.items():
        path = place.split(" ")[-1]
        if path.split(".")[0] == name and (piece := _read(*_find(root, path), phase)):
            pieces[place] = piece
    return pieces


def _source(code: PhaseCode, main: Piece, calls: list[Piece]) -> Piece:
    """Put the pieces of a phase together, with those of the names that occur in them."""
    used = set(re.findall(r"\w+", "\n".join(line for piece in (main, *calls) for line in piece["lines"])))
    names = {label: value for label, value in code.names.items() if re.split(r"\W", label)[0] in used}
    return main | {"calls": calls, "vllm": code.vllm, "names": names}


def _find(root: Any, path: str) -> tuple[type, Any]:
    """Return the function that a path leads to, or None, and the class of the object that has it."""
    path, _, module_function = path.partition(":")
    owner, found = None, root
    for attribute in path.split(".")[1:]:
        owner, found = found, getattr(found, attribute, None)
    if module_function:
        return type(found), getattr(sys.modules.get(type(found).__module__), module_function, None)
    return type(owner), found


def _read(owner: type, function: Any, phase: Phase | None) -> Piece | None:
    function = inspect.unwrap(function)
    tree = _tree(function)
    if tree is None:
        return None
    file = Path(function.__code__.co_filename)
    first, last = _first_line(tree), tree.end_lineno
    depth = len(function.__module__.split(".")) + (file.stem == "__init__")
    return {
        "function": function.__qualname__,
        "file": "/".join(file.parts[-depth:]),
        "first_line": first,
        "lines": _module(str(file))[0][first - 1 : last],
        "part": _part(tree, phase, _marking(owner)) if phase else None,
    }


@cache
def _module(file: str) -> tuple[list[str], dict[int, Function]]:
    """Return the lines of a file and its functions by their first lines. Raises OSError, SyntaxError."""
    text = Path(file).read_text(encoding="utf-8")
    functions = {_first_line(node): node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)}
    return text.splitlines(), functions


def _first_line(tree: Function) -> int:
    return min([tree.lineno, *(decorator.lineno for decorator in tree.decorator_list)])


def _tree(function: Any) -> Function | None:
    """Return a function's code; None where it is not written in Python, or its file is not there any more."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    try:
        return _module(code.co_filename)[1].get(code.co_firstlineno)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _part(tree: Function, phase: Phase, marking: set[str]) -> list[int] | None:
    """Return the lines between the mark that ends the phase and the mark before it, wherever that one is made."""
    marks = list(_marks(tree, marking))
    ends = [start for start, _, marked in marks if marked == phase.name]
    if not ends:
        return None
    begin = tree.body[1 if ast.get_docstring(tree) else 0].lineno
    after = max([end + 1 for _, end, _ in marks if end < ends[-1]], default=begin)
    inside = [
        statement for statement in ast.walk(tree) if isinstance(statement, ast.stmt) and after <= statement.lineno
    ]
    own = [statement for statement in inside if (statement.end_lineno or 0) < ends[-1]]
    return [min(each.lineno for each in own), max(each.end_lineno or 0 for each in own)] if own else None


def _marks(tree: Function, marking: set[str]) -> Iterator[tuple[int, int, str | None]]:
    """Yield the first and last lines of statements that end phases: by a mark, named, or in methods that they call."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        marked, calls = _marked_phase(node), _called_method(node) in marking
        if not (marked or calls):
            continue
        statement = node
        while not isinstance(statement, ast.stmt):
            statement = parents[statement]
        above = parents[statement]
        if marked and isinstance(above, ast.If) and "trace" in ast.unparse(above.test):
            statement = above
        yield statement.lineno, statement.end_lineno or statement.lineno, marked


@cache
def _marking(cls: type) -> set[str]:
    """Return the methods of a class that mark a phase, or call a method that does."""
    trees = {name: _tree(inspect.unwrap(method)) for name, method in inspect.getmembers(cls, inspect.isfunction)}
    known = {name: list(ast.walk(tree)) for name, tree in trees.items() if tree}
    marking = {name for name, nodes in known.items() if any(map(_marked_phase, nodes))}
    while more := {
        name
        for name, nodes in known.items()
        if name not in marking and any(_called_method(node) in marking for node in nodes)
    }:
        marking |= more
    return marking


def _marked_phase(node: ast.AST) -> str | None:
    """`CONDENSE` of `....mark(Phase.CONDENSE, ...)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="mark"), args=[ast.Attribute(value=ast.Name(id="Phase"), attr=name), *_]):
            return name
    return None


def _called_method(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name
    return None

"""Sentences with a pass's own values in them, from templates kept as data. webui/static/template.js has the same lines.

A placeholder names a value and what is done to it:

    {query_start_loc}              a fact of the phase; lists are shortened
    {schedule.running.0}           a fact of another phase, and a part of it: a name, an index (-1: the last), `length`
    {forward.@took|time}           of a phase's record: @start, @end and @took in ns, @changes
    {moved|count:row}              a filter and its argument: a word, a number or another value's name

A condition is `NAME`, `not NAME`, or `NAME OP VALUE`. A value that was not recorded fulfils none of them, and a
sentence that needs one is left out.
"""

import operator
import re
from collections.abc import Callable
from typing import Any

from tracer.schema import PassRecord, PhaseRecord

Template = dict[str, Any]

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
MOST_VALUES = 8  # of a list
MOST_NAMES = 5  # in "a, b and c"
MOST_EACH = 4  # sentences that an `each` makes
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "in": lambda item, items: item in items,
}


class Scope:
    """Where names are looked up: one phase of a record, the other phases, and `it`, one item of a list."""

    def __init__(self, record: PassRecord, phase: str, it: Any = None) -> None:
        self.record = record
        self.phases: dict[str, PhaseRecord] = {each.phase: each for each in record.phases}
        self.phase = phase
        self.it = it

    def value(self, expression: str) -> Any:
        """Return the value of a placeholder, None where it was not recorded."""
        name, *filters = expression.split("|")
        value = self.named(name)
        for each in filters:
            if value is None:
                return None
            word, _, argument = each.partition(":")
            value = FILTERS[word](value, argument) if word in WORDY else FILTERS[word](value, self.named(argument))
        return value

    def named(self, name: str) -> Any:
        """Return the value without filters; a number or a 'word' stands for itself."""
        if re.fullmatch(r"-?\d+", name):
            return int(name)
        if name.startswith("'"):
            return name[1:-1]
        head, *rest = name.split(".")
        value: Any = self.it
        if head != "it":
            facts = self._facts(self.phase)
            if facts is not None and (head in facts or head.startswith("@")):
                value, rest = facts, [head, *rest]
            else:
                value = self._facts(head)
        for part in rest:
            value = _part(value, part)
        return value

    def holds(self, conditions: str | list[str]) -> bool:
        """Whether all conditions hold."""
        return all(self._holds(each) for each in ([conditions] if isinstance(conditions, str) else conditions))

    def _holds(self, condition: str) -> bool:
        if condition.startswith("not "):
            value = self.value(condition[4:])
            return value is not None and not value
        left, *compared = condition.split(" ")
        if not compared:
            return bool(self.value(left))
        one, other = self.value(left), self.value(compared[1])
        return one is not None and other is not None and bool(OPERATORS[compared[0]](one, other))

    def _facts(self, phase: str) -> dict[str, Any] | None:
        record = self.phases.get(phase)
        if record is None:
            return None
        times = {"@start": record.start, "@end": record.end, "@took": record.end - record.start}
        return {**record.facts, **times, "@changes": record.changes}


def paragraph(groups: list[Any], scope: Scope) -> str:
    """Put together what a list of groups says. A group is a case, a list of cases of which the first that holds counts,
    or {"each": a list, "say": cases with `it` for each of its items, "more": a text with {it}, how many were left out}.
    """
    return " ".join(sentence for group in groups for sentence in _sentences(group, scope))


def _sentences(group: Any, scope: Scope) -> list[str]:
    if "each" not in group:
        cases = group if isinstance(group, list) else [group]
        said = next((text for case in cases if (text := _said(case, scope)) is not None), None)
        return [] if said is None else [said]
    items = scope.value(group["each"]) or []
    said_of_each = [_sentences(group["say"], Scope(scope.record, scope.phase, it)) for it in items[:MOST_EACH]]
    sentences = [sentence for each in said_of_each for sentence in each]
    if sentences and len(items) > MOST_EACH:
        sentences += _sentences({"text": group["more"]}, Scope(scope.record, scope.phase, len(items) - MOST_EACH))
    return sentences


def _said(case: Template, scope: Scope) -> str | None:
    if not scope.holds(case.get("when", [])):
        return None
    values = {name: scope.value(name) for name in PLACEHOLDER.findall(case["text"])}
    if None in values.values():
        return None
    return PLACEHOLDER.sub(lambda found: words(values[found[1]]), case["text"])


def words(value: Any) -> str:
    """Return a value in few characters: lists in brackets and shortened, T and F for masks."""
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, list | tuple):
        shown = ", ".join(map(words, value[:MOST_VALUES]))
        return f"[{shown}, … {len(value)} in all]" if len(value) > MOST_VALUES else f"[{shown}]"
    return "none" if value is None else str(value)


def duration(ns: int) -> str:
    """Return nanoseconds in the unit that reads best."""
    if ns < 10_000:
        return f"{_rounded(ns, 100) / 10:.1f} µs"
    if ns < 1_000_000:
        return f"{_rounded(ns, 1000)} µs"
    if ns < 10_000_000:
        return f"{_rounded(ns, 10_000) / 100:.2f} ms"
    if ns < 1_000_000_000:
        return f"{_rounded(ns, 100_000) / 10:.1f} ms"
    return f"{_rounded(ns, 10_000_000) / 100:.2f} s"


def _rounded(value: int, by: int) -> int:
    return (2 * value + by) // (2 * by)


def _part(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, len(value) if name == "length" else None)
    if not isinstance(value, list | tuple):
        return None
    if name == "length":
        return len(value)
    index = int(name) if re.fullmatch(r"-?\d+", name) else len(value)
    return value[index] if -len(value) <= index < len(value) else None


def _joined(items: list[Any], _: str = "") -> str:
    names = [words(item) for item in items]
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _counted(value: Any, noun: str) -> str:
    number = value if isinstance(value, int) else len(value)
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _named(items: list[Any], noun: str) -> str:
    return f"{noun} {_joined(items)}" if len(items) == 1 else f"{noun}s {_joined(items)}"


def _at(value: Any, key: Any) -> Any:
    return None if key is None else _part(value, str(key))


WORDY = {"count", "named", "and", "time", "pick", "with", "where", "where_not", "sum", "min", "max", "sorted", "items"}
FILTERS: dict[str, Callable[[Any, Any], Any]] = {
    "count": _counted,  # [4, 5]|count:row is "2 rows"
    "named": _named,  # [4, 5]|named:row is "rows 4 and 5"
    "and": _joined,  # [4, 5]|and is "4 and 5"
    "time": lambda ns, _: duration(ns),
    "pick": lambda items, name: [_part(item, name) for item in items],
    "with": lambda items, head: [item for item in items if item[0] == head],
    "where": lambda items, _: [i for i, item in enumerate(items) if item],
    "where_not": lambda items, _: [i for i, item in enumerate(items) if not item],
    "sum": lambda items, _: sum(items),
    "min": lambda items, _: min(items, default=None),
    "max": lambda items, _: max(items, default=None),
    "sorted": lambda items, _: sorted(items),
    "items": lambda mapping, _: [[key, mapping[key]] for key in sorted(mapping)],
    "at": _at,
    "through": lambda keys, mapping: [_at(mapping, key) for key in keys],
    "join": lambda items, others: [*items, *(others or [])],
    "zip": lambda items, others: [[a, b] for a, b in zip(items, others or [], strict=False)],
    "both": lambda items, others: [item for item in items if item in (others or [])],
    "without": lambda items, others: [item for item in items if item not in (others or [])],
    "plus": lambda a, b: None if b is None else a + b,
    "minus": lambda a, b: None if b is None else a - b,
    "times": lambda a, b: None if b is None else a * b,
    "div": lambda a, b: a // b if b else None,
    "mod": lambda a, b: a % b if b else None,
}

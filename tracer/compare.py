"""The one comparator, for conformance, for check mode and for tests of the page."""

from typing import Any


def first_difference(expected: Any, actual: Any, path: str = "") -> str | None:
    """Return where two plain values (maps, lists, scalars) first differ and how, or None where they are equal."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _difference_of_maps(expected, actual, path)
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        for i, (left, right) in enumerate(zip(expected, actual, strict=False)):
            if difference := first_difference(left, right, f"{path}[{i}]"):
                return difference
        if len(expected) != len(actual):
            return f"{path}: expected {len(expected)} items, got {len(actual)}"
        return None
    if type(expected) is not type(actual) and not (_number(expected) and _number(actual)):
        return f"{path}: expected {expected!r}, got {actual!r}"
    return None if expected == actual else f"{path}: expected {expected!r}, got {actual!r}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _difference_of_maps(expected: dict[Any, Any], actual: dict[Any, Any], path: str) -> str | None:
    for key, value in expected.items():
        if key not in actual:
            return f"{path}.{key}: expected {value!r}, got nothing"
        if difference := first_difference(value, actual[key], f"{path}.{key}"):
            return difference
    extra = [key for key in actual if key not in expected]
    return f"{path}.{extra[0]}: expected nothing, got {actual[extra[0]]!r}" if extra else None

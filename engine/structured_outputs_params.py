"""What a request's output must look like, under vLLM's names."""

import json
from typing import Any

import msgspec

MAX_SPEC_BYTES = 64 * 1024
KINDS = ("json", "json_object", "regex", "choice", "grammar")


class StructuredOutputsParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one field is set. `verify` raises ValueError, naming the field and what it must be."""

    json: dict[str, Any] | str | None = None  # a JSON schema; {} allows any JSON value
    json_object: bool | None = None  # any JSON object
    regex: str | None = None  # matches the whole output
    choice: list[str] | None = None  # one of these
    grammar: str | None = None  # Lark, or EBNF as llama.cpp writes it (root ::= ...)

    @property
    def kind(self) -> str:
        """The name of the field that is set. Raises ValueError unless it is one."""
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None and getattr(self, kind) is not False]
        if len(kinds) != 1:
            got = " and ".join(kinds) or "none"
            raise ValueError(f"structured_outputs must have one of {', '.join(KINDS)}, got {got}")
        return kinds[0]

    @property
    def spec(self) -> str:
        """What is compiled, as text: the JSON schema, the expression, the grammar, or a JSON list of choices."""
        value = getattr(self, self.kind)
        if self.kind == "json_object":
            return '{"type": "object"}'
        return value if isinstance(value, str) else json.dumps(value)

    def verify(self) -> None:
        """Raise ValueError where no field or several are set, or what the field holds is empty, not JSON or long."""
        kind = self.kind
        if kind == "choice":
            _check(bool(self.choice) and all(self.choice or ()), kind, "a list of texts that are not empty")
        elif kind == "json":
            _check(_is_schema(self.json), kind, "a JSON schema: an object, or the text of one")
        elif kind != "json_object":
            _check(bool(getattr(self, kind).strip()), kind, "text that is not empty")
        size = len(self.spec.encode("utf-8", "replace"))
        _check(size <= MAX_SPEC_BYTES, kind, f"at most {MAX_SPEC_BYTES} bytes, got {size}")


def _is_schema(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return len(value) > MAX_SPEC_BYTES or isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _check(holds: bool, kind: str, allowed: str) -> None:
    if not holds:
        raise ValueError(f"structured_outputs.{kind} must be {allowed}")

"""Tools: what a model may be made to call, and its answer as calls. The grammar holds it to the functions' schemas."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from webui.errors import ApiError

AUTO = (
    'tool_choice "auto" is not supported, and it is what tools alone mean: send "required", "none" or '
    '{"type": "function", "function": {"name": ...}}'
)


class Function(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`strict` makes no difference: the grammar always holds."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    function: Function
    type: Literal["function"] = "function"


class ToolName(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class NamedTool(msgspec.Struct, forbid_unknown_fields=True):
    function: ToolName
    type: Literal["function"] = "function"


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str  # JSON

    def for_template(self, call_id: str) -> dict[str, Any]:
        """Return the call as chat templates expect it, its arguments as a map where they are one."""
        try:
            arguments = msgspec.json.decode(self.arguments)
        except msgspec.DecodeError:
            arguments = self.arguments
        return {"id": call_id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


ToolChoice = str | NamedTool | None


def check(tools: list[Tool], choice: ToolChoice) -> None:
    """Raises ApiError 400 for a choice that the tools do not allow, or that needs a parser for each model."""
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise ApiError(400, f"tools: each function needs a name of its own, got {', '.join(names)}", "tools")
    if choice == "auto" or (tools and choice is None):
        raise ApiError(400, AUTO, "tool_choice")
    if choice not in (None, "none") and not tools:
        raise ApiError(400, "tool_choice needs tools", "tool_choice")
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise ApiError(400, f"tool_choice names {choice.function.name!r}, and tools has {', '.join(names)}",
                       "tool_choice")  # fmt: skip


def callable_tools(tools: list[Tool], choice: ToolChoice) -> list[Tool]:
    """Return the tools of which one must be called."""
    if isinstance(choice, NamedTool):
        return [tool for tool in tools if tool.function.name == choice.function.name]
    return tools if choice == "required" else []


def schema(called: list[Tool], choice: ToolChoice, parallel: bool) -> dict[str, Any]:
    """Return the JSON schema of the answer: a function's arguments, or a list of calls where the model may choose."""
    if isinstance(choice, NamedTool):
        return _parameters(called[0])
    definitions: dict[str, Any] = {}
    calls = []
    for tool in called:
        parameters = dict(_parameters(tool))
        for key in ("$defs", "definitions"):  # references to them start at the root
            mine = parameters.pop(key, {})
            if not isinstance(mine, dict):
                raise ApiError(400, f"tools: {key} must be an object", "tools")
            for name, definition in mine.items():
                if definitions.setdefault(key, {}).setdefault(name, definition) != definition:
                    raise ApiError(400, f"tools: two functions define {name!r} in {key}, each its own way", "tools")
        calls.append({
            "type": "object",
            "properties": {"name": {"const": tool.function.name}, "parameters": parameters},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        })  # fmt: skip
    most = {} if parallel else {"maxItems": 1}
    return {"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}, **definitions}


def told_in_system_message(messages: list[dict[str, Any]], called: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the messages with the functions described in the first: for chat templates that have no place for them."""
    functions = [msgspec.json.encode(tool.function).decode() for tool in called]
    words = "\n".join(["You can call these functions. Answer with JSON alone.", *functions])
    if messages[0]["role"] == "system":
        first = messages[0] | {"content": f"{messages[0]['content']}\n\n{words}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]


def _parameters(tool: Tool) -> dict[str, Any]:
    return tool.function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}

"""The body of POST /v1/chat/completions, and the messages in it."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from engine.admission import check_length
from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from webui import tools
from webui.errors import ApiError
from webui.request_fields import NOT_AVAILABLE, Int, RequestFields
from webui.tools import FunctionCall, NamedTool, Tool

# Beside those of every request.
NOT_IN_CHAT: dict[str, tuple[Any, ...]] = NOT_AVAILABLE | {
    "functions": ([],),
    "function_call": ("none",),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "echo": (False,),
    "add_special_tokens": (False,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "continue_final_message": (False,),
    "mm_processor_kwargs": ({},),
    "moderation": (),
}
EMPTY_IN_MESSAGES = ("refusal", "annotations", "audio", "function_call", "tool_calls", "parsed")


class TextPart(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call that an earlier answer made."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return what chat templates expect: text for content, and "system" for the newer name of that role."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "\n".join(part.text for part in content)
        rest = {name: getattr(self, name) for name in ("name", "tool_call_id") if getattr(self, name) is not None}
        calls = {"tool_calls": [call.function.for_template(call.id) for call in self.tool_calls or ()]}
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": content, **rest, **(calls if self.tool_calls else {})}


class ChatRequest(RequestFields, kw_only=True):
    """Field names and defaults of the OpenAI API and of vLLM's additions; null means the default."""

    messages: list[Message]
    max_tokens: int | None = None  # as many as fit
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool = True

    @classmethod
    def read(cls, body: dict[str, Any]) -> "ChatRequest":
        """Raises ApiError 400 for a wrong type, a field that is missing, and one that cannot be honoured."""
        request = super().read(without_empty_fields(body))
        if not request.messages:
            raise ApiError(400, "messages must not be empty", "messages")
        if request.top_logprobs is not None and not request.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs to be true", "top_logprobs")
        tools.check(request.tools or [], request.tool_choice)
        return request

    @classmethod
    def not_available(cls) -> dict[str, tuple[Any, ...]]:
        return NOT_IN_CHAT

    @property
    def called_tools(self) -> list[Tool]:
        """The functions that the answer must call one of, none where it is plain text."""
        return tools.callable_tools(self.tools or [], self.tool_choice)

    def prompt(self, tokenizer: Tokenizer, config: EngineConfig) -> list[int]:
        """Return the conversation's token ids in the model's own form. Raises ApiError 400."""
        messages = [message.plain() for message in self.messages]
        try:
            check_length("".join(message["content"] for message in messages), config)
        except ValueError as error:
            raise ApiError(400, str(error), "messages") from None
        return encode_chat(tokenizer, messages, self.add_generation_prompt, self.called_tools)

    def sampling_params(self) -> SamplingParams:
        """Raises ApiError 400 where a value is out of range."""
        more: dict[str, Any] = {"max_tokens": self._max_tokens()}
        if self.logprobs:
            more["logprobs"] = self.top_logprobs or 0
        if called := self.called_tools:
            if self._constraint() is not None:
                raise ApiError(400, f"tool_choice {self._choice_words()} leaves no room for another constraint",
                               "tool_choice")  # fmt: skip
            parallel = self.parallel_tool_calls is not False
            more["structured_outputs"] = {"json": tools.schema(called, self.tool_choice, parallel)}
        return self.make_params(**more)

    def _max_tokens(self) -> int | None:
        newer, older = self.max_completion_tokens, self.max_tokens
        if newer is not None and older is not None and newer != older:
            raise ApiError(400, "max_tokens is the older name of max_completion_tokens: give one", "max_tokens")
        return older if newer is None else newer

    def _choice_words(self) -> str:
        choice = self.tool_choice
        return repr(choice.function.name if isinstance(choice, NamedTool) else choice)


def encode_chat(
    tokenizer: Tokenizer,
    messages: list[dict[str, Any]],
    add_generation_prompt: bool = True,
    called: Sequence[Tool] = (),
) -> list[int]:
    """Return the token ids of a conversation in the model's own form. Raises ApiError 400 where it has none."""
    described = [msgspec.to_builtins(tool) for tool in called]
    if described and not tokenizer.template_takes_tools:
        messages = tools.told_in_system_message(messages, called)
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt, described or None)
    except ValueError as error:
        raise ApiError(400, str(error), "messages") from None
    return tokenizer.encode(text, add_special_tokens=False)


def without_empty_fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without the nulls that clients send back in an earlier answer's message."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    return body | {"messages": [_without_empty(message) for message in messages]}


def _without_empty(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if value not in (None, []) or name not in EMPTY_IN_MESSAGES}

"""What POST /v1/chat/completions answers with, streamed or whole, in words or in calls of tools."""

import secrets
from typing import Any

from engine.output_processor import RequestOutput
from webui.answer import Answer, Choice, new_head, prompt_logprobs_of, to_json
from webui.logprob_shapes import TokenBytes, chat_logprobs
from webui.tool_calls import CallList

ROLE = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'


class Chat(Answer):
    """The answer to one call: n choices for the one conversation."""

    def __init__(
        self,
        call_id: str,
        model: str,
        token_bytes: TokenBytes,
        n: int = 1,
        usage_in_stream: str = "none",
        stream: bool = False,
        logprobs: int | None = None,
        named_tool: str | None = None,
        calls_tools: bool = False,
    ) -> None:
        """`named_tool`: the answer is its arguments; `calls_tools`: the answer is a list of calls."""
        kind = "chat.completion.chunk" if stream else "chat.completion"
        super().__init__(new_head("chatcmpl", call_id, kind, model), 1, n, usage_in_stream)
        self._token_bytes = token_bytes
        self._logprobs = logprobs
        self._named_tool = named_tool
        self._calls = [CallList() for _ in range(n)] if calls_tools else None
        self._greeted: set[int] = set()

    def chunk(self, prompt: int, output: RequestOutput) -> bytes:
        choice = self.take(prompt, output)
        events = b""
        if choice.index not in self._greeted:
            self._greeted.add(choice.index)
            events = self.event(choice, ROLE) + self._first_of_named_tool(choice)
        delta = self._delta(choice, output)
        if not delta and output.finish_reason is None and not output.logprobs:
            return events
        logprobs = b"null"
        if output.logprobs and self._logprobs is not None:
            logprobs = to_json(chat_logprobs(output.logprobs, output.token_ids, self._logprobs, self._token_bytes))
        reason = output.finish_reason and self._finish_reason(choice)
        return events + self.event(choice, b'"delta":%s,"logprobs":%s,"finish_reason":%s,"stop_reason":%s' % (
            to_json(delta), logprobs, to_json(reason), to_json(output.stop_reason)
        ))  # fmt: skip

    def whole(self) -> bytes:
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "refusal": None, **self._message(choice)},
                "logprobs": None if self._logprobs is None else chat_logprobs(
                    choice.logprobs, choice.token_ids, self._logprobs, self._token_bytes
                ),
                "finish_reason": self._finish_reason(choice),
                "stop_reason": choice.stop_reason,
            }
            for choice in self.choices
        ]  # fmt: skip
        return to_json({**self.head, "choices": choices, "usage": self.usage(), **prompt_logprobs_of(self.choices[0])})

    def _message(self, choice: Choice) -> dict[str, Any]:
        if self._named_tool:
            return {"content": None, "tool_calls": [_call(self._named_tool, choice.text)]}
        if self._calls:
            calls = self._calls[choice.index]
            made = [_call(name, arguments) for name, arguments in calls.feed(choice.text)]
            return {"content": calls.rest or None, "tool_calls": made} if made else {"content": choice.text}
        return {"content": choice.text}

    def _first_of_named_tool(self, choice: Choice) -> bytes:
        if not self._named_tool:
            return b""
        delta = to_json({"tool_calls": [{"index": 0, **_call(self._named_tool, "")}]})
        return self.event(choice, b'"delta":%s,"logprobs":null,"finish_reason":null' % delta)

    def _delta(self, choice: Choice, output: RequestOutput) -> dict[str, Any]:
        """Return what is new: text, a piece of a named tool's arguments, or whole calls as they are complete."""
        text = output.text_delta
        if self._named_tool:
            return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]} if text else {}
        if self._calls:
            calls = self._calls[choice.index]
            first = calls.num_calls
            made = [
                {"index": first + i, **_call(name, arguments)} for i, (name, arguments) in enumerate(calls.feed(text))
            ]
            cut = {"content": calls.rest} if output.finish_reason and calls.rest else {}
            return ({"tool_calls": made} if made else {}) | cut
        return {"content": text} if text else {}

    def _finish_reason(self, choice: Choice) -> str | None:
        """Return the reason; an answer that the model ended itself after calls has one of its own."""
        called = self._calls and self._calls[choice.index].num_calls
        return "tool_calls" if called and choice.finish_reason == "stop" else choice.finish_reason


def _call(name: str, arguments: str) -> dict[str, Any]:
    call_id = f"call_{secrets.token_hex(12)}"
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

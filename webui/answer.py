"""What a call is answered with, as it grows: n choices for each prompt."""

import time
from typing import Any

import msgspec

from engine.logprobs import Position
from engine.output_processor import RequestOutput
from webui.logprob_shapes import finite

to_json = msgspec.json.encode


class Choice:
    """One answer to one prompt. `token_ids` and `logprobs` go together; the latter stays empty where nobody asked."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[Position] = []
        self.prompt_logprobs: list[Position | None] | None = None
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None

    def add(self, output: RequestOutput) -> None:
        self.text += output.text_delta
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs or []
        self.prompt_logprobs = output.prompt_logprobs or self.prompt_logprobs
        self.num_prompt_tokens = output.num_prompt_tokens
        self.num_output_tokens = output.num_output_tokens
        self.num_cached_tokens = max(self.num_cached_tokens, output.num_cached_tokens)
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason


class Answer:
    """The part that completions and chat completions share. Choices 0..n-1 are the first prompt's, and so on."""

    def __init__(self, head: dict[str, Any], num_prompts: int, n: int, usage_in_stream: str) -> None:
        """`head`: the fields that every chunk starts with; `usage_in_stream` is "none", "last" or "each"."""
        self.head = head
        self.choices = [Choice(index) for index in range(num_prompts * n)]
        self._n = n
        self._usage_in_stream = usage_in_stream
        self._start = b"data: " + to_json(head)[:-1] + b',"choices":['
        self._end = b"]}\n\n" if usage_in_stream == "none" else b'],"usage":null}\n\n'

    def take(self, prompt: int, output: RequestOutput) -> Choice:
        """Add an output to the choice that it belongs to, and return that choice."""
        choice = self.choices[prompt * self._n + output.index]
        choice.add(output)
        return choice

    def chunk(self, prompt: int, output: RequestOutput) -> bytes:
        """Take what is new of one choice; return its events, none where there is no news to send."""
        raise NotImplementedError

    def whole(self) -> bytes:
        """Return the answer that is not streamed."""
        raise NotImplementedError

    def usage_chunk(self) -> bytes:
        """Return the last event, which has no choices; nothing where the client did not ask for it."""
        if self._usage_in_stream == "none":
            return b""
        return b"data: " + to_json({**self.head, "choices": [], "usage": self.usage()}) + b"\n\n"

    def event(self, choice: Choice, fields: bytes) -> bytes:
        """Return one chunk with `fields`, which are JSON without its braces, of one choice."""
        end = self._end
        if self._usage_in_stream == "each":
            end = b'],"usage":' + to_json(usage([choice], 1)) + b"}\n\n"
        return self._start + b'{"index":%d,%s}' % (choice.index, fields) + end

    def usage(self) -> dict[str, Any]:
        return usage(self.choices, self._n)


def new_head(prefix: str, call_id: str, kind: str, model: str) -> dict[str, Any]:
    """Return the fields that an answer and each of its chunks start with."""
    return {"id": f"{prefix}-{call_id}", "object": kind, "created": int(time.time()), "model": model}


def usage(choices: list[Choice], n: int) -> dict[str, Any]:
    """Count tokens; n choices have one prompt."""
    prompt = sum(choice.num_prompt_tokens for choice in choices[::n])
    output = sum(choice.num_output_tokens for choice in choices)
    cached = sum(choice.num_cached_tokens for choice in choices[::n])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def prompt_logprobs_of(choice: Choice) -> dict[str, Any]:
    """Return the field `prompt_logprobs` in vLLM's shape, nothing where nobody asked for it."""
    if choice.prompt_logprobs is None:
        return {}
    shaped: list[dict[str, Any] | None] = [
        None if position is None else {
            str(token_id): {"logprob": finite(at.logprob), "rank": at.rank, "decoded_token": at.decoded_token}
            for token_id, at in position.items()
        }
        for position in choice.prompt_logprobs
    ]  # fmt: skip
    return {"prompt_logprobs": shaped}

"""What POST /v1/completions answers with, streamed or whole."""

import time
from typing import Any

import msgspec

from engine.output_processor import RequestOutput

_json = msgspec.json.encode


class Choice:
    """One prompt's answer as it grows."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None

    def add(self, output: RequestOutput) -> None:
        self.text.append(output.text_delta)
        self.num_prompt_tokens = output.num_prompt_tokens
        self.num_output_tokens = output.num_output_tokens
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason


class Completion:
    """The answer to one call: a choice for each prompt."""

    def __init__(self, completion_id: str, model: str, num_prompts: int, usage_in_stream: str = "none") -> None:
        """`usage_in_stream` is "none", "last" (one last chunk) or "each" (in every chunk as well)."""
        self.choices = [Choice() for _ in range(num_prompts)]
        self._head = {
            "id": f"cmpl-{completion_id}", "object": "text_completion", "created": int(time.time()), "model": model
        }  # fmt: skip
        self._usage_in_stream = usage_in_stream
        start = b"data: " + _json(self._head)[:-1] + b',"choices":[{"index":'
        self._starts = [start + b'%d,"text":' % index for index in range(num_prompts)]
        self._end = b"}]}\n\n" if usage_in_stream == "none" else b'}],"usage":null}\n\n'

    def chunk(self, index: int, output: RequestOutput) -> bytes:
        """Take what is new of one choice; return its event, or nothing where there is no news to send."""
        choice = self.choices[index]
        choice.add(output)
        if not output.text_delta and not output.finished:
            return b""
        ends = b',"logprobs":null,"finish_reason":%s,"stop_reason":%s' % (
            _json(output.finish_reason), _json(output.stop_reason)
        )  # fmt: skip
        end = self._end
        if self._usage_in_stream == "each":
            end = b'}],"usage":' + _json(_usage([choice])) + b"}\n\n"
        return self._starts[index] + _json(output.text_delta) + ends + end

    def usage_chunk(self) -> bytes:
        """Return the last event, which has no choices; nothing where the client did not ask for it."""
        if self._usage_in_stream == "none":
            return b""
        return b"data: " + _json({**self._head, "choices": [], "usage": _usage(self.choices)}) + b"\n\n"

    def whole(self) -> bytes:
        """Return the answer that is not streamed."""
        choices = [
            {
                "index": index,
                "text": "".join(choice.text),
                "logprobs": None,
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for index, choice in enumerate(self.choices)
        ]
        return _json({**self._head, "choices": choices, "usage": _usage(self.choices)})


def _usage(choices: list[Choice]) -> dict[str, Any]:
    prompt = sum(choice.num_prompt_tokens for choice in choices)
    output = sum(choice.num_output_tokens for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}

"""What POST /v1/completions answers with, streamed or whole."""

from typing import Any

from engine.output_processor import RequestOutput
from webui.answer import Answer, Choice, new_head, prompt_logprobs_of, to_json
from webui.logprob_shapes import completion_logprobs


class EchoedPrompt:
    """A prompt that goes before its answers, and the texts of its tokens."""

    def __init__(self, text: str, token_ids: list[int], first_token: str) -> None:
        self.text = text
        self.token_ids = token_ids
        self.first_token = first_token


class Completion(Answer):
    """The answer to one call: n choices for each prompt."""

    def __init__(
        self,
        call_id: str,
        model: str,
        num_prompts: int,
        n: int = 1,
        usage_in_stream: str = "none",
        logprobs: int | None = None,
        echoed: list[EchoedPrompt] | None = None,
        show_prompt_logprobs: bool = False,
    ) -> None:
        """`echoed` has one entry a prompt where the answers begin with them."""
        super().__init__(new_head("cmpl", call_id, "text_completion", model), num_prompts, n, usage_in_stream)
        self._logprobs = logprobs
        self._echoed = echoed
        self._show_prompt_logprobs = show_prompt_logprobs
        self._begun = [False] * len(self.choices)  # whether chunks have carried text of each choice
        self._offsets = [0] * len(self.choices)  # where in each choice's text its next token begins

    def chunk(self, prompt: int, output: RequestOutput) -> bytes:
        choice = self.take(prompt, output)
        if not output.text_delta and output.finish_reason is None and not output.logprobs:
            return b""
        text = output.text_delta
        if self._echoed and not self._begun[choice.index]:
            text = self._echoed[prompt].text + text
        self._begun[choice.index] = True
        logprobs = b"null"
        if output.logprobs and self._logprobs is not None:
            start = self._offsets[choice.index]
            shaped = completion_logprobs(output.logprobs, output.token_ids, self._logprobs, start)
            self._offsets[choice.index] += sum(map(len, shaped["tokens"]))
            logprobs = to_json(shaped)
        return self.event(choice, b'"text":%s,"logprobs":%s,"finish_reason":%s,"stop_reason":%s' % (
            to_json(text), logprobs, to_json(output.finish_reason), to_json(output.stop_reason)
        ))  # fmt: skip

    def whole(self) -> bytes:
        choices = [
            {
                "index": choice.index,
                "text": self._prompt_of(choice).text + choice.text if self._echoed else choice.text,
                "logprobs": self._logprobs_of(choice),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
                **(prompt_logprobs_of(choice) if self._show_prompt_logprobs else {}),
            }
            for choice in self.choices
        ]
        return to_json({**self.head, "choices": choices, "usage": self.usage()})

    def _prompt_of(self, choice: Choice) -> EchoedPrompt:
        assert self._echoed
        return self._echoed[choice.index // self._n]

    def _logprobs_of(self, choice: Choice) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        if not self._echoed:
            return completion_logprobs(choice.logprobs, choice.token_ids, self._logprobs)
        prompt = self._prompt_of(choice)
        nothing = [None] * len(prompt.token_ids)  # where the request was aborted before its first pass
        positions = [*(choice.prompt_logprobs or nothing), *choice.logprobs]
        shaped = completion_logprobs(positions, prompt.token_ids + choice.token_ids, self._logprobs)
        shaped["tokens"][0] = prompt.first_token  # the first position has no logprobs to name it
        shaped["text_offset"] = [0, *(offset + len(prompt.first_token) for offset in shaped["text_offset"][1:])]
        return shaped

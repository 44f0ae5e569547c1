"""The body of POST /v1/completions: what it may hold, and what it may not ask for yet."""

from typing import Any

import msgspec

from engine.sampling_params import SamplingParams
from webui.errors import ApiError
from webui.json_body import convert

# Fields that would change the result and that the engine does not know, with the values that change nothing.
NOT_YET: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (),
    "prompt_logprobs": (),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "truncate_prompt_tokens": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "logits_processors": ([],),
    "prompt_embeds": (),
    "return_token_ids": (False,),
    "add_special_tokens": (True,),
}
SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "seed", "min_tokens", "stop", "stop_token_ids",
                   "ignore_eos", "include_stop_str_in_output", "skip_special_tokens")  # fmt: skip


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class CompletionRequest(msgspec.Struct, kw_only=True):
    """Field names and defaults of the OpenAI API and of vLLM's additions; null means the default."""

    prompt: str | list[str | int | list[int]]
    model: str | None = None
    max_tokens: int | None = 16  # null: as many as fit
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int = 0

    @classmethod
    def read(cls, body: dict[str, Any]) -> "CompletionRequest":
        """Raises ApiError 400 for a wrong type, a field that is missing, or one that is not available yet."""
        for name, neutral in NOT_YET.items():
            if body.get(name) is not None and body[name] not in neutral:
                raise ApiError(400, f"{name} is not available yet: leave it out", name)
        request = convert(body, cls)
        if request.stream_options is not None and not request.stream:
            raise ApiError(400, "stream_options needs stream to be true", "stream_options")
        return request

    def prompts(self) -> list[str | list[int]]:
        """Return each prompt as text or as token ids. Raises ApiError 400 for a mixed or empty list."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not prompt:
            raise ApiError(400, "prompt must not be empty", "prompt")
        if all(isinstance(item, int) for item in prompt):
            return [prompt]  # type: ignore[list-item]
        if all(isinstance(item, str) for item in prompt) or all(isinstance(item, list) for item in prompt):
            return prompt  # type: ignore[return-value]
        raise ApiError(400, "prompt must be text, token ids, or a list of one of the two kinds", "prompt")

    def sampling_params(self) -> SamplingParams:
        """Raises ApiError 400 where a value is out of range."""
        values = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        try:
            return SamplingParams.make(max_tokens=self.max_tokens, **values)
        except ValueError as error:
            raise ApiError(400, str(error), str(error).split()[0]) from None

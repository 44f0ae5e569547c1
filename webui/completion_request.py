"""The body of POST /v1/completions."""

from engine.sampling_params import SamplingParams
from webui.errors import ApiError
from webui.request_fields import Int, RequestFields


class CompletionRequest(RequestFields, kw_only=True):
    """Field names and defaults of the OpenAI API and of vLLM's additions; null means the default."""

    prompt: str | list[str | int | list[int]]
    max_tokens: int | None = 16  # null: as many as fit
    logprobs: Int | None = None
    echo: bool | None = None
    add_special_tokens: bool = True

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
        params = self.make_params(max_tokens=self.max_tokens, logprobs=self.logprobs)
        if self.echo and params.logprobs is not None:
            if self.stream:
                raise ApiError(400, "echo with logprobs needs stream to be false", "echo")
            params.prompt_logprobs = params.logprobs if params.prompt_logprobs is None else params.prompt_logprobs
        return params

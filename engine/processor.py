"""Checks what a user asks for and makes it into what the engine core takes."""

import time
from typing import Protocol

import msgspec

from engine.admission import check_fits, most_tokens
from engine.config import EngineConfig
from engine.messages import EngineCoreRequest
from engine.sampling_params import SamplingParams

Prompt = str | list[int]


class TokenizerLike(Protocol):
    """What the engine needs of a tokenizer."""

    vocab_size: int
    eos_token_id: int | None
    eos_token_ids: list[int]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


class Processor:
    """Every refusal is a ValueError with one sentence that says what is wrong and what would do."""

    def __init__(self, config: EngineConfig, tokenizer: TokenizerLike) -> None:
        """`config` is resolved, with num_gpu_blocks known."""
        self._config = config
        self._tokenizer = tokenizer
        self._vocab_size: int = config.model_config.hf_config["vocab_size"]

    def process(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        priority: int = 0,
        cache_salt: str | None = None,
        submission: int = 0,
    ) -> EngineCoreRequest:
        """Return the request, tokenized, with max_tokens cut to what can follow the prompt. Raises ValueError."""
        prompt_token_ids = self._tokenize(prompt)
        return EngineCoreRequest(
            request_id,
            prompt_token_ids,
            self._sampling_params(len(prompt_token_ids), params),
            time.time(),
            priority,
            cache_salt,
            submission,
        )

    def _tokenize(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            prompt = self._tokenizer.encode(prompt)
        elif not (isinstance(prompt, list) and all(type(token_id) is int for token_id in prompt)):
            raise ValueError("the prompt must be a string or a list of token ids")
        if not prompt:
            raise ValueError("the prompt is empty: give at least one token")
        self._check_vocabulary("prompt", prompt)
        return prompt

    def _sampling_params(self, num_prompt_tokens: int, params: SamplingParams) -> SamplingParams:
        params.verify()
        self._check_vocabulary("stop_token_ids", params.stop_token_ids)
        most = most_tokens(num_prompt_tokens, self._config)
        assert self._config.model_config.max_model_len is not None
        max_tokens = most
        if params.max_tokens is not None:
            max_tokens = min(params.max_tokens, self._config.model_config.max_model_len - num_prompt_tokens)
            check_fits(num_prompt_tokens, max_tokens, self._config)
        stop_token_ids = params.stop_token_ids
        if not params.ignore_eos:  # a model may have more end tokens than the one
            more = [end for end in self._tokenizer.eos_token_ids if end != self._tokenizer.eos_token_id]
            stop_token_ids = list(dict.fromkeys([*stop_token_ids, *more]))
        return msgspec.structs.replace(
            params,
            max_tokens=max_tokens,
            min_tokens=min(params.min_tokens, max_tokens),
            stop_token_ids=stop_token_ids,
            eos_token_id=self._tokenizer.eos_token_id,
        )

    def _check_vocabulary(self, name: str, token_ids: list[int]) -> None:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_size:
                raise ValueError(f"{name}: {token_id} is not a token id: they go from 0 to {self._vocab_size - 1}")

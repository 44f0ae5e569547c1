"""Checks what a user asks for and makes it into what the engine core takes."""

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from engine.admission import check_fits, check_length, most_tokens
from engine.config import EngineConfig
from engine.messages import EngineCoreRequest
from engine.qualname import resolve_obj_by_qualname
from engine.sampling_params import SamplingParams
from engine.tokenizer_like import TokenizerLike

Prompt = str | list[int]


class Processor:
    """Every refusal is a ValueError with one sentence that says what is wrong and what would do."""

    def __init__(self, config: EngineConfig, tokenizer: TokenizerLike) -> None:
        """`config` is resolved, with num_gpu_blocks known. Raises ConfigError for an unknown logits processor."""
        self._config = config
        self._tokenizer = tokenizer
        self._vocab_size: int = config.model_config.hf_config["vocab_size"]
        self._logits_processors = [_class(named) for named in config.model_config.logits_processors]

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
        if type(priority) is not int or not -(2**63) <= priority < 2**63:
            raise ValueError(f"priority must be a 64-bit integer, got {priority!r}")
        if priority and self._config.scheduler_config.scheduling_policy != "priority":
            raise ValueError(
                f"priority {priority} has no effect under the fcfs policy: leave it out, or serve with "
                "--scheduling-policy priority"
            )
        if not isinstance(cache_salt, str | None):
            raise ValueError("cache_salt must be a string")
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
            check_length(prompt, self._config)
            prompt = self._tokenizer.encode(prompt)
        elif not (isinstance(prompt, list) and all(type(token_id) is int for token_id in prompt)):
            raise ValueError("the prompt must be a string or a list of token ids")
        if not prompt:
            raise ValueError("the prompt is empty: give at least one token")
        self._check_vocabulary("prompt", prompt)
        return prompt

    def _sampling_params(self, num_prompt_tokens: int, params: SamplingParams) -> SamplingParams:
        params = SamplingParams.make(**msgspec.structs.asdict(params))  # whoever made it need not have checked types
        for logits_processor in self._logits_processors:
            logits_processor.validate_params(params)
        self._check_vocabulary("stop_token_ids", params.stop_token_ids)
        self._check_vocabulary("logit_bias", params.logit_bias or ())
        self._check_vocabulary("allowed_token_ids", params.allowed_token_ids or ())
        self._check_logprobs("logprobs", params.logprobs)
        self._check_logprobs("prompt_logprobs", params.prompt_logprobs)
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
        bad_words_token_ids = self._bad_words_token_ids(params.bad_words)
        self._check_something_is_allowed(params, stop_token_ids, bad_words_token_ids)
        return msgspec.structs.replace(
            params,
            max_tokens=max_tokens,
            top_k=params.top_k if params.top_k < self._vocab_size else 0,
            min_tokens=min(params.min_tokens, max_tokens),
            stop_token_ids=stop_token_ids,
            eos_token_id=self._tokenizer.eos_token_id,
            bad_words_token_ids=bad_words_token_ids,
        )

    def _check_something_is_allowed(
        self, params: SamplingParams, stop_token_ids: list[int], bad_words: list[list[int]]
    ) -> None:
        if params.allowed_token_ids is None:
            return
        allowed = set(params.allowed_token_ids) - {word[0] for word in bad_words if len(word) == 1}
        if params.min_tokens:
            allowed -= {self._tokenizer.eos_token_id, *stop_token_ids}
        if not allowed:
            raise ValueError("allowed_token_ids: bad_words and min_tokens leave none of them: allow more")

    def _bad_words_token_ids(self, bad_words: list[str]) -> list[list[int]]:
        """Return the tokens of each word as it begins a text and, where those are others, as it follows a space."""
        sequences: list[list[int]] = []
        for word in bad_words:
            alone = self._tokenizer.encode(word.lstrip(), add_special_tokens=False)
            if not alone:
                raise ValueError(f"bad_words: {word!r} has no tokens in this model's vocabulary")
            after_space = self._tokenizer.encode(" " + word.lstrip(), add_special_tokens=False)
            sequences.append(alone)
            # A longer one is the space and then the word: the first sequence forbids that already.
            if len(after_space) == len(alone) and after_space[0] != alone[0]:
                sequences.append(after_space)
        for sequence in sequences:
            self._check_vocabulary("bad_words", sequence)
        return sequences

    def _check_logprobs(self, name: str, wanted: int | None) -> None:
        if wanted is None:
            return
        most = self._config.model_config.max_logprobs
        most = self._vocab_size if most == -1 else most
        if (self._vocab_size if wanted == -1 else wanted) > most:
            raise ValueError(f"{name} must be at most {most} (max_logprobs), got {wanted}")

    def _check_vocabulary(self, name: str, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_size:
                raise ValueError(f"{name}: {token_id} is not a token id: they go from 0 to {self._vocab_size - 1}")


def _class(named: Any) -> Any:
    """Return a class that is given as itself or by name, as package.module.Class or package.module:Class."""
    return resolve_obj_by_qualname(named.replace(":", ".")) if isinstance(named, str) else named

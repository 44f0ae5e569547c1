"""Offline generation: prompts in, texts out."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from batchscope.interrupt import deferred_interrupt
from engine.config import EngineConfig
from engine.llm_engine import LLMEngine
from engine.logprobs import Position
from engine.output_processor import RequestOutput
from engine.processor import Prompt
from engine.sampling_params import SamplingParams


@dataclass(slots=True)
class Completion:
    """One answer to a prompt. `token_ids` are the output's; `prompt` is as it was given.

    index: which of the prompt's n answers it is. logprobs: a map from token ids to Logprob for each of token_ids;
    prompt_logprobs: None, then one for each further prompt token; each None where it was not asked for.
    """

    request_id: str
    prompt: Prompt
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    index: int = 0
    logprobs: list[Position] | None = None
    prompt_logprobs: list[Position | None] | None = None
    error: str | None = None  # why, where finish_reason is "error"

    @property
    def cumulative_logprob(self) -> float | None:
        """The log-probability of all output tokens together, None without logprobs."""
        if self.logprobs is None:
            return None
        return sum(at[token_id].logprob for at, token_id in zip(self.logprobs, self.token_ids, strict=True))

    def add(self, output: RequestOutput) -> None:
        """Append what the request got since the last time."""
        self.text += output.text_delta
        self.token_ids += output.token_ids
        self.finish_reason, self.stop_reason = output.finish_reason, output.stop_reason
        self.num_prompt_tokens, self.num_cached_tokens = output.num_prompt_tokens, output.num_cached_tokens
        if output.logprobs is not None:
            self.logprobs = (self.logprobs or []) + output.logprobs
        self.prompt_logprobs = output.prompt_logprobs or self.prompt_logprobs
        self.error = output.error


class LLM:
    """A model and an engine in this process.

    >>> llm = LLM("smollm2", max_num_seqs=8)
    >>> llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=5))[0].text
    """

    def __init__(self, model: str = "smollm2", **settings: Any) -> None:
        """`settings` are the fields of EngineConfig's parts. Raises ConfigError where they cannot work."""
        self.engine = LLMEngine(EngineConfig.make(model=model, **settings))
        self.config = self.engine.config
        self.tokenizer = self.engine.tokenizer
        self.log = self.engine.log  # every pass so far; None with trace=False
        self._request_ids = map(str, itertools.count())

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[Completion]:
        """Complete one prompt or many (texts or lists of token ids); return the completions in their order.

        One SamplingParams serves all prompts; a sequence gives each its own. A prompt with n above 1 has n completions,
        one after the other. Raises ValueError, and generates nothing, where one of them can't be taken.
        """
        many = _many(prompts)
        params = _one_each(sampling_params or SamplingParams(), len(many))
        completions: dict[str, list[Completion]] = {}
        try:
            for prompt, each in zip(many, params, strict=True):
                request_id = next(self._request_ids)
                completions[request_id] = [Completion(request_id, prompt, index=index) for index in range(each.n)]
                self.engine.add_request(request_id, prompt, each)
            self._run(completions, use_tqdm)
        finally:
            for request_id in completions:
                self.engine.abort_request(request_id)
        return [completion for answers in completions.values() for completion in answers]

    def shutdown(self) -> None:
        """Give back the model's memory. May be called more than once."""
        self.engine.shutdown()

    def _run(self, completions: dict[str, list[Completion]], use_tqdm: bool) -> None:
        num_open, num_tokens = len(completions), 0
        with tqdm(total=num_open, desc="generating", unit="prompt", disable=not use_tqdm) as bar:
            while num_open:
                with deferred_interrupt():
                    outputs = self.engine.step()
                if not outputs and self.engine.paused:
                    raise RuntimeError("the engine is paused: resume it first, or step it through llm.engine")
                for output in outputs:
                    if (answers := completions.get(output.request_id)) is None:
                        continue  # one that was added through llm.engine
                    answers[output.index].add(output)
                    num_tokens += len(output.token_ids)
                    num_open -= output.finished
                    bar.update(output.finished)
                bar.set_postfix_str(f"{num_tokens} tokens", refresh=False)


def _many(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, list | tuple):
        raise ValueError(
            f"prompts must be a text, a list of token ids or a list of those, got {type(prompts).__name__}"
        )
    listed = list(prompts)
    if listed and all(isinstance(each, int) for each in listed):
        return [listed]
    return listed


def _one_each(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise ValueError(f"there are {count} prompts and {len(params)} sampling parameters: give one or one each")
    return list(params)

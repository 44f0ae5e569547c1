"""Grammars by llguidance, which needs no torch."""

import json
from typing import Any

import llguidance
import numpy as np

from engine.structured_output.backend import Grammar, StructuredOutputBackend
from engine.structured_outputs_params import StructuredOutputsParams
from engine.tokenizer_like import TokenizerLike

# At most one space after a comma or colon and none elsewhere: a small model can't lose itself in white space.
JSON_OPTIONS: Any = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
MARK = "\x02"  # a text that begins with it gets no space put before it
LONGEST_REASON = 300


class LLGuidanceBackend(StructuredOutputBackend):
    """Making one walks the whole vocabulary: about a second for 49,152 tokens."""

    def __init__(self, tokenizer: TokenizerLike) -> None:
        """Raises ValueError for a model without an end token: its outputs could never be complete."""
        if not tokenizer.eos_token_ids:
            raise ValueError("structured_outputs needs a model with an end token, and this one has none")
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Vocabulary(tokenizer)),
            n_vocab=tokenizer.vocab_size,
            eos_token=tokenizer.eos_token_ids,
        )
        self._limits = llguidance.LLParserLimits(verbose_errors=False)

    def compile(self, params: StructuredOutputsParams) -> "LLGuidanceGrammar":
        """See StructuredOutputBackend. The limits on what it may cost are llguidance's own, in its steps."""
        try:
            source = _source(params)
        except ValueError as error:
            raise _refusal(params, str(error)) from None
        matcher = llguidance.LLMatcher(self._tokenizer, source, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise _refusal(params, matcher.get_error())
        first_step = matcher.deep_copy()
        first_step.compute_bitmask()
        if first_step.is_error():
            raise _refusal(params, f"no output can begin ({first_step.get_error()})")
        return LLGuidanceGrammar(matcher)


class LLGuidanceGrammar(Grammar):
    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def fork(self) -> "LLGuidanceGrammar":
        return LLGuidanceGrammar(self._matcher.deep_copy())

    def fill_bitmask(self, row: np.ndarray) -> None:
        """See Grammar. Where a step is too costly, only end tokens are left, and `accept_tokens` says why."""
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)

    def accept_tokens(self, token_ids: list[int]) -> str | None:
        if self._matcher.consume_tokens(token_ids):
            return None
        return f"the grammar refused the sampled tokens {token_ids}: {_first_words(self._matcher.get_error())}"

    def is_terminated(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokenizer: TokenizerLike) -> None:
        ids = range(tokenizer.vocab_size)
        self._encode = tokenizer.encode
        self.eos_token_id = tokenizer.eos_token_ids[0]
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in ids]  # an unused one has no bytes: never allowed
        self.special_token_ids = [token_id for token_id in ids if tokenizer.is_special(token_id)]
        self._mark = self._encode(MARK, add_special_tokens=False)

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of text in the middle of an output."""
        marked = self._encode(MARK + text, add_special_tokens=False)
        whole = marked[: len(self._mark)] == self._mark
        return marked[len(self._mark) :] if whole else self._encode(text, add_special_tokens=False)


def _source(params: StructuredOutputsParams) -> str:
    """Return the grammar in llguidance's own form. Raises ValueError."""
    kind, spec = params.kind, params.spec
    if kind in ("json", "json_object"):
        return llguidance.LLMatcher.grammar_from_json_schema(spec, overrides=JSON_OPTIONS)
    if kind == "choice":  # JSON's way of writing a text is Lark's too
        # As one terminal: the number of rules is limited, that of its alternatives is not.
        choices = "\n| ".join(map(json.dumps, params.choice or ()))
        return llguidance.LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {choices}")
    return llguidance.grammar_from("regex" if kind == "regex" else "grammar", spec)


def _refusal(params: StructuredOutputsParams, reason: str) -> ValueError:
    return ValueError(f"structured_outputs.{params.kind} cannot be compiled: {_first_words(reason)}")


def _first_words(reason: str) -> str:
    """Return llguidance's reason on one line, without its drawings of where it is."""
    lines = (line.strip() for line in reason.replace("\n<non-verbose/>", "").splitlines())
    words = " ".join(line for line in lines if line.strip("^| ") and " | " not in line)
    return words[:LONGEST_REASON] or "for no reason given"

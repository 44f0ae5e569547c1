"""How a request is sampled and when it ends, under vLLM's names."""

from typing import Any

import msgspec

from engine.structured_outputs_params import StructuredOutputsParams

MAX_STOPS, MAX_STOP_CHARS = 64, 1024  # every new text of the request is searched for each
MAX_BIAS = 1_000_000
MAX_TEMPERATURE = 1_000_000  # far above any use, and far below what float32 overflows at
_SAMPLING_EPS = 1e-5  # below this temperature, sampling is greedy


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request.

    Raises ValueError, naming the parameter and its range, from `verify`, which `make` calls.
    """

    n: int = 1  # answers to the prompt, each with a seed of its own
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int | None = 16  # None: up to what the model length and the pool allow
    min_tokens: int = 0
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    logprobs: int | None = None  # of the sampled token and of so many of the likeliest; -1: of all
    prompt_logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    structured_outputs: StructuredOutputsParams | None = None  # what the output must look like
    extra_args: dict[str, Any] | None = None  # for logits processors of the user's own
    # Filled in by the input processor.
    eos_token_id: int | None = None  # ends a request unless ignore_eos
    bad_words_token_ids: list[list[int]] = []

    @classmethod
    def make(cls, **values: Any) -> "SamplingParams":
        """Build from loosely typed values (JSON) and verify. Raises ValueError with one clear sentence."""
        if isinstance(values.get("stop"), str):
            values["stop"] = [values["stop"]]
        if isinstance(values.get("logit_bias"), dict):
            values["logit_bias"] = {_token_id(key): bias for key, bias in values["logit_bias"].items()}
        values = {name: value for name, value in values.items() if value is not None or name == "max_tokens"}
        unknown = set(values) - set(cls.__struct_fields__)
        if unknown:
            raise ValueError(f"unknown sampling parameter {', '.join(sorted(unknown))}")
        try:
            params = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"sampling parameters: {error}") from None
        params.verify()
        return params

    @property
    def greedy(self) -> bool:
        return self.temperature < _SAMPLING_EPS

    @property
    def has_penalties(self) -> bool:
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)

    def verify(self) -> None:
        """Raise ValueError where a value is out of range."""
        _check(self.n >= 1, "n", "at least 1", self.n)
        _check(
            self.n == 1 or not self.greedy, "n", f"1 at temperature {self.temperature}: all answers would be one",
            self.n,
        )  # fmt: skip
        self._verify_distribution()
        self._verify_length()
        self._verify_logprobs()
        self._verify_token_lists()
        if self.structured_outputs is not None:
            self.structured_outputs.verify()

    def _verify_distribution(self) -> None:
        temperature = self.temperature
        _check(0 <= temperature <= MAX_TEMPERATURE, "temperature", f"from 0 to {MAX_TEMPERATURE}", temperature)
        _check(0 < self.top_p <= 1, "top_p", "above 0 and at most 1", self.top_p)
        _check(self.top_k >= -1, "top_k", "-1 or 0 (off) or at least 1", self.top_k)
        _check(0 <= self.min_p <= 1, "min_p", "from 0 to 1", self.min_p)
        _check(-2 <= self.presence_penalty <= 2, "presence_penalty", "from -2 to 2", self.presence_penalty)
        _check(-2 <= self.frequency_penalty <= 2, "frequency_penalty", "from -2 to 2", self.frequency_penalty)
        repetition = self.repetition_penalty
        _check(0.001 <= repetition <= 1000, "repetition_penalty", "above 0, from 0.001 to 1000", repetition)
        _check(self.seed is None or -(2**63) <= self.seed < 2**63, "seed", "a 64-bit integer", self.seed)

    def _verify_length(self) -> None:
        _check(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        _check(self.min_tokens >= 0, "min_tokens", "0 or more", self.min_tokens)
        _check(
            self.max_tokens is None or self.min_tokens <= self.max_tokens,
            "min_tokens", f"at most max_tokens ({self.max_tokens})", self.min_tokens,
        )  # fmt: skip
        _check(all(self.stop), "stop", "strings that are not empty", self.stop)
        _check(len(self.stop) <= MAX_STOPS, "stop", f"at most {MAX_STOPS} strings", f"{len(self.stop)}")
        longest = max(map(len, self.stop), default=0)
        _check(longest <= MAX_STOP_CHARS, "stop", f"strings of at most {MAX_STOP_CHARS} characters", f"{longest}")
        _check(self.detokenize or not self.stop, "stop", "empty without detokenize, which finds them", self.stop)

    def _verify_logprobs(self) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            wanted = getattr(self, name)
            _check(wanted is None or wanted >= -1, name, "0 or more, or -1 for the whole vocabulary", wanted)

    def _verify_token_lists(self) -> None:
        for token_id, bias in (self.logit_bias or {}).items():
            _check(abs(bias) <= MAX_BIAS, "logit_bias", f"finite for token {token_id}, at most {MAX_BIAS}", bias)
        _check(self.allowed_token_ids != [], "allowed_token_ids", "left out or hold at least one id", "[]")
        _check(all(word.strip() for word in self.bad_words), "bad_words", "words that are not empty", self.bad_words)


def _check(holds: bool, name: str, allowed: str, got: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {allowed}, got {got}")


def _token_id(key: Any) -> Any:
    """JSON objects have no integer keys, so a token id may come as text."""
    try:
        return int(key) if isinstance(key, str) else key
    except ValueError:
        raise ValueError(f"logit_bias must be given by token id, got {key!r}") from None

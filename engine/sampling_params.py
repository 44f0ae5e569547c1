"""How a request is sampled and when it ends, under vLLM's names."""

import math
from typing import Any

import msgspec

_SAMPLING_EPS = 1e-5  # below this temperature, sampling is greedy


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request.

    Raises ValueError, naming the parameter and its range, from `verify`, which `make` calls.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: off
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16  # None: up to what the model length and the pool allow
    min_tokens: int = 0
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    eos_token_id: int | None = None  # filled in by the input processor; ends a request unless ignore_eos

    @classmethod
    def make(cls, **values: Any) -> "SamplingParams":
        """Build from loosely typed values (JSON) and verify. Raises ValueError with one clear sentence."""
        if isinstance(values.get("stop"), str):
            values["stop"] = [values["stop"]]
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

    def verify(self) -> None:
        """Raise ValueError where a value is out of range."""
        _check(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "0 or more", self.temperature)
        _check(0 < self.top_p <= 1, "top_p", "above 0 and at most 1", self.top_p)
        _check(self.top_k >= -1, "top_k", "-1 or 0 (off) or at least 1", self.top_k)
        _check(0 <= self.min_p <= 1, "min_p", "from 0 to 1", self.min_p)
        _check(self.seed is None or -(2**63) <= self.seed < 2**63, "seed", "a 64-bit integer", self.seed)
        _check(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        _check(self.min_tokens >= 0, "min_tokens", "0 or more", self.min_tokens)
        _check(
            self.max_tokens is None or self.min_tokens <= self.max_tokens,
            "min_tokens", f"at most max_tokens ({self.max_tokens})", self.min_tokens,
        )  # fmt: skip
        _check(all(self.stop), "stop", "strings that are not empty", self.stop)


def _check(holds: bool, name: str, allowed: str, got: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {allowed}, got {got}")

"""Presets: a configuration and a script each, as data, that bring an engine of its own to a moment worth seeing."""

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from webui.samples import SAMPLES

ORDER = (
    "two-five-three",
    "steady-decode",
    "alternating-sets",
    "chunked-prefill",
    "condense-storm",
    "preemption",
    "prefix-cache",
    "reset-running",
    "resubmit",
)


class Piece(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The first `count` tokens of a text. Prompts that begin with the same piece begin alike."""

    text: int
    count: int


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """A request: greedy, and as long as max_tokens says."""

    id: str
    prompt: list[Piece]
    max_tokens: int

    def prompt_token_ids(self, tokenizer: Tokenizer) -> list[int]:
        return [token_id for piece in self.prompt for token_id in first_tokens(tokenizer, piece.text, piece.count)]

    def sampling_params(self) -> SamplingParams:
        return SamplingParams.make(temperature=0.0, max_tokens=self.max_tokens, ignore_eos=True)


class Submit(msgspec.Struct, tag_field="do", tag="submit", forbid_unknown_fields=True):
    """Hand in requests, in this order."""

    requests: list[Ask]
    say: str = ""


class Step(msgspec.Struct, tag_field="do", tag="step", forbid_unknown_fields=True):
    """Let so many passes through."""

    passes: int = 1
    say: str = ""


class Until(msgspec.Struct, tag_field="do", tag="until", forbid_unknown_fields=True):
    """Let passes through up to the first of which something holds: a name of webui.preset_player.HOLDS."""

    holds: str
    say: str = ""


class Abort(msgspec.Struct, tag_field="do", tag="abort", forbid_unknown_fields=True):
    """Abort live requests."""

    ids: list[str]
    say: str = ""


class Reset(msgspec.Struct, tag_field="do", tag="reset", forbid_unknown_fields=True):
    """Reset the prefix cache, preempting whatever runs."""

    say: str = ""


Action = Submit | Step | Until | Abort | Reset


class Preset(msgspec.Struct, forbid_unknown_fields=True):
    """`paragraph` is in plain words; `config` has settings of the engine; `phase` is what the page shows at the end.

    The gate is closed before the first action and stays so after the last: the engine is held at the moment that the
    paragraph is about. `say` is what the page tells meanwhile.
    """

    title: str
    paragraph: str
    config: dict[str, Any]
    script: list[Action]
    phase: str | None = None


@cache
def presets() -> dict[str, Preset]:
    """Return every preset by name, in the order in which the page lists them."""
    folder = files("webui").joinpath("preset_data")
    return {
        name: msgspec.json.decode(folder.joinpath(f"{name}.json").read_bytes(), type=Preset) for name in ORDER
    }  # fmt: skip


def first_tokens(tokenizer: Tokenizer, text: int, count: int) -> list[int]:
    """Return the first tokens of a text: the sample prompts, told round from number `text` on, as often as it takes."""
    told = [sample["prompt"] for sample in SAMPLES[text % len(SAMPLES) :] + SAMPLES[: text % len(SAMPLES)]]
    round_of_tokens = tokenizer.encode("\n".join(told) + "\n", add_special_tokens=False)
    return (round_of_tokens * (count // len(round_of_tokens) + 1))[:count]

"""All logits processors of an engine, in the order in which they run."""

import pkgutil
from collections.abc import Iterator
from typing import Any

import torch

from engine.config import ConfigError, EngineConfig
from runner.logits_processors.allowed_token_ids import AllowedTokenIdsLogitsProcessor
from runner.logits_processors.bad_words import BadWordsLogitsProcessor
from runner.logits_processors.interface import BatchUpdate, LogitsProcessor
from runner.logits_processors.logit_bias import LogitBiasLogitsProcessor
from runner.logits_processors.min_tokens import MinTokensLogitsProcessor
from runner.logits_processors.penalties import PenaltiesLogitsProcessor

_BEFORE = (
    AllowedTokenIdsLogitsProcessor, BadWordsLogitsProcessor, MinTokensLogitsProcessor, LogitBiasLogitsProcessor,
)  # fmt: skip


class LogitsProcessors:
    """Masks and biases come first, then the user's own, then penalties: vLLM's order.

    Those that leave the highest logit where it is run after the temperature, and not at all for greedy batches.
    """

    def __init__(self, config: EngineConfig, device: torch.device) -> None:
        """Make one of each. Raises ConfigError where one of the user's own can't be used."""
        pinned = device.type != "cpu"
        own = [_load(named)(config, device, pinned) for named in config.model_config.logits_processors]
        self.non_argmax_invariant: list[LogitsProcessor] = [
            *(builtin(config, device, pinned) for builtin in _BEFORE),
            *(processor for processor in own if not processor.is_argmax_invariant()),
            PenaltiesLogitsProcessor(config, device, pinned),
        ]
        self.argmax_invariant: list[LogitsProcessor] = [each for each in own if each.is_argmax_invariant()]

    def __iter__(self) -> Iterator[LogitsProcessor]:
        yield from self.non_argmax_invariant
        yield from self.argmax_invariant

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Let each follow the rows."""
        for processor in self:
            processor.update_state(batch_update)


def _load(named: Any) -> type[LogitsProcessor]:
    """Return a class that is given as itself or by name, as package.module.Class or package.module:Class."""
    try:
        found = pkgutil.resolve_name(named) if isinstance(named, str) else named
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"logits_processors: {named!r} can't be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, LogitsProcessor)):
        raise ConfigError(f"logits_processors: {named!r} is not a class derived from runner's LogitsProcessor")
    return found

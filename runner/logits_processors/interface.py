"""What a logits processor is, and how it hears of rows that come, go and move. The names are vLLM's."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

import torch

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams

State = TypeVar("State")


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()  # the first row takes the second's place
    SWAP = auto()


@dataclass(frozen=True, slots=True)
class BatchUpdate:
    """What happened to the rows since the last pass, to be taken in this order: removed, added, moved.

    removed: rows that became empty and stayed so before any move. added: (row, parameters, prompt ids, output ids) of
    each request that got a row, in whose place another may have been; the output ids are the request's own list, which
    grows with it. moved: (from, to, how), in order.
    """

    batch_size: int
    removed: Sequence[int]
    added: Sequence[tuple[int, SamplingParams, list[int], list[int]]]
    moved: Sequence[tuple[int, int, MoveDirectionality]]


class LogitsProcessor(ABC):
    """Derive from this and name the class in the setting `logits_processors` to have it run on every pass."""

    def __init__(self, config: EngineConfig, device: torch.device, is_pin_memory: bool) -> None:  # noqa: B027
        """Called once, before the first request."""

    @classmethod  # noqa: B027
    def validate_params(cls, params: SamplingParams) -> None:
        """Raise ValueError, which refuses the request, for parameters that this processor can't take."""

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [R, V], changed in place or anew. Rows stand in batch order."""

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Whether the highest logit always stays the highest: greedy requests then go without this processor."""

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the rows. Called once a pass; None where no row has come, gone or moved."""


def update_rows(
    states: dict[int, State],
    batch_update: BatchUpdate | None,
    make: Callable[[SamplingParams, list[int], list[int]], State | None],
) -> bool:
    """Bring a dictionary from rows to states up to date; return whether it was changed.

    `make` gets an added request's parameters, prompt ids and output ids, and returns None where it needs no state.
    """
    if batch_update is None:
        return False
    changed = False
    for row in batch_update.removed:
        changed |= states.pop(row, None) is not None
    for row, params, prompt_token_ids, output_token_ids in batch_update.added:
        changed |= states.pop(row, None) is not None
        if (state := make(params, prompt_token_ids, output_token_ids)) is not None:
            states[row] = state
            changed = True
    if not states:
        return changed
    for src, dst, direction in batch_update.moved:
        moved, replaced = states.pop(src, None), states.pop(dst, None)
        if moved is not None:
            states[dst] = moved
        if replaced is not None and direction is MoveDirectionality.SWAP:
            states[src] = replaced
        changed |= moved is not None or replaced is not None
    return changed

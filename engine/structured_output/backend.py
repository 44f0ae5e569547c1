"""What the engine needs of a grammar library."""

from abc import ABC, abstractmethod

import numpy as np

from engine.structured_outputs_params import StructuredOutputsParams


class Grammar(ABC):
    """Where one request stands in its grammar. It follows the request's output tokens and nothing else."""

    @abstractmethod
    def fork(self) -> "Grammar":
        """Return another one that stands at the same place."""

    @abstractmethod
    def fill_bitmask(self, row: np.ndarray) -> None:
        """Write which tokens may come next: int32 [ceil(vocab_size / 32)], bit i % 32 of word i // 32 for token i.

        End tokens may come where the output can be complete.
        """

    @abstractmethod
    def accept_tokens(self, token_ids: list[int]) -> str | None:
        """Go on by these tokens. Returns why not where the grammar refuses one: it is then of no use any more."""

    @abstractmethod
    def is_terminated(self) -> bool:
        """Whether the output is complete and nothing but its end can follow."""


class StructuredOutputBackend(ABC):
    """Compiles what requests ask for, for one model's vocabulary. Used from several threads at once."""

    @abstractmethod
    def compile(self, params: StructuredOutputsParams) -> Grammar:
        """Return the grammar at its beginning. Raises ValueError, in one sentence, where it cannot be compiled."""

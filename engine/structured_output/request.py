"""The structured-output side of one request."""

import time
from concurrent.futures import Future

from engine.structured_output.backend import Grammar
from engine.structured_outputs_params import StructuredOutputsParams


class StructuredOutputRequest:
    """Waits for its grammar, then has one of its own, which follows the request's output tokens."""

    def __init__(self, params: StructuredOutputsParams) -> None:
        self.params = params
        self.grammar: Grammar | None = None
        self.error: str | None = None  # why there is none, or why it refused a token
        self._compiled: Future[Grammar] | None = None
        self._limit_s = 0.0
        self._deadline = 0.0

    def start(self, compiled: "Future[Grammar]", limit_s: float) -> None:
        """Expect the grammar within so many seconds."""
        self._compiled, self._limit_s, self._deadline = compiled, limit_s, time.monotonic() + limit_s

    @property
    def seconds_left(self) -> float:
        """How long until `settle` has an answer at the latest."""
        assert self._compiled is not None
        return 0.0 if self._compiled.done() else max(0.0, self._deadline - time.monotonic())

    def settle(self) -> bool:
        """Take the grammar, or the reason why there is none. False: it is still being compiled."""
        if self.seconds_left:
            return False
        assert self._compiled is not None
        if not self._compiled.done():
            self.error = f"structured_outputs.{self.params.kind} took more than {self._limit_s:g} s to compile"
        elif (failure := self._compiled.exception()) is not None:
            self.error = str(failure) if isinstance(failure, ValueError) else f"{type(failure).__name__}: {failure}"
        else:
            self.grammar = self._compiled.result().fork()
        return True

    def accept_tokens(self, token_ids: list[int]) -> bool:
        """Go on by sampled tokens. False: the grammar refused one, and `error` says so."""
        assert self.grammar is not None
        self.error = self.grammar.accept_tokens(token_ids)
        return self.error is None

"""The grammars of all live requests: compiling, masks."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property

import msgspec
import numpy as np

from engine.config import ModelConfig
from engine.outputs import GrammarOutput, SchedulerOutput
from engine.request import Request, RequestStatus
from engine.structured_output.backend import Grammar, StructuredOutputBackend
from engine.structured_output.compile_pool import CompilePool
from engine.structured_outputs_params import StructuredOutputsParams
from engine.tokenizer import Tokenizer

NUM_THREADS = 2  # one grammar that takes long doesn't hold up all others
COMPILE_LIMIT_S = 10.0
LOAD_LIMIT_S = 50.0
KEPT_GRAMMARS = 64  # compiled ones, for requests that ask for the same


def make_backend(model_config: ModelConfig) -> StructuredOutputBackend:
    """Return the backend for a resolved model. The first import and the vocabulary take a second: not at startup."""
    from engine.structured_output.llguidance_backend import LLGuidanceBackend

    return LLGuidanceBackend(Tokenizer.load(model_config))


class StructuredOutputManager:
    """Costs nothing until the first constrained request comes. All but `on_settled` happens in the engine's thread."""

    def __init__(self, model_config: ModelConfig, compile_limit_s: float = COMPILE_LIMIT_S) -> None:
        self.requests: dict[str, Request] = {}  # live ones with a grammar or waiting for one
        self.compile_limit_s = compile_limit_s
        self.load_limit_s = LOAD_LIMIT_S
        self.on_settled: Callable[[], None] = lambda: None  # called from any thread when a grammar is compiled or isn't
        self._model_config = model_config
        self._compiled: OrderedDict[bytes, Future[Grammar]] = OrderedDict()
        self._pool: CompilePool | None = None
        self._backend: Future[StructuredOutputBackend] | None = None

    def add(self, request: Request) -> None:
        """Begin to compile the request's grammar."""
        structured = request.structured_output_request
        assert structured is not None
        compiling = self._compile(structured.params)
        assert self._backend is not None
        loading = 0.0 if self._backend.done() else self.load_limit_s  # the first one waits for the vocabulary as well
        structured.start(compiling, self.compile_limit_s + loading)
        self.requests[request.request_id] = request

    def remove(self, request: Request) -> None:
        """Forget a request that has ended, whether or not its grammar was ready."""
        self.requests.pop(request.request_id, None)

    @property
    def blocked(self) -> list[Request]:
        """The requests that wait for their grammars, in order of arrival."""
        status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        return [request for request in self.requests.values() if request.status is status]

    def settle(self) -> tuple[list[Request], list[Request]]:
        """Let requests whose grammars are ready wait for admission. Returns them, and those that get no grammar."""
        ready: list[Request] = []
        failed: list[Request] = []
        for request in self.blocked:
            structured = request.structured_output_request
            assert structured is not None
            if structured.error is not None or not structured.settle():
                continue
            if structured.error is not None:
                failed.append(request)
            else:
                request.status = RequestStatus.WAITING
                ready.append(request)
        return ready, failed

    def seconds_until_settled(self) -> float | None:
        """Return how long at most until `settle` changes something, None when nobody waits for a grammar."""
        waits = [
            structured.seconds_left for request in self.blocked if (structured := request.structured_output_request)
        ]
        return min(waits, default=None)

    def grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """Return the masks of the scheduled requests that sample in this pass, or None when none is constrained.

        The order is the scheduler's. Rows still in prefill have no mask: what is sampled there is dropped.
        """
        if not self.requests:
            return None
        grammars: dict[str, Grammar] = {}
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is not None and request.num_computed_tokens >= request.num_tokens:
                structured = request.structured_output_request
                assert structured is not None
                assert structured.grammar is not None
                grammars[request_id] = structured.grammar
        if not grammars:
            return None
        bitmask = np.zeros((len(grammars), self._num_words), dtype=np.int32)
        for row, grammar in zip(bitmask, grammars.values(), strict=True):
            grammar.fill_bitmask(row)
        return GrammarOutput(list(grammars), bitmask.tobytes())

    def shutdown(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    @cached_property
    def _num_words(self) -> int:
        """How many words of a mask the model's logits need."""
        return -(-self._model_config.hf_config["vocab_size"] // 32)

    def _compile(self, params: StructuredOutputsParams) -> "Future[Grammar]":
        key = msgspec.json.encode(params)
        compiled = self._compiled.get(key)
        if compiled is None or (compiled.done() and compiled.exception() is not None):
            if self._pool is None:
                self._pool = CompilePool(NUM_THREADS)
                self._backend = self._pool.submit(make_backend, self._model_config)
            compiled = self._compiled[key] = self._pool.submit(self._compile_in_thread, params)
            compiled.add_done_callback(lambda _: self.on_settled())
        self._compiled.move_to_end(key)
        while len(self._compiled) > KEPT_GRAMMARS:
            self._compiled.popitem(last=False)
        return compiled

    def _compile_in_thread(self, params: StructuredOutputsParams) -> Grammar:
        assert self._backend is not None
        return self._backend.result().compile(params)

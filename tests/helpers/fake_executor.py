"""Executors without a model: their tokens follow from a request's id and position alone."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from zlib import crc32

from engine.config import EngineConfig
from engine.executor.abstract import Executor
from engine.messages import EngineCoreRequest
from engine.outputs import EMPTY_MODEL_RUNNER_OUTPUT, GrammarOutput, ModelRunnerOutput, SchedulerOutput
from engine.sampling_params import SamplingParams

VOCAB_SIZE = 256


def token(req_id: str, index: int) -> int:
    """The token that FakeExecutor puts out for a request as its `index`th, from 0."""
    return crc32(f"{req_id}/{index}".encode()) % (VOCAB_SIZE - 1) + 1


class FakeExecutor(Executor):
    """Has the same two-call protocol as a real worker and checks that scheduler outputs make sense to a runner.

    `in_pass` is called between the two calls of each pass, as something that happens meanwhile.
    """

    name = "fake"
    in_pass: Callable[["FakeExecutor"], None] | None = None

    def _init_executor(self) -> None:
        self.known: dict[str, list[int]] = {}  # id -> [known prompt tokens, outputs so far, computed tokens]
        self.parked: SchedulerOutput | None = None
        self.calls: list[str] = []

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        single_value: bool = False,
    ) -> Any:
        assert isinstance(method, str)
        self.calls.append(method)
        future: Future[Any] = Future()
        try:
            future.set_result(getattr(self, f"do_{method}")(*args))
        except Exception as error:
            future.set_exception(error)
        return future if non_block else future.result()

    def do_determine_num_gpu_blocks(self) -> int:
        return self.config.cache_config.num_gpu_blocks_override or 64

    def do_initialize_cache(self, num_gpu_blocks: int) -> None:
        pass

    def do_execute_model(self, output: SchedulerOutput) -> ModelRunnerOutput | None:
        assert self.parked is None, "State error: sample_tokens() must be called after execute_model() returns None."
        for req_id in output.finished_req_ids:
            self.known.pop(req_id, None)
        for new in output.scheduled_new_reqs:
            assert new.req_id not in self.known, f"{new.req_id} is new and known already"
            self.known[new.req_id] = [len(new.prompt_token_ids), 0, new.num_computed_tokens]
        cached = output.scheduled_cached_reqs
        for req_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            self.known[req_id][2] = computed
        if not output.num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        self.parked = output
        return None

    def do_sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        assert self.parked is not None, "sample_tokens() without execute_model()"
        output, self.parked = self.parked, None
        if self.in_pass is not None:
            self.in_pass()
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sample(req_id, output.num_scheduled_tokens[req_id]) for req_id in ids]
        return ModelRunnerOutput(ids, {req_id: row for row, req_id in enumerate(ids)}, sampled)

    def _sample(self, req_id: str, num_scheduled_tokens: int) -> list[int]:
        prompt, outputs, computed = self.known[req_id]
        assert computed + num_scheduled_tokens <= prompt + outputs
        if computed + num_scheduled_tokens < prompt + outputs:
            return []
        self.known[req_id][1] += 1
        return [token(req_id, outputs)]

    def do_take_trace(self) -> list[Any]:
        return []

    def do_batch_state(self) -> list[None]:
        return [None] * self.config.scheduler_config.max_num_seqs

    def do_shutdown(self) -> None:
        pass


def fake_config(**flags: Any) -> EngineConfig:
    """Return a resolved configuration that runs on FakeExecutor, with small blocks."""
    settings: dict[str, Any] = {
        "model": "fake", "max_model_len": 128, "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 32,
        "num_gpu_blocks_override": 64, "distributed_executor_backend": FakeExecutor, **flags,
    }  # fmt: skip
    config = EngineConfig.make(**settings)
    config.model_config.hf_config = {"vocab_size": VOCAB_SIZE}
    return config


def request(req_id: str, prompt: list[int] | int = 5, max_tokens: int = 4, **fields: Any) -> EngineCoreRequest:
    """Return a request; a number as prompt makes one of that length."""
    ids = list(range(1, prompt + 1)) if isinstance(prompt, int) else prompt
    params = {
        name: fields.pop(name) for name in list(fields) if name in SamplingParams.__struct_fields__
    }  # fmt: skip
    sampling_params = SamplingParams.make(max_tokens=max_tokens, **{"ignore_eos": True, "temperature": 0.0, **params})
    return EngineCoreRequest(req_id, ids, sampling_params, **{"arrival_time": 0.0, **fields})

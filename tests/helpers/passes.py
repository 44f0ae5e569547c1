"""Hand-made scheduler decisions for tests of the runner, and a worker to give them to."""

from typing import Any

from engine.config import EngineConfig
from engine.model_source import resolve
from engine.outputs import CachedRequestData, GrammarOutput, ModelRunnerOutput, NewRequestData, SchedulerOutput
from engine.sampling_params import SamplingParams
from runner.worker import Worker
from tracer.compare import first_difference
from tracer.fold import apply_change
from tracer.marked_pass import describe
from tracer.schema import PhaseRecord

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


def make_worker(**flags: Any) -> Worker:
    """A worker with the `tiny` model in float32, started and ready for passes."""
    flags = {
        "model": "tiny",
        "dtype": "float32",
        "block_size": 4,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
    } | flags
    config = EngineConfig.make(**flags)
    config.model_config = resolve(config.model_config)
    worker = Worker(config)
    worker.init_device()
    worker.load_model()
    worker.initialize_cache(config.cache_config.num_gpu_blocks_override or 256)
    return worker


def new(
    req_id: str, prompt: list[int], blocks: list[int], computed: int = 0, params: SamplingParams = GREEDY
) -> NewRequestData:
    return NewRequestData(req_id, prompt, params, (blocks,), computed)


class Pass:
    """Builds a SchedulerOutput by hand."""

    def __init__(self) -> None:
        self.output = SchedulerOutput.make_empty()

    def finish(self, *req_ids: str) -> "Pass":
        self.output.finished_req_ids |= set(req_ids)
        return self

    def new(self, data: NewRequestData, tokens: int) -> "Pass":
        self.output.scheduled_new_reqs.append(data)
        return self._schedule(data.req_id, tokens)

    def cached(
        self, req_id: str, computed: int, tokens: int = 1, blocks: list[int] | None = None, resumed: bool = False
    ) -> "Pass":
        cached: CachedRequestData = self.output.scheduled_cached_reqs
        cached.req_ids.append(req_id)
        cached.new_block_ids.append(None if blocks is None else (blocks,))
        cached.num_computed_tokens.append(computed)
        cached.num_output_tokens.append(0)
        if resumed:
            cached.resumed_req_ids.add(req_id)
        return self._schedule(req_id, tokens)

    def _schedule(self, req_id: str, tokens: int) -> "Pass":
        self.output.num_scheduled_tokens[req_id] = tokens
        self.output.total_num_scheduled_tokens += tokens
        return self


class Driver:
    """Runs passes on a worker, keeps their phases and checks the folded trace against the batch after each."""

    def __init__(self, worker: Worker | None = None, **flags: Any) -> None:
        self.worker = worker or make_worker(**flags)
        self.runner = self.worker.model_runner
        self.batch = self.runner.input_batch
        self.rows: list[dict[str, Any] | None] = [None] * self.batch.max_num_reqs
        self.phases: dict[str, PhaseRecord] = {}

    def run(self, a_pass: Pass, grammar_output: GrammarOutput | None = None) -> dict[str, list[int]]:
        """Execute and sample; return the new tokens by request id. `output` keeps all that came up."""
        output = self.worker.execute_model(a_pass.output)
        if output is None:
            output = self.worker.sample_tokens(grammar_output)
        assert isinstance(output, ModelRunnerOutput)
        self.output = output
        phases = describe(self.worker.take_trace())
        self.phases = {phase.phase: phase for phase in phases}
        for phase in phases:
            for change in phase.changes:
                apply_change(self.rows, change)
        assert first_difference(self.worker.batch_state(), self.rows) is None
        check_rows(self.batch)
        return dict(zip(output.req_ids, output.sampled_token_ids, strict=True))

    @property
    def inputs(self) -> dict[str, Any]:
        """The flat arrays of the last pass."""
        return self.phases["prepare_inputs"].facts


def check_rows(batch: Any) -> None:
    """Rows and ids are inverse maps with no hole."""
    assert [batch.req_id_to_index[req_id] for req_id in batch.req_ids] == list(range(batch.num_reqs))
    assert None not in batch.req_ids

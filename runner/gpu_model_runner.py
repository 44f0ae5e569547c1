"""The model runner: one batch that persists, and what one pass does with it.

Read it from top to bottom as a pass goes: update, prepare, forward, park, sample.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.config import EngineConfig
from engine.outputs import EMPTY_MODEL_RUNNER_OUTPUT, GrammarOutput, LogprobsLists, ModelRunnerOutput, SchedulerOutput
from runner import prompt_logprobs, trace_facts
from runner.buffers import CpuGpuBuffer
from runner.cached_request import CachedRequestState
from runner.forward_context import AttentionMetadata, set_forward_context
from runner.grammar import MaskedRows
from runner.input_batch import InputBatch
from runner.logits_processors import LogitsProcessors
from runner.parallel_state import get_pp_group
from runner.prepare_inputs import cumsum_and_arange, flat_token_indices
from runner.reorder import reorder_batch
from runner.sampler import Sampler
from tracer.phases import Phase
from tracer.recorder import Recorder


class ExecuteModelState(NamedTuple):
    """What execute_model parks for sample_tokens after it has returned None."""

    scheduler_output: SchedulerOutput
    logits: torch.Tensor  # float32 [len(logits_indices), vocab_size]
    spec_decode_metadata: None
    hidden_states: torch.Tensor  # [num_tokens, hidden_size]
    sample_hidden_states: torch.Tensor  # [len(logits_indices), hidden_size]


class GPUModelRunner:
    """Owns the batch, the buffers and the model of one device, a GPU or the CPU."""

    def __init__(self, config: EngineConfig, model: Any, device: torch.device, trace: Recorder | None) -> None:
        self.config = config
        self.model = model
        self.device = device
        self.trace = trace
        self.requests: dict[str, CachedRequestState] = {}
        self.prompt_logprobs_req_ids: set[str] = set()  # those whose prompts are still to be reported on
        self.execute_model_state: ExecuteModelState | None = None
        logits_processors = LogitsProcessors(config, device)
        self.sampler = Sampler(logits_processors)
        self.seed_source = np.random.default_rng(config.model_config.seed)

        max_num_reqs = config.scheduler_config.max_num_seqs
        max_num_tokens = config.scheduler_config.max_num_batched_tokens
        max_model_len = config.model_config.max_model_len
        assert max_model_len is not None
        self.input_batch = InputBatch(
            max_num_reqs, max_model_len, max_num_tokens, config.cache_config.block_size, device, logits_processors,
            trace,
        )  # fmt: skip

        def buffer(size: int, dtype: torch.dtype) -> CpuGpuBuffer:
            return CpuGpuBuffer(size, dtype=dtype, device=device)

        # Sized once for the largest pass; each pass overwrites a prefix.
        self.arange_np = np.arange(max(max_num_reqs + 1, max_num_tokens), dtype=np.int64)
        self.input_ids = buffer(max_num_tokens, torch.int32)
        self.positions = buffer(max_num_tokens, torch.int64)
        self.query_pos = buffer(max_num_tokens, torch.int64)
        self.query_start_loc = buffer(max_num_reqs + 1, torch.int32)
        self.seq_lens = buffer(max_num_reqs, torch.int32)
        self.discard_request_mask = buffer(max_num_reqs, torch.bool)
        self.sample_positions = buffer(max_num_reqs, torch.int64)
        # The largest array of a pass. Allocated anew it would lie elsewhere each time, in pages that are not there yet.
        self.logits = torch.empty(max_num_reqs, model.vocab_size) if device.type == "cpu" else None
        self.prepare_inputs_event = torch.cuda.Event() if device.type == "cuda" else None
        self.forward_facts = functools.cache(functools.partial(trace_facts.forward, model, device))

    # ---- execute_model: update, prepare, forward, park ----------------------------------------------------------

    @torch.inference_mode()
    def execute_model(
        self, scheduler_output: SchedulerOutput, intermediate_tensors: torch.Tensor | None = None
    ) -> ModelRunnerOutput | torch.Tensor | None:
        """Run one pass up to its logits, park them and return None.

        Returns an empty output where no token was scheduled, and hidden states on a pipeline rank that is not the last.
        Raises RuntimeError where the last pass has not been sampled.
        """
        if self.execute_model_state is not None:
            raise RuntimeError("State error: sample_tokens() must be called after execute_model() returns None.")
        if self.trace:
            self.trace.begin()

        with self.synchronize_input_prep():
            deferred_state_corrections_fn = self._update_states(scheduler_output)
            if not scheduler_output.total_num_scheduled_tokens:
                return EMPTY_MODEL_RUNNER_OUTPUT
            logits_indices = self._prepare_inputs(scheduler_output)
            attn_metadata = self._build_attention_metadata(scheduler_output)

        num_tokens = attn_metadata.num_actual_tokens
        with set_forward_context(attn_metadata):
            hidden_states = self.model(
                self.input_ids.gpu[:num_tokens], self.positions.gpu[:num_tokens], intermediate_tensors
            )
        if self.trace:
            self.trace.mark(Phase.FORWARD, *self.forward_facts(num_tokens))

        if not get_pp_group().is_last_rank:
            return hidden_states
        sample_hidden_states = hidden_states[logits_indices]
        logits = self.model.compute_logits(sample_hidden_states, self.logits)
        self.execute_model_state = ExecuteModelState(
            scheduler_output, logits, None, hidden_states, sample_hidden_states
        )
        if self.trace:
            self.trace.mark(Phase.PARK_LOGITS, list(logits.shape), list(self.input_batch.req_ids))
        if deferred_state_corrections_fn:
            deferred_state_corrections_fn()
        return None

    @contextmanager
    def synchronize_input_prep(self) -> Iterator[None]:
        """Keep this pass's writes off buffers that the last pass's copies to the device may still read."""
        if self.prepare_inputs_event is not None:
            self.prepare_inputs_event.synchronize()
        if self.trace:
            fence = self.prepare_inputs_event is not None
            self.trace.mark(Phase.SYNCHRONIZE_INPUT_PREP, fence)
        try:
            yield
        finally:
            if self.prepare_inputs_event is not None:
                self.prepare_inputs_event.record()

    # ---- update: the batch, as a diff against the scheduler's decision ------------------------------------------

    def _update_states(self, scheduler_output: SchedulerOutput) -> Callable[[], None] | None:
        """Bring requests and batch in line with the decision. Returns corrections to run after the launch, if any."""
        self._remove_finished(scheduler_output)
        self._remove_unscheduled(scheduler_output)
        reqs_to_add = self._new_requests(scheduler_output)
        reqs_to_add += self._update_cached(scheduler_output)

        rows = [self.input_batch.add_request(request) for request in reqs_to_add]
        if self.trace:
            self.trace.mark(Phase.ADD_REQUESTS, [request.req_id for request in reqs_to_add], rows)

        moves = self.input_batch.condense()
        if self.trace:
            self.trace.mark(Phase.CONDENSE, moves)

        swaps = self._may_reorder_batch(scheduler_output)
        if self.trace:
            self.trace.mark(Phase.REORDER, swaps)

        rebuilt = self.input_batch.refresh_metadata()
        if self.trace:
            self.trace.mark(Phase.REFRESH_METADATA)
            self.trace.tell(list(self.input_batch.req_ids), list(self.requests), rebuilt)
        return None

    def _remove_finished(self, scheduler_output: SchedulerOutput) -> None:
        """What has finished leaves both the batch and the runner's dictionary."""
        self.prompt_logprobs_req_ids -= scheduler_output.finished_req_ids
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
        for req_id in scheduler_output.finished_req_ids:
            self.input_batch.remove_request(req_id)
        if self.trace:
            self.trace.mark(Phase.REMOVE_FINISHED, scheduler_output.finished_req_ids)

    def _remove_unscheduled(self, scheduler_output: SchedulerOutput) -> None:
        """What this pass does not run leaves the batch, and stays known because it is expected back."""
        scheduled_req_ids = scheduler_output.num_scheduled_tokens.keys()
        cached_req_ids = self.input_batch.req_id_to_index.keys()
        resumed_req_ids = scheduler_output.scheduled_cached_reqs.resumed_req_ids
        # Sorted by row, so that two runs of one workload do the same.
        unscheduled_req_ids = sorted(
            cached_req_ids - (scheduled_req_ids - resumed_req_ids), key=self.input_batch.req_id_to_index.__getitem__
        )
        for req_id in unscheduled_req_ids:
            self.input_batch.remove_request(req_id)
        if self.trace:
            self.trace.mark(Phase.REMOVE_UNSCHEDULED, unscheduled_req_ids)

    def _new_requests(self, scheduler_output: SchedulerOutput) -> list[CachedRequestState]:
        requests = []
        for data in scheduler_output.scheduled_new_reqs:
            seed = data.sampling_params.seed
            if seed is None:
                seed = int(self.seed_source.integers(1 << 62))
            self.requests[data.req_id] = CachedRequestState.from_new(data, seed)
            requests.append(self.requests[data.req_id])
            if data.sampling_params.prompt_logprobs is not None:
                self.prompt_logprobs_req_ids.add(data.req_id)
        return requests

    def _update_cached(self, scheduler_output: SchedulerOutput) -> list[CachedRequestState]:
        """Write counters and new blocks into the rows of known requests; return those that have no row."""
        cached = scheduler_output.scheduled_cached_reqs
        rows: list[int] = []
        counts: list[int] = []
        absent = []
        for req_id, num_computed_tokens, new_block_ids in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            request = self.requests[req_id]
            request.num_computed_tokens = num_computed_tokens
            row = self.input_batch.req_id_to_index.get(req_id)
            if new_block_ids is not None:
                if req_id in cached.resumed_req_ids:
                    request.block_ids = tuple(list(ids) for ids in new_block_ids)
                else:
                    for ids, new_ids in zip(request.block_ids, new_block_ids, strict=True):
                        ids.extend(new_ids)
                    if row is not None:
                        self.input_batch.append_blocks(row, new_block_ids[0])
            if row is None:
                absent.append(request)
            else:
                rows.append(row)
                counts.append(num_computed_tokens)
        self.input_batch.update_computed_tokens(rows, counts)
        if self.trace:
            self.trace.mark(Phase.UPDATE_CACHED, rows, [request.req_id for request in absent])
        return absent

    def _may_reorder_batch(self, scheduler_output: SchedulerOutput) -> list[tuple[int, int]]:
        """Let the attention backend's threshold group decodes before prefills; none is set by default on the CPU."""
        threshold = self.config.scheduler_config.reorder_batch_threshold
        if threshold is None:
            return []
        return reorder_batch(self.input_batch, scheduler_output.num_scheduled_tokens, threshold)

    # ---- prepare: the flat arrays of this pass ------------------------------------------------------------------

    def _prepare_inputs(self, scheduler_output: SchedulerOutput) -> torch.Tensor:
        """Lay the rows end to end on one token axis; return logits_indices, int32 [R]."""
        batch = self.input_batch
        num_reqs, total = batch.num_reqs, scheduler_output.total_num_scheduled_tokens
        batch.block_table.commit_block_table(num_reqs)
        counts = np.array([scheduler_output.num_scheduled_tokens[req_id] for req_id in batch.req_ids], dtype=np.int64)

        req_indices = np.repeat(self.arange_np[:num_reqs], counts)
        cu_num_tokens = cumsum_and_arange(counts, self.arange_np, self.query_pos.np)
        positions = self.positions.np[:total]
        np.add(batch.num_computed_tokens_cpu[req_indices], self.query_pos.np[:total], out=positions)
        token_indices = flat_token_indices(positions, req_indices, batch.token_ids_cpu.shape[1])
        torch.index_select(
            batch.token_ids_cpu_tensor.flatten(), 0, torch.from_numpy(token_indices), out=self.input_ids.cpu[:total]
        )

        self.query_start_loc.np[0] = 0
        self.query_start_loc.np[1 : num_reqs + 1] = cu_num_tokens
        self.query_start_loc.np[num_reqs + 1 :].fill(cu_num_tokens[-1])
        query_start_loc = self.query_start_loc.copy_to_gpu()[: num_reqs + 1]

        # Optimistic: as long as each row will be once this pass has finished.
        self.seq_lens.np[:num_reqs] = batch.num_computed_tokens_cpu[:num_reqs] + counts
        self.seq_lens.np[num_reqs:].fill(0)
        self.discard_request_mask.np[:num_reqs] = self.seq_lens.np[:num_reqs] < batch.num_tokens_no_spec[:num_reqs]
        self.sample_positions.np[:num_reqs] = self.seq_lens.np[:num_reqs]
        for host in (self.seq_lens, self.discard_request_mask, self.sample_positions):
            host.copy_to_gpu(num_reqs)
        self.input_ids.copy_to_gpu(total)
        self.positions.copy_to_gpu(total)
        batch.block_table.compute_slot_mapping(query_start_loc, self.positions.gpu[:total])

        logits_indices = query_start_loc[1:] - 1
        if self.trace:
            self.trace.mark(Phase.PREPARE_INPUTS)
            arrays = counts, req_indices, token_indices, logits_indices.cpu().numpy()
            self.trace.tell(*arrays, *trace_facts.prepared(self, num_reqs, total))
        return logits_indices

    def _build_attention_metadata(self, scheduler_output: SchedulerOutput) -> AttentionMetadata:
        num_reqs, total = self.input_batch.num_reqs, scheduler_output.total_num_scheduled_tokens
        block_table = self.input_batch.block_table
        metadata = AttentionMetadata(
            num_actual_tokens=total,
            max_query_len=max(scheduler_output.num_scheduled_tokens.values()),
            max_seq_len=int(self.seq_lens.np[:num_reqs].max()),
            query_start_loc=self.query_start_loc.gpu[: num_reqs + 1],
            seq_lens=self.seq_lens.gpu[:num_reqs],
            block_table=block_table.block_table.gpu[:num_reqs],
            slot_mapping=block_table.slot_mapping.gpu[:total],
        )
        if self.trace:
            lengths = metadata.max_query_len, metadata.max_seq_len
            self.trace.mark(Phase.ATTENTION_METADATA, total, *lengths, block_table.block_size)
        return metadata

    # ---- sample_tokens: unpark, sample, discard -----------------------------------------------------------------

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput | None:
        """Sample from the parked logits and return the tokens of the rows that are not still in prefill.

        Returns None on a rank that parks nothing. Raises RuntimeError where nothing is parked on one that does.
        """
        if self.execute_model_state is None:
            if not get_pp_group().is_last_rank:
                return None
            raise RuntimeError("State error: execute_model() must be called before sample_tokens().")
        state, self.execute_model_state = self.execute_model_state, None  # also after a failure below
        if self.trace:
            self.trace.begin()

        batch = self.input_batch
        masked = unmasked = None
        if grammar_output is not None:
            masked = MaskedRows.of(grammar_output, batch.req_id_to_index)
            unmasked = state.logits[masked.rows] if self.trace else None
            masked.apply(state.logits)
        sampled, logprobs = self.sampler(
            state.logits, batch.sampling_metadata, self.sample_positions.gpu[: batch.num_reqs]
        )
        sampled_np = sampled.cpu().numpy()
        if self.trace:
            self.trace.mark(Phase.SAMPLE_TOKENS)
            masks = {} if masked is None or unmasked is None else masked.facts(unmasked)
            self.trace.tell(sampled_np, batch.sampling_metadata.all_greedy, masks)
        return self._bookkeeping(sampled_np, logprobs, self._prompt_logprobs(state))

    def _prompt_logprobs(self, state: ExecuteModelState) -> dict[str, LogprobsLists]:
        """Let each row that wants log-probabilities of its prompt add this pass's; return those that are complete."""
        complete = {}
        for req_id in self.prompt_logprobs_req_ids & self.input_batch.req_id_to_index.keys():
            row = self.input_batch.req_id_to_index[req_id]
            start, end = self.query_start_loc.np[row : row + 2]
            hidden_states = state.hidden_states[start:end]
            lists = prompt_logprobs.add_chunk(self.requests[req_id], hidden_states, self.model.compute_logits)
            if lists is not None:
                complete[req_id] = lists
        self.prompt_logprobs_req_ids -= complete.keys()
        return complete

    def _bookkeeping(
        self, sampled: np.ndarray, logprobs: LogprobsLists | None, prompt_logprobs_dict: dict[str, LogprobsLists]
    ) -> ModelRunnerOutput:
        """Write the samples that count into their rows, and drop those of rows still in prefill."""
        batch = self.input_batch
        kept = np.flatnonzero(~self.discard_request_mask.np[: batch.num_reqs])
        tokens = sampled[kept]
        batch.append_tokens(kept, tokens)
        sampled_token_ids: list[list[int]] = [[] for _ in range(batch.num_reqs)]
        for row, token in zip(kept.tolist(), tokens.tolist(), strict=True):
            sampled_token_ids[row].append(token)
            self.requests[batch.req_ids[row]].output_token_ids.append(token)
        if self.trace:
            self.trace.mark(Phase.BOOKKEEPING, batch.num_reqs, kept, tokens)
        return ModelRunnerOutput(
            list(batch.req_ids), dict(batch.req_id_to_index), sampled_token_ids, logprobs, prompt_logprobs_dict
        )

    # ---- startup ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Run the model and both samplers once over the null block, so that kernels are compiled before a request."""
        num_tokens = min(self.config.cache_config.block_size, len(self.input_ids.np) - 1, 8)
        for lengths in ([1], [1, num_tokens]):
            total = sum(lengths)
            ends = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=self.device)
            metadata = AttentionMetadata(
                num_actual_tokens=total,
                max_query_len=max(lengths),
                max_seq_len=max(lengths),
                query_start_loc=ends,
                seq_lens=torch.tensor(lengths, dtype=torch.int32, device=self.device),
                block_table=torch.zeros(len(lengths), 1, dtype=torch.int32, device=self.device),
                slot_mapping=torch.zeros(total, dtype=torch.int64, device=self.device),
            )
            with set_forward_context(metadata):
                hidden_states = self.model(self.input_ids.gpu[:total], self.positions.gpu[:total], None)
            self.sampler.warm_up(self.model.compute_logits(hidden_states[ends[1:] - 1]))

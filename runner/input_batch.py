"""The persistent batch: rows that outlive the pass."""

from typing import Any

import numpy as np
import torch

from engine.sampling_params import SamplingParams
from runner.block_table import BlockTable
from runner.buffers import CpuGpuBuffer
from runner.cached_request import CachedRequestState
from runner.logits_processors import LogitsProcessors
from runner.logits_processors.batch_update_builder import BatchUpdateBuilder
from runner.sampling_metadata import SamplingMetadata
from tracer.recorder import Recorder


class InputBatch:
    """One row a request: its tokens, its counters, its blocks and its sampling parameters.

    A row's index is not an identity: `condense` and a reorder move rows, so look requests up in `req_id_to_index`.
    Between `remove_request` and `condense` there are holes, listed in `_holes`.
    """

    def __init__(
        self, max_num_reqs: int, max_model_len: int, max_num_batched_tokens: int, block_size: int,
        device: torch.device, logits_processors: LogitsProcessors, trace: Recorder | None = None,
    ) -> None:  # fmt: skip
        self.max_num_reqs = max_num_reqs
        self.trace = trace
        self._req_ids: list[str | None] = []
        self.req_id_to_index: dict[str, int] = {}
        self._holes: list[int] = []
        self._changes = BatchUpdateBuilder()  # since the last pass's sampling_metadata
        self._logits_processors = logits_processors
        self._sampling_params: dict[str, SamplingParams] = {}

        self.token_ids_cpu_tensor = torch.zeros(max_num_reqs, max_model_len, dtype=torch.int32)
        self.token_ids_cpu = self.token_ids_cpu_tensor.numpy()
        self.num_tokens_no_spec = np.zeros(max_num_reqs, dtype=np.int32)
        self.num_prompt_tokens = np.zeros(max_num_reqs, dtype=np.int32)
        self.num_computed_tokens_cpu = np.zeros(max_num_reqs, dtype=np.int32)
        self.block_table = BlockTable(
            max_num_reqs, -(-max_model_len // block_size), max_num_batched_tokens, block_size, device
        )

        def parameter(dtype: torch.dtype) -> CpuGpuBuffer:
            return CpuGpuBuffer(max_num_reqs, dtype=dtype, device=device)

        self.temperature = parameter(torch.float32)
        self.top_p = parameter(torch.float32)
        self.top_k = parameter(torch.int32)
        self.min_p = parameter(torch.float32)
        self.seeds = parameter(torch.int64)
        self._row_arrays = (
            self.token_ids_cpu, self.num_tokens_no_spec, self.num_prompt_tokens, self.num_computed_tokens_cpu,
            self.temperature.np, self.top_p.np, self.top_k.np, self.min_p.np, self.seeds.np,
        )  # fmt: skip

    @property
    def num_reqs(self) -> int:
        return len(self.req_id_to_index)

    @property
    def req_ids(self) -> list[str]:
        """Ids in row order. Only valid without holes."""
        return self._req_ids  # type: ignore[return-value]

    def add_request(self, request: CachedRequestState) -> int:
        """Write the request into the lowest hole, or else into a new last row, and return the row."""
        if request.req_id in self.req_id_to_index:
            raise RuntimeError(f"request {request.req_id} is in the batch already")
        if self._holes:
            self._holes.sort(reverse=True)
            row = self._holes.pop()
            self._req_ids[row] = request.req_id
        else:
            row = len(self._req_ids)
            if row == self.max_num_reqs:
                raise RuntimeError(f"the batch is full: the scheduler let in more than {row} requests")
            self._req_ids.append(request.req_id)
        self.req_id_to_index[request.req_id] = row
        self._write_row(row, request)
        self._changes.add(row, request)
        if self.trace:
            for field, value in self.row_state(row).items():
                self.trace.set(field, [row], [value])
        return row

    def remove_request(self, req_id: str) -> int | None:
        """Leave a hole where the request was and return the row; None where it was not in the batch."""
        row = self.req_id_to_index.pop(req_id, None)
        if row is None:
            return None
        self._req_ids[row] = None
        self._holes.append(row)
        del self._sampling_params[req_id]
        self._changes.remove(row)
        if self.trace:
            self.trace.clear(row)
        return row

    def condense(self) -> list[tuple[int, int]]:
        """Move the last rows down into the lowest holes; return the moves as (from, to)."""
        moves = []
        for hole in sorted(self._holes):
            self._trim()
            last = len(self._req_ids) - 1
            if hole > last:
                break
            self._move_row(last, hole)
            moves.append((last, hole))
        self._trim()
        self._holes.clear()
        return moves

    def swap_states(self, a: int, b: int) -> None:
        """Exchange two rows, as a reorder does."""
        first, second = self.req_ids[a], self.req_ids[b]
        self._req_ids[a], self._req_ids[b] = second, first
        self.req_id_to_index[first], self.req_id_to_index[second] = b, a
        for values in self._row_arrays:
            values[[a, b]] = values[[b, a]]
        self.block_table.swap_row(a, b)
        self._changes.swap(a, b)
        if self.trace:
            self.trace.swap(a, b)

    def update_computed_tokens(self, rows: list[int], num_computed_tokens: list[int]) -> None:
        """Write the one counter that every running request's pass needs."""
        self.num_computed_tokens_cpu[rows] = num_computed_tokens
        if self.trace and rows:
            self.trace.set("num_computed_tokens", rows, num_computed_tokens)

    def append_blocks(self, row: int, block_ids: list[int]) -> None:
        """Extend a row's block table in place."""
        start = int(self.block_table.num_blocks_per_row[row])
        self.block_table.append_row(block_ids, row)
        if self.trace:
            self.trace.put("block_table", [row], [start], [list(block_ids)])

    def append_tokens(self, rows: np.ndarray, token_ids: np.ndarray) -> None:
        """Write one sampled token at the end of each of the rows."""
        ends = self.num_tokens_no_spec[rows]
        self.token_ids_cpu[rows, ends] = token_ids
        self.num_tokens_no_spec[rows] = ends + 1
        if self.trace and len(rows):
            self.trace.append_tokens(rows, ends, token_ids)

    def refresh_metadata(self) -> bool:
        """Bring sampling_metadata and the logits processors up to date with the rows; return whether it was rebuilt."""
        batch_update = self._changes.take(self.num_reqs)
        self._logits_processors.update_state(batch_update)
        if batch_update is None:
            return False
        self.sampling_metadata = self._make_sampling_metadata()
        return True

    def row_state(self, row: int) -> dict[str, Any]:
        """Return the row's fields as plain values, under the names of tracer.schema.ROW_FIELDS."""
        num_tokens, req_id = int(self.num_tokens_no_spec[row]), self._req_ids[row]
        assert req_id is not None
        params = self._sampling_params[req_id]
        return {
            "req_id": req_id,
            "num_prompt_tokens": int(self.num_prompt_tokens[row]),
            "num_computed_tokens": int(self.num_computed_tokens_cpu[row]),
            "num_tokens_no_spec": num_tokens,
            "token_ids": self.token_ids_cpu[row, :num_tokens].tolist(),
            "block_table": self.block_table.row(row),
            "temperature": float(self.temperature.np[row]),
            "top_p": float(self.top_p.np[row]),
            "top_k": int(self.top_k.np[row]),
            "min_p": float(self.min_p.np[row]),
            "presence_penalty": params.presence_penalty,
            "frequency_penalty": params.frequency_penalty,
            "repetition_penalty": params.repetition_penalty,
        }

    def state(self) -> list[dict[str, Any] | None]:
        """Return all max_num_reqs rows as plain values, None for an empty one."""
        rows = [self.row_state(row) if req_id else None for row, req_id in enumerate(self._req_ids)]
        return rows + [None] * (self.max_num_reqs - len(rows))

    def _write_row(self, row: int, request: CachedRequestState) -> None:
        num_prompt, num_tokens = len(request.prompt_token_ids), request.num_tokens
        self.token_ids_cpu[row, :num_prompt] = request.prompt_token_ids
        self.token_ids_cpu[row, num_prompt:num_tokens] = request.output_token_ids
        self.num_prompt_tokens[row] = num_prompt
        self.num_tokens_no_spec[row] = num_tokens
        self.num_computed_tokens_cpu[row] = request.num_computed_tokens
        self.block_table.add_row(request.block_ids[0], row)

        params = self._sampling_params[request.req_id] = request.sampling_params
        self.temperature.np[row] = 0.0 if params.greedy else params.temperature
        self.top_p.np[row] = params.top_p
        self.top_k.np[row] = max(params.top_k, 0)
        self.min_p.np[row] = params.min_p
        self.seeds.np[row] = request.seed

    def _trim(self) -> None:
        while self._req_ids and self._req_ids[-1] is None:
            self._req_ids.pop()

    def _move_row(self, src: int, dst: int) -> None:
        req_id = self._req_ids[src]
        assert req_id is not None
        self._req_ids[dst], self._req_ids[src] = req_id, None
        self.req_id_to_index[req_id] = dst
        num_tokens = self.num_tokens_no_spec[src]
        self.token_ids_cpu[dst, :num_tokens] = self.token_ids_cpu[src, :num_tokens]
        for values in self._row_arrays[1:]:
            values[dst] = values[src]
        self.block_table.move_row(src, dst)
        self._changes.move(src, dst)
        if self.trace:
            self.trace.move(src, dst)

    def _make_sampling_metadata(self) -> SamplingMetadata:
        n = self.num_reqs
        return SamplingMetadata(
            all_greedy=not self.temperature.np[:n].any(),
            temperature=self.temperature.copy_to_gpu(n),
            top_p=self.top_p.copy_to_gpu(n),
            top_k=self.top_k.copy_to_gpu(n),
            min_p=self.min_p.copy_to_gpu(n),
            seeds=self.seeds.copy_to_gpu(n),
            num_logprobs={
                self.req_id_to_index[req_id]: params.logprobs
                for req_id, params in self._sampling_params.items()
                if params.logprobs is not None
            },
        )

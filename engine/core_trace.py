"""Numbers what happens in one engine core and hands it on, entry by entry."""

import time
from collections.abc import Callable
from typing import Any

from engine.executor import Executor
from engine.kv_cache_manager import KVCacheManager
from tracer.compare import first_difference
from tracer.fold import fold, new_state
from tracer.phases import PHASE_ORDER, Phase
from tracer.recorder import Recorder
from tracer.schema import Entry, EventRecord, PassRecord, PhaseRecord, decode, encode

TraceSink = Callable[[bytes], None]


class CoreTrace:
    """Joins the core's phases and the runner's into one record a pass; `seq` has no gaps over passes and events."""

    def __init__(self, sink: TraceSink, max_num_seqs: int, check: bool) -> None:
        """`check`: after each pass, hold the folded entries against the runner's batch."""
        self.recorder = Recorder()
        self.num_passes = 0
        self._sink = sink
        self._seq = 0
        self._started = (0, 0.0)  # monotonic ns, seconds since the epoch
        self._phases: list[PhaseRecord] = []  # of the pass, as far as they have been asked for
        self._call = [0, 0]  # of sample_tokens, monotonic ns
        self._folded = new_state(max_num_seqs) if check else None

    def begin_pass(self) -> None:
        """Start the pass's clock."""
        self._started = self.recorder.begin(), time.time()

    def begin(self) -> int:
        """Start the clock of the next phase and return it, in ns."""
        return self.recorder.begin()

    def mark(self, phase: Phase, described: Callable[[], dict[str, Any]], start: int | None = None) -> None:
        """End `phase` now; what it has to tell (fields of PhaseRecord) is put together after its time is taken."""
        record = self.recorder.mark(phase, start=start)
        for field, value in described().items():
            setattr(record, field, value)
        self.recorder.begin()

    def sample_tokens_called(self, start: int) -> None:
        """Note that the call which began at `start` has come back now: the fact `call_ns` of sample_tokens."""
        self._call = [start, self.recorder.begin()]

    def end_pass(self, executor: Executor) -> None:
        """Send the record of the pass. Raises AssertionError in check mode where trace and batch differ."""
        phases, self._phases = self.phases_so_far(executor), []
        start_ns, started = self._started
        self._send(PassRecord(self._seq, "pass", self.num_passes, started, start_ns, phases))
        self.num_passes += 1
        if self._folded is not None:
            batch = executor.collective_rpc("batch_state", single_value=True)
            difference = first_difference(batch, self._folded["rows"], "rows")
            assert difference is None, f"pass {self.num_passes - 1}: the trace is not the batch: {difference}"

    def phases_so_far(self, executor: Executor) -> list[PhaseRecord]:
        """Return the phases of the pass that is under way, in order; `end_pass` sends them as well."""
        new = self.recorder.take() + executor.collective_rpc("take_trace", single_value=True)
        for phase in new:
            phase.start -= self._started[0]
            phase.end -= self._started[0]
            if phase.phase == Phase.SAMPLE_TOKENS:
                phase.facts["call_ns"] = [time_ns - self._started[0] for time_ns in self._call]
        self._phases = sorted(self._phases + new, key=lambda phase: PHASE_ORDER[phase.phase])
        return self._phases

    def held(self, executor: Executor) -> dict[str, Any]:
        """Return what a pass record will say of the pass that is under way, as far as it has come."""
        start_ns, started = self._started
        phases = self.phases_so_far(executor)
        return {"pass_id": self.num_passes, "time": started, "start_ns": start_ns, "phases": phases}

    def misstated_blocks(self, manager: KVCacheManager) -> str | None:
        """Return where the folded KV blocks or their owners differ from the manager's, or None."""
        assert self._folded is not None
        pool = {
            str(block.block_id): [block.ref_cnt, int(block.block_hash is not None)]
            for block in manager.block_pool.blocks
            if block.ref_cnt or block.block_hash is not None
        }
        folded = {block_id: state for block_id, state in self._folded["blocks"].items() if any(state)}
        held = {request_id: manager.get_block_ids(request_id) for request_id in manager.req_to_blocks}
        owners = {
            request_id: request["block_ids"]
            for request_id, request in self._folded["requests"].items()
            if request.get("block_ids")
        }
        return first_difference(pool, folded, "blocks") or first_difference(held, owners, "block_ids")

    def event(
        self,
        kind: str,
        facts: dict[str, Any],
        requests: list[tuple[str, dict[str, Any]]] | None = None,
        blocks: list[tuple[int, int, int]] | None = None,
    ) -> None:
        """Send what happened between passes."""
        self._send(EventRecord(self._seq, kind, time.time(), facts, requests or [], blocks or []))

    def _send(self, entry: Entry) -> None:
        data = encode(entry)
        self._seq += 1
        if self._folded is not None:
            fold(self._folded, decode(data))
        self._sink(data)

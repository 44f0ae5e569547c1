"""Numbers what happens in one engine core and hands it on, entry by entry."""

import time
from collections.abc import Callable
from typing import Any

from engine.executor import Executor
from engine.kv_cache_manager import KVCacheManager
from tracer.bunch import pack
from tracer.compare import first_difference
from tracer.fold import fold, new_state
from tracer.marked_pass import MarkedPass, describe
from tracer.recorder import Mark, Recorder
from tracer.schema import EventRecord, PhaseRecord, decode, encode

MOST_UNSENT = 32  # passes that are held back: one by one, each would find the caches cold, and repeat the one before
TraceSink = Callable[[bytes], None]


class CoreTrace:
    """Joins the core's phases and the runner's into one record a pass; `seq` has no gaps over passes and events."""

    def __init__(self, sink: TraceSink, max_num_seqs: int, check: bool) -> None:
        """`check`: after each pass, hold the folded entries against the runner's batch."""
        self.recorder = Recorder()
        self.begin, self.mark, self.tell = self.recorder.begin, self.recorder.mark, self.recorder.tell
        self.num_passes = 0
        self.delay_s = 0.0  # how long passes in which nothing happens may wait to be sent together
        self._sink = sink
        self._seq = 0
        self._unsent: list[MarkedPass] = []
        self._sent_ns = 0  # when the last were
        self._started = (0, 0.0)  # monotonic ns, seconds since the epoch
        self._marks: list[Mark] = []  # of the pass that is under way, as far as they have been asked for
        self._call = (0, 0)  # of sample_tokens, monotonic ns
        self._folded = new_state(max_num_seqs) if check else None

    def begin_pass(self) -> None:
        """Start the pass's clock."""
        self._started = self.recorder.begin(), time.time()

    def sample_tokens_called(self, start: int) -> None:
        """Note that the call which began at `start` has come back now: the fact `call_ns` of sample_tokens."""
        self._call = start, self.recorder.begin()

    def end_pass(self, executor: Executor, quiet: bool = False) -> None:
        """Record the pass. `quiet`: none came, left or was preempted in it, so that `send_if_due` may send it later.

        Raises AssertionError in check mode where trace and batch differ.
        """
        self._take_marks(executor)
        marks, self._marks = self._marks, []
        start_ns, started = self._started
        ended = MarkedPass(self._seq, self.num_passes, started, start_ns, marks, self._call)
        self._seq += 1
        self.num_passes += 1
        if quiet and self.delay_s and self._folded is None:
            self._unsent.append(ended)
        else:
            self.flush()
            self._send(encode(ended.record()))
        if self._folded is not None:
            batch = executor.collective_rpc("batch_state", single_value=True)
            difference = first_difference(batch, self._folded["rows"], "rows")
            assert difference is None, f"pass {self.num_passes - 1}: the trace is not the batch: {difference}"

    def send_if_due(self) -> None:
        """Send what is held back where there is much of it, or the first has waited for `delay_s`."""
        if self._unsent and (
            len(self._unsent) >= MOST_UNSENT or self._started[0] >= self._sent_ns + self.delay_s * 1e9
        ):
            self.flush()

    def flush(self) -> None:
        """Send what is held back."""
        self._sent_ns = self._started[0]
        unsent, self._unsent = self._unsent, []
        for message in pack(unsent):
            self._sink(message)

    def phases_so_far(self, executor: Executor) -> list[PhaseRecord]:
        """Return the phases of the pass that is under way, in order; `end_pass` records them as well."""
        self._take_marks(executor)
        return describe(self._marks, self._started[0], self._call)

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
        self.flush()
        self._send(encode(EventRecord(self._seq, kind, time.time(), facts, requests or [], blocks or [])))
        self._seq += 1

    def _send(self, data: bytes) -> None:
        if self._folded is not None:
            fold(self._folded, decode(data))
        self._sink(data)

    def _take_marks(self, executor: Executor) -> None:
        self._marks += self.recorder.take()
        self._marks += executor.collective_rpc("take_trace", single_value=True)

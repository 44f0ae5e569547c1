"""What a pass did that a breakpoint may wait for, read from the scheduler's decisions and the runner's own facts."""

from collections.abc import Iterator, Sequence

from engine.outputs import SchedulerOutput
from engine.scheduler import Scheduler
from tracer.breakpoints import Happened, On
from tracer.phases import Phase
from tracer.schema import PhaseRecord


class PassWatch:
    """Asked in each pass while there are breakpoints: once inside it, and once after it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.restart()

    def restart(self) -> None:
        """Breakpoints are new: what has been so far is no news."""
        self._looked_at: SchedulerOutput | None = None
        self._batch: set[str] | None = None  # ids of the last pass, once one has been looked at
        self._told = set(self._scheduler.finished_req_ids)

    def inside(self, output: SchedulerOutput, phases: Sequence[PhaseRecord]) -> list[Happened]:
        """Return what the pass did up to its first stop, and nothing at its second. `phases`: those recorded so far."""
        if output is self._looked_at:
            return []
        self._looked_at = output
        happened = [*_scheduled(output), *self._left_between_passes(output), *self._entered(output), *_moved(phases)]
        self._batch = set(output.num_scheduled_tokens)
        return happened

    def after(self) -> list[Happened]:
        """Return which requests ended in the pass."""
        scheduler = self._scheduler
        stopped = {request.request_id: request.status.finish_reason for request in scheduler.stopped}
        self._told = set(scheduler.finished_req_ids)
        aborted = sorted(self._told - stopped.keys())
        return [_ended(req_id, Phase.PROCESS_ABORTS, "abort") for req_id in aborted] + [
            _ended(req_id, Phase.UPDATE_FROM_OUTPUT, reason) for req_id, reason in stopped.items()
        ]

    def _left_between_passes(self, output: SchedulerOutput) -> Iterator[Happened]:
        for req_id in sorted(output.finished_req_ids - self._told):
            yield _ended(req_id, Phase.REMOVE_FINISHED, "abort")

    def _entered(self, output: SchedulerOutput) -> Iterator[Happened]:
        """Yield who came into the batch; all that are in it where no pass has been looked at before."""
        added = {new.req_id for new in output.scheduled_new_reqs} | output.scheduled_cached_reqs.resumed_req_ids
        for req_id in output.num_scheduled_tokens:
            if req_id in added or (self._batch is not None and req_id not in self._batch):
                yield Happened(On.REQUEST_IN_BATCH, Phase.ADD_REQUESTS, f"{req_id} entered the batch", req_id)
            elif self._batch is None:
                yield Happened(On.REQUEST_IN_BATCH, Phase.UPDATE_CACHED, f"{req_id} is in the batch", req_id)


def _scheduled(output: SchedulerOutput) -> Iterator[Happened]:
    for req_id in sorted(output.preempted_req_ids):
        yield Happened(On.PREEMPTED, Phase.SCHEDULE, f"{req_id} was preempted", req_id)
    for req_id in sorted(output.scheduled_cached_reqs.resumed_req_ids):
        yield Happened(On.RESUMED, Phase.SCHEDULE, f"{req_id} was resumed", req_id)
    total = output.total_num_scheduled_tokens
    yield Happened(On.TOTAL_TOKENS_ABOVE, Phase.SCHEDULE, f"{total} tokens were scheduled", value=total)


def _moved(phases: Sequence[PhaseRecord]) -> Iterator[Happened]:
    for record in phases:
        if record.phase == Phase.CONDENSE:
            for src, dst, _ in record.facts["moved"]:
                yield Happened(On.ROW_MOVED, Phase.CONDENSE, f"row {src} moved to row {dst} in condense")
        elif record.phase == Phase.REORDER:
            for a, b, _ in record.facts["moved"]:
                yield Happened(
                    On.ROW_MOVED, Phase.REORDER, f"rows {min(a, b)} and {max(a, b)} swapped places in reorder"
                )


def _ended(req_id: str, phase: Phase, reason: str | None) -> Happened:
    return Happened(On.FINISHED, phase, f'{req_id} finished with reason "{reason}"', req_id)

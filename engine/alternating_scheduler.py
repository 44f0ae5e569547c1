"""A scheduler that defeats the persistent batch on purpose, to show what it saves: two sets of requests take turns."""

from engine.config import EngineConfig
from engine.pass_plan import PassPlan
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler

SETS = 2


class AlternatingScheduler(Scheduler):
    """As Scheduler, but of the running requests only one of two disjoint sets runs in a pass, each in its turn.

    So every row of the last pass leaves the batch, and those of the pass before come back. A request runs in the pass
    that admits it, and belongs from then on to the set that is smaller. Chosen by
    `--scheduler-cls engine.alternating_scheduler.AlternatingScheduler`.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.turn = 0  # the set that ran in the last pass
        self._sets: list[list[Request]] = [[] for _ in range(SETS)]

    def _schedule_running(self, plan: PassPlan, threshold: int, throttle_prefills: bool) -> None:
        running = self.running
        mine, resting = self._next_set()
        self.running = list(mine)
        super()._schedule_running(plan, threshold, throttle_prefills)
        self.running = [request for request in running if request.status is RequestStatus.RUNNING]
        if plan.why is not None:
            for request in resting:
                plan.why[request.request_id] = ["not_its_turn", {"others": len(mine), "set": len(resting)}]

    def _next_set(self) -> tuple[list[Request], list[Request]]:
        """Return the set whose turn it is and the one that rests; an empty set has no turn."""
        running = {id(request) for request in self.running}
        self._sets = [[request for request in each if id(request) in running] for each in self._sets]
        placed = {id(request) for each in self._sets for request in each}
        for request in self.running:
            if id(request) not in placed:
                min(self._sets, key=len).append(request)
        if self._sets[1 - self.turn]:
            self.turn = 1 - self.turn
        return self._sets[self.turn], self._sets[1 - self.turn]

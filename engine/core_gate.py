"""The gate of one engine core: what people ask of it by way of the core, and what the core asks it in each pass."""

from collections.abc import Callable
from typing import Any

from engine.core_trace import CoreTrace
from engine.executor import Executor
from engine.outputs import SchedulerOutput
from engine.pass_watch import PassWatch
from engine.scheduler import Scheduler
from tracer.breakpoints import On, read_breakpoints
from tracer.gate import Gate, Stop


class CoreGate(Gate):
    """Holds passes, looks in each for what breakpoints wait for, and tells the trace of every change.

    `hold` takes inputs while a pass is held inside, until the gate lets it go on. Where there is none, nobody could, so
    a pass is held at its end instead.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, trace: CoreTrace | None) -> None:
        super().__init__()
        self.hold: Callable[[], None] | None = None
        self._watch = PassWatch(scheduler)
        self._executor = executor
        self._trace = trace

    def pause(self) -> None:
        super().pause()
        self._changed()

    def resume(self) -> None:
        super().resume()
        self._changed()

    def step_passes(self, passes: int = 1) -> None:
        inside = self.inside
        super().step_passes(passes)
        if not inside:  # else it is told at the pass's end
            self._changed()

    def step_stop(self) -> None:
        """See Gate. Raises ValueError where a pass cannot be held inside."""
        if self.hold is None:
            raise ValueError(
                "step_stop holds a pass inside, which takes an engine in a process of its own, as `batchscope serve` "
                "has: step whole passes here"
            )
        inside = self.inside
        super().step_stop()
        if not inside:  # else it is told at the next stop
            self._changed()

    def set_rate(self, rate: float | None) -> None:
        super().set_rate(rate)
        self._changed()

    def set_breakpoints(self, breakpoints: list[dict[str, Any]]) -> None:
        """Wait for these conditions instead of those before. Raises ValueError with the reason."""
        wanted = read_breakpoints(breakpoints)
        if self._trace is None and any(breakpoint.on is On.ROW_MOVED for breakpoint in wanted):
            raise ValueError("row_moved is read from the trace, which --no-trace turned off")
        self.breakpoints = wanted
        self._watch.restart()
        self._changed()

    def may_hold(self, stop: Stop, scheduler_output: SchedulerOutput) -> None:
        """A stop inside a pass: hold it here where there is a reason to."""
        if self.watching:
            self._look(stop, scheduler_output)

    def leave(self) -> None:
        if self.breakpoints:
            self.meet(self._watch.after())
        super().leave()
        if self.paused:
            self._changed()

    def _look(self, stop: Stop, scheduler_output: SchedulerOutput) -> None:
        if self.breakpoints:
            trace = self._trace if self.waits_for(On.ROW_MOVED) else None
            phases = trace.phases_so_far(self._executor) if trace else []
            self.meet(self._watch.inside(scheduler_output, phases))
        if self.at_next_stop and self.hold:
            self.arrive(stop)
            self._changed()
            self.hold()

    def _changed(self) -> None:
        if self._trace:
            held = {"held": self._trace.held(self._executor)} if self.inside else {}
            self._trace.event("gate", self.state() | held)

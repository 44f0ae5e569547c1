"""Invariants as assertions."""

from engine.invariants import violated_invariant
from engine.scheduler import Scheduler


def check_scheduler(scheduler: Scheduler) -> None:
    violated = violated_invariant(scheduler)
    assert violated is None, violated

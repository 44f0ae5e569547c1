"""Whatever is asked of the gate at whichever stop: nobody's tokens change, and the trace is whole."""

from collections.abc import Iterator
from random import Random

import pytest
from helpers import scripts
from helpers.held_engine import Watched
from helpers.threads import one_thread
from helpers.tiny_engine import ask, solo
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import Abort

MOVES = ("step_stop", "step_stop", "step", "resume", "pause", "add", "abort", "breakpoints")
CONDITIONS = ("row_moved", "preempted", "resumed", "finished")
MOST_PASSES = 2000

pytestmark = pytest.mark.timeout(3600)  # for the longer profiles


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


class Fidgeter:
    """Works an engine's gate at random, adds requests and aborts some."""

    def __init__(self, choice: Random, adds: list[scripts.Add]) -> None:
        self.choice = choice
        self.adds = adds
        self.wanted: dict[tuple[str, int], scripts.Add] = {}
        self.aborted: set[tuple[str, int]] = set()

    def move(self, engine: Watched) -> None:
        gate = engine.core.gate
        match self.choice.choice(MOVES):
            case "add":
                self.add(engine)
            case "abort":
                if self.choice.random() < 0.3:
                    self.abort(engine)
            case "breakpoints":
                wait = self.choice.random() < 0.5
                gate.set_breakpoints([{"on": self.choice.choice(CONDITIONS)}] if wait else [])
            case "step":
                gate.step_passes(self.choice.randint(1, 3))
            case name:
                getattr(gate, name)()

    def add(self, engine: Watched) -> None:
        if not self.adds:
            return
        one = self.adds.pop()
        if one.req_id in engine.core.scheduler.requests:
            return
        submission = len(self.wanted)
        self.wanted[one.req_id, submission] = one
        engine.core.add_request(
            ask(one.req_id, list(one.prompt), one.max_tokens, submission=submission, priority=one.priority)
        )

    def abort(self, engine: Watched) -> None:
        live = list(engine.core.scheduler.requests.values())
        if not live:
            return
        victim = self.choice.choice(live)
        self.aborted.add((victim.request_id, victim.submission))
        if engine.core.gate.inside:
            engine.core.aborts_queue.put(Abort([victim.request_id]))
        else:
            engine.core.abort_requests([victim.request_id])


@given(choice=st.randoms(use_true_random=False), workload=scripts.workloads())
@settings(max_examples=settings().max_examples // 8)
def test_no_sequence_of_stops_changes_anybodys_tokens(choice: Random, workload: scripts.Workload) -> None:
    """Check mode holds every entry against the batch and the blocks all the while."""
    flags, actions = workload
    fidgeter = Fidgeter(choice, [action for action in actions if isinstance(action, scripts.Add)])
    engine = Watched(fidgeter.move, **flags)
    for _ in range(3):
        fidgeter.add(engine)
    for _ in range(MOST_PASSES):
        if not fidgeter.adds and not engine.core.scheduler.has_requests():
            break
        if not engine.core.ready or choice.random() < 0.3:
            fidgeter.move(engine)
        engine.run(1)
    assert not engine.core.scheduler.requests
    assert [record.pass_id for record in engine.passes] == list(range(len(engine.passes)))
    assert [entry.seq for entry in engine.entries] == list(range(len(engine.entries)))
    for key, one in fidgeter.wanted.items():
        tokens = engine.tokens.get(key, [])
        alone = solo(list(one.prompt), one.max_tokens)
        assert tokens == (alone[: len(tokens)] if key in fidgeter.aborted else alone)

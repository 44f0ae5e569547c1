"""One step of the engine core, its aborts, its gate and its trace."""

from typing import Any

import pytest
from helpers.fake_executor import FakeExecutor, fake_config, request, token
from helpers.invariants import check_scheduler

from engine.core import Abort, EngineCore
from engine.core_client import EngineDeadError
from engine.inproc_client import InprocClient
from engine.messages import EngineCoreOutput
from tracer.fold import fold, new_state
from tracer.phases import Phase
from tracer.schema import Entry, EventRecord, PassRecord, decode


class Traced:
    """A core on the fake executor, with its decoded trace."""

    def __init__(self, **flags: Any) -> None:
        self.entries: list[Entry] = []
        self.core = EngineCore(fake_config(**flags), lambda data: self.entries.append(decode(data)))
        assert isinstance(self.core.model_executor, FakeExecutor)
        self.executor = self.core.model_executor

    def step(self) -> list[EngineCoreOutput]:
        outputs, _ = self.core.run_pass()
        check_scheduler(self.core.scheduler)
        return [output for client in outputs.values() for output in client.outputs]

    def run(self) -> dict[str, list[int]]:
        """Run until idle; return each request's tokens."""
        tokens: dict[str, list[int]] = {}
        while self.core.scheduler.has_requests():
            for output in self.step():
                tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
        return tokens

    @property
    def passes(self) -> list[PassRecord]:
        return [entry for entry in self.entries if isinstance(entry, PassRecord)]

    @property
    def events(self) -> list[EventRecord]:
        return [entry for entry in self.entries if isinstance(entry, EventRecord)]


def expected(req_id: str, count: int) -> list[int]:
    return [token(req_id, i) for i in range(count)]


def test_a_step_with_nothing_to_do_returns_at_once_and_makes_no_call() -> None:
    engine = Traced()
    before = list(engine.executor.calls)
    assert engine.core.step() == ({}, False)
    assert engine.executor.calls == before


def test_a_step_makes_two_calls_and_says_whether_tokens_were_scheduled() -> None:
    engine = Traced()
    engine.core.add_request(request("A", max_tokens=1))
    engine.executor.calls.clear()
    outputs, scheduled = engine.core.step()
    assert engine.executor.calls == ["execute_model", "sample_tokens", "take_trace"]
    assert scheduled
    assert outputs[0].outputs[0].new_token_ids == expected("A", 1)
    assert outputs[0].outputs[0].finish_reason == "length"

    engine.executor.calls.clear()
    assert engine.core.step() == ({}, False), "the last pass only tells the runner that A has finished"
    assert engine.executor.calls == ["execute_model", "take_trace"]
    assert not engine.executor.known
    assert not engine.core.scheduler.has_requests()


def test_many_requests_get_their_own_tokens() -> None:
    engine = Traced(max_num_seqs=3)
    for i in range(9):
        engine.core.add_request(request(f"r{i}", prompt=3 + 5 * i, max_tokens=2 + i))
    assert engine.run() == {f"r{i}": expected(f"r{i}", 2 + i) for i in range(9)}


def test_an_abort_during_a_pass_is_handled_before_its_outputs_are_applied() -> None:
    """CASES 28a: the park is used once, the old output is dropped, and a pass without tokens carries the id."""
    engine = Traced()
    engine.core.add_request(request("X"))
    engine.executor.in_pass = lambda: engine.core.aborts_queue.put(Abort(["X"]))
    assert engine.step() == []
    engine.executor.in_pass = None
    assert engine.executor.parked is None
    assert engine.core.scheduler.finished_req_ids == {"X"}
    assert engine.step() == []
    last = engine.passes[-1].phases
    assert last[0].facts["finished_req_ids"] == ["X"]
    assert last[0].facts["num_scheduled_tokens"] == {}
    assert "sample_tokens" not in engine.executor.calls[-2:]
    assert not engine.executor.known


def test_an_id_that_ends_and_comes_again_is_two_requests() -> None:
    """CASES 28b: the next pass carries X as finished and as new; the new one starts fresh."""
    engine = Traced()
    engine.core.add_request(request("X", max_tokens=9))
    engine.executor.in_pass = lambda: engine.core.aborts_queue.put(Abort(["X"]))
    engine.step()
    engine.executor.in_pass = None
    engine.core.add_request(request("X", prompt=[7, 7], max_tokens=2, submission=2))
    outputs = engine.step()
    facts = engine.passes[-1].phases[0].facts
    assert facts["finished_req_ids"] == ["X"]
    assert [new["req_id"] for new in facts["scheduled_new_reqs"]] == ["X"]
    assert [(output.submission, output.new_token_ids) for output in outputs] == [(2, expected("X", 1))]
    assert engine.run() == {"X": [token("X", 1)]}


def test_an_abort_that_had_its_turn_does_not_hit_the_next_request_of_that_id() -> None:
    engine = Traced()
    engine.core.add_request(request("X"))
    abort = Abort(["X"])
    engine.core.aborts_queue.put(abort)
    engine.core.abort_requests(abort.request_ids)
    abort.handled = True
    engine.core.add_request(request("X", max_tokens=2))
    assert engine.run() == {"X": expected("X", 2)}


def test_a_live_id_is_refused_and_the_live_request_goes_on() -> None:
    """CASES 29."""
    engine = Traced()
    engine.core.add_request(request("X", max_tokens=3))
    with pytest.raises(ValueError, match="in use by a live request"):
        engine.core.add_request(request("X", prompt=[9]))
    assert engine.events[-1].facts["event"] == "refused"
    assert engine.run() == {"X": expected("X", 3)}


@pytest.mark.parametrize(("prompt", "max_tokens"), [(13, 1), (8, 16), ([], 1)])
def test_what_can_never_fit_is_refused_with_the_reason(prompt: Any, max_tokens: int) -> None:
    """CASES 22: 3 usable blocks of 4. What is behind it completes."""
    engine = Traced(num_gpu_blocks_override=4)
    with pytest.raises(ValueError, match=r"blocks of 4|prompt is empty"):
        engine.core.add_request(request("big", prompt, max_tokens))
    engine.core.add_request(request("small", 4, 2))
    assert engine.run() == {"small": expected("small", 2)}


def test_the_gate_holds_passes_and_lets_a_counted_number_through() -> None:
    engine = Traced()
    engine.core.gate.pause()
    engine.core.add_request(request("A", max_tokens=8))
    assert engine.step() == []
    assert not engine.passes
    engine.core.gate.step_passes(2)
    assert len([engine.step() for _ in range(5) if engine.core.ready]) == 2
    assert len(engine.passes) == 2
    assert engine.core.gate_state() == {
        "paused": True, "permits": 0, "stop": "before_schedule", "rate": None, "breakpoints": [], "hit": None
    }  # fmt: skip
    assert engine.events[-1].facts == engine.core.gate_state(), "the trace knows the gate"
    engine.core.abort_requests(["A"])
    assert not engine.core.scheduler.requests, "aborts are taken while the gate is closed"
    engine.core.gate.resume()
    engine.run()
    assert len(engine.passes) == 3


def test_only_utilities_can_be_called_by_name() -> None:
    engine = Traced()
    assert engine.core.utility("stats", [])["running"] == 0
    with pytest.raises(ValueError, match="no utility 'shutdown'"):
        engine.core.utility("shutdown", [])


def test_the_log_has_no_gaps_and_folds_to_what_happened() -> None:
    engine = Traced(max_num_seqs=2)
    state = new_state(2)
    for i in range(4):
        engine.core.add_request(request(f"r{i}", max_tokens=3))
    engine.core.abort_requests(["r2"])
    tokens = engine.run()
    assert [entry.seq for entry in engine.entries] == list(range(len(engine.entries)))
    assert [record.pass_id for record in engine.passes] == list(range(len(engine.passes)))
    for entry in engine.entries:
        fold(state, entry)
    for req_id, ids in tokens.items():
        assert state["requests"][req_id]["output_token_ids"] == ids
        assert state["requests"][req_id]["finish_reason"] == "length"
        assert state["requests"][req_id]["status"] == "FINISHED_LENGTH_CAPPED"
    assert state["requests"]["r2"]["status"] == "FINISHED_ABORTED"
    assert state["finished"] == ["r2", "r0", "r1", "r3"]


def test_phases_of_a_pass_are_in_order_and_lie_within_it() -> None:
    engine = Traced()
    engine.core.add_request(request("A", max_tokens=2))
    engine.run()
    for record in engine.passes:
        names = [phase.phase for phase in record.phases]
        assert names == [
            Phase.SCHEDULE, Phase.EXECUTE_MODEL, Phase.GRAMMAR_BITMASK, Phase.PROCESS_ABORTS, Phase.UPDATE_FROM_OUTPUT
        ]  # fmt: skip
        assert all(0 <= phase.start <= phase.end for phase in record.phases)
        ends = [phase.end for phase in record.phases]
        assert ends == sorted(ends)


def test_the_trace_says_why_each_request_is_or_is_not_in_the_pass() -> None:
    engine = Traced(max_num_seqs=2, max_num_batched_tokens=8)
    for req_id in "ABC":
        engine.core.add_request(request(req_id, prompt=6, max_tokens=3))
    why = []
    while engine.core.scheduler.has_requests():
        engine.step()
        why.append(engine.passes[-1].phases[0].facts["why"])
    assert why[0] == {
        "A": ["scheduled", {"num_new_tokens": 6}],
        "B": ["scheduled", {"num_new_tokens": 2}],
        "C": ["no_budget", {"token_budget": 0}],
    }
    assert why[1]["C"] == ["no_rows", {"max_num_seqs": 2, "running": 2}]


def test_with_nobody_to_trace_nothing_is_recorded() -> None:
    core = EngineCore(fake_config())
    core.add_request(request("A", max_tokens=2))
    core.step()
    assert core.trace is None
    assert core.scheduler.plan.why is None
    assert core.config.trace_config.trace is False, "so that the runner records nothing that nobody takes"


class FailingExecutor(FakeExecutor):
    def do_sample_tokens(self, grammar_output: Any) -> Any:
        self.parked = None
        raise FloatingPointError("the logits are NaN")


def test_a_failed_pass_is_the_end_of_the_engine_and_says_so() -> None:
    client = InprocClient(fake_config(distributed_executor_backend=FailingExecutor))
    client.add_request(request("A"))
    with pytest.raises(EngineDeadError, match="the logits are NaN"):
        client.get_outputs()
    with pytest.raises(EngineDeadError, match="the logits are NaN"):
        client.add_request(request("B"))
    client.shutdown()


def test_an_in_process_engine_waits_no_longer_than_asked() -> None:
    client = InprocClient(fake_config())
    assert client.get_outputs(0.01).outputs == []
    client.call("pause")
    client.add_request(request("A", max_tokens=1))
    assert client.get_outputs(0.01).outputs == []
    client.call("resume")
    assert client.get_outputs(None).outputs[0].finish_reason == "length"

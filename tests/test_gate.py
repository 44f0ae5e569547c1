"""The gate: the engine really stops at three points, on demand or on a condition, and nobody's tokens change by it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.fake_executor import fake_config, request
from helpers.held_engine import Watched
from helpers.recorded import header_of, write_all
from helpers.threads import one_thread
from helpers.tiny_engine import ask, solo, tiny

from engine.core import Abort, EngineCore
from engine.inproc_client import InprocClient
from tracer.fold import fold, new_state
from tracer.phases import Phase
from tracer.schema import decode, encode
from tracer.trace_reader import TraceReader
from tracer.trace_writer import TraceWriter

BEFORE, HAND_OFF, AFTER = "before_schedule", "hand_off", "before_update_from_output"
UP_TO_HAND_OFF = [phase.value for phase in Phase][: [*Phase].index(Phase.SAMPLE_TOKENS)]
UP_TO_UPDATE = [phase.value for phase in Phase][: [*Phase].index(Phase.PROCESS_ABORTS)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


# --- stops --------------------------------------------------------------------------------------------------------


def test_stepping_from_stop_to_stop_goes_by_the_three_points_of_each_pass() -> None:
    engine = Watched(lambda engine: engine.core.gate.step_stop())
    engine.add("A", [1, 2, 3], 3)
    engine.core.gate.step_stop()
    seen = []
    for _ in range(2):
        engine.run(1)
        seen.append(engine.gate["stop"])
        assert engine.core.run_pass() == ({}, False), "held before schedule"
        engine.core.gate.step_stop()
    assert engine.held_at == [(HAND_OFF, 0), (AFTER, 0), (HAND_OFF, 1), (AFTER, 1)]
    assert seen == [BEFORE, BEFORE]


def test_at_the_hand_off_logits_are_parked_and_before_the_update_they_are_sampled() -> None:
    parked = []

    def meanwhile(engine: Watched) -> None:
        parked.append(engine.runner.execute_model_state is not None)
        engine.core.gate.step_stop()

    engine = Watched(meanwhile)
    engine.add("A", [1, 2, 3], 3)
    engine.core.gate.step_stop()
    engine.run(1)
    assert parked == [True, False]
    assert engine.core.scheduler.requests["A"].num_output_tokens == 1


def test_a_pass_that_parks_nothing_has_no_hand_off() -> None:
    engine = Watched()
    engine.add("A", [1, 2, 3], 1)
    engine.run(1)
    engine.core.gate.step_stop()
    engine.run(1)  # tells the runner that A has finished
    assert engine.held_at == [(AFTER, 1)]


def test_what_is_told_of_a_held_pass_is_the_beginning_of_its_record() -> None:
    """A record a pass, and the same whether or not its phases were asked for meanwhile."""
    told: list[dict[str, Any]] = []

    def meanwhile(engine: Watched) -> None:
        told.append(engine.gate["held"])
        engine.core.gate.step_stop()

    engine = Watched(meanwhile)
    for req_id in "AB":
        engine.add(req_id, [1, 2, 3], 3)
    engine.core.gate.step_stop()
    engine.run(1)
    assert [[phase["phase"] for phase in held["phases"]] for held in told] == [UP_TO_HAND_OFF, UP_TO_UPDATE]
    [record] = engine.passes
    plain = msgspec.msgpack.decode(encode(record))
    assert [phase["phase"] for phase in plain["phases"]] == [phase.value for phase in Phase]
    for held in told:
        assert held["phases"] == plain["phases"][: len(held["phases"])]
        assert {name: held[name] for name in ("pass_id", "time", "start_ns")} == {
            name: plain[name] for name in ("pass_id", "time", "start_ns")
        }
    assert "held" not in engine.gate


def test_a_run_that_was_held_inside_its_passes_is_recorded_and_replayed_as_any_other(tmp_path: Path) -> None:
    engine = Watched()
    for req_id, count in (("A", 3), ("B", 9)):
        engine.add(req_id, [1, 2, 3], count)
    for _ in range(12):
        engine.core.gate.step_stop()
        engine.run(1)
    max_num_seqs = engine.core.config.scheduler_config.max_num_seqs
    writer = TraceWriter(tmp_path / "held.trace")
    writer.begin(header_of(max_num_seqs), msgspec.msgpack.encode({"tokens": [], "special": []}))
    state, sent = new_state(max_num_seqs), [encode(entry) for entry in engine.entries]
    for data in sent:
        fold(state, decode(data))
    write_all(writer, sent, max_num_seqs)
    reader = TraceReader(tmp_path / "held.trace")
    assert reader.entries(0, reader.last_seq) == sent
    assert reader.state() == state


def test_step_from_inside_a_pass_ends_that_pass_and_resume_lets_all_go() -> None:
    engine = Watched(lambda engine: engine.core.gate.step_passes(1))
    engine.add("A", [1, 2, 3], 9)
    engine.core.gate.step_stop()
    engine.run(5)
    assert len(engine.passes) == 1
    assert engine.core.gate_state()["stop"] == BEFORE
    engine.meanwhile = lambda engine: engine.core.gate.resume()
    engine.core.gate.step_stop()
    engine.run(2)
    assert len(engine.passes) == 3
    assert engine.gate["stop"] is None


def test_pausing_a_pass_that_is_held_inside_changes_nothing() -> None:
    states = []

    def meanwhile(engine: Watched) -> None:
        engine.core.gate.pause()
        states.append(engine.gate)
        engine.core.gate.resume()

    engine = Watched(meanwhile)
    engine.add("A", [1, 2, 3])
    engine.core.gate.step_stop()
    engine.run(1)
    assert [(state["stop"], state["held"]["pass_id"]) for state in states] == [(HAND_OFF, 0)]


# --- what comes in while a pass is held ----------------------------------------------------------------------------


def test_a_request_that_comes_while_a_pass_is_held_waits_for_the_next_one() -> None:
    def meanwhile(engine: Watched) -> None:
        engine.add("B", [4, 5], 2)
        engine.core.gate.resume()

    engine = Watched(meanwhile)
    state = new_state(engine.core.config.scheduler_config.max_num_seqs)
    engine.add("A", [1, 2, 3], 2)
    engine.core.gate.step_stop()
    engine.run()
    for entry in engine.entries:
        fold(state, entry)
    assert state["requests"]["B"]["arrival_pass"] == 1
    assert list(engine.facts(Phase.SCHEDULE, 0)["why"]) == ["A"]
    assert engine.facts(Phase.SCHEDULE, 1)["why"]["B"][0] == "scheduled"
    assert engine.tokens["B", 0] == solo([4, 5], 2)


def test_aborts_of_all_at_the_hand_off_are_handled_before_outputs_are_applied() -> None:
    """CASES 28: the park is used once, the outputs are dropped, and all blocks are free."""

    def meanwhile(engine: Watched) -> None:
        engine.core.aborts_queue.put(Abort(["A", "B"]))
        engine.core.gate.resume()

    engine = Watched(meanwhile)
    for req_id in "AB":
        engine.add(req_id, [1, 2, 3])
    engine.core.gate.step_stop()
    engine.run()
    assert engine.facts(Phase.PROCESS_ABORTS, 0)["aborted"] == ["A", "B"]
    assert engine.tokens == {}
    assert engine.core.stats() == {"running": 0, "waiting": 0, "num_free_blocks": 64}
    assert not engine.runner.requests


def test_the_prefix_cache_is_not_reset_under_a_pass_that_is_held() -> None:
    refused = []

    def meanwhile(engine: Watched) -> None:
        for running in (False, True):
            with pytest.raises(ValueError, match="held inside a pass"):
                engine.core.reset_prefix_cache(running)
            refused.append(running)
        engine.core.gate.resume()

    engine = Watched(meanwhile)
    engine.add("A", [1, 2, 3])
    engine.core.gate.step_stop()
    engine.run()
    assert refused == [False, True]
    assert engine.tokens["A", 0] == solo([1, 2, 3], 4)
    assert engine.core.reset_prefix_cache()


# --- pace, other clients, no trace ---------------------------------------------------------------------------------


def test_the_rate_is_kept_and_changes_at_once() -> None:
    client = InprocClient(fake_config(), lambda entry: None)
    client.add_request(request("A", max_tokens=50))
    client.call("set_rate", 20.0)

    def seconds_for(passes: int) -> float:
        began = time.monotonic()
        while passes:
            passes -= bool(client.get_outputs(None).outputs)
        return time.monotonic() - began

    seconds_for(1)
    assert 0.19 < seconds_for(4) < 0.4
    client.call("set_rate", 0.02)
    client.get_outputs(0)
    client.call("set_rate", None)
    assert seconds_for(4) < 0.1
    for rate in (0, -1, 0.001, float("nan"), 1e9):
        with pytest.raises(ValueError, match="rate must be from"):
            client.call("set_rate", rate)
    client.shutdown()


def test_an_engine_in_this_process_holds_between_passes_and_refuses_to_be_held_inside_one() -> None:
    client = InprocClient(fake_config(), lambda entry: None)
    with pytest.raises(ValueError, match="engine in a process of its own"):
        client.call("step_stop")
    client.call("set_breakpoints", [{"on": "total_tokens_above", "value": 4}])
    client.add_request(request("A", prompt=5, max_tokens=3))
    assert len(client.get_outputs().outputs) == 1
    assert client.get_outputs().outputs == []
    state = client.call("gate_state")
    assert (state["stop"], state["hit"]["phase"]) == (BEFORE, "schedule")
    client.shutdown()


def test_without_the_trace_all_works_but_what_is_read_from_it() -> None:
    core = EngineCore(tiny(check=False))
    with pytest.raises(ValueError, match="--no-trace"):
        core.gate.set_breakpoints([{"on": "row_moved"}])
    held = []

    def hold() -> None:
        held.append(core.gate.stop)
        core.gate.step_stop()

    core.gate.hold = hold
    core.add_request(ask("A", [1, 2, 3], 2))
    core.gate.set_breakpoints([{"on": "finished"}])
    while core.gate.hit is None:
        core.gate.step_stop()
        core.run_pass()
    assert held == [HAND_OFF, AFTER] * 2
    assert core.gate_state()["hit"]["pass_id"] == 1

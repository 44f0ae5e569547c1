"""Breakpoints: the engine is held at the next stop after a condition came true, and says what met it."""

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.fake_executor import fake_config
from helpers.held_engine import Watched
from helpers.threads import one_thread
from helpers.tiny_engine import solo

from engine.core import Abort
from engine.inproc_client import InprocClient
from tracer.phases import Phase

BEFORE, HAND_OFF = "before_schedule", "hand_off"


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def test_a_row_that_moves_is_met_in_condense_and_held_at_the_hand_off() -> None:
    engine = Watched()
    for req_id, count in (("A", 3), ("B", 9), ("C", 9)):
        engine.add(req_id, [1, 2, 3], count)
    engine.break_on("row_moved")
    hit = engine.run_into()
    assert hit == {
        "on": "row_moved", "pass_id": 3, "phase": "condense", "words": "row 2 moved to row 0 in condense",
        "stop": HAND_OFF,
    }  # fmt: skip
    assert engine.facts(Phase.CONDENSE, 3)["moved"] == [[2, 0, "UNIDIRECTIONAL"]]


def test_rows_that_swap_are_met_in_reorder() -> None:
    engine = Watched(reorder_batch_threshold=1)
    engine.break_on("row_moved")
    engine.add("A", [1, 2, 3], 2)
    engine.add("B", [1, 2, 3], 9)
    engine.run(2)
    engine.add("C", [4, 5], 9)  # into A's row, before B
    hit = engine.run_into()
    assert (hit["phase"], hit["words"]) == ("reorder", "rows 0 and 1 swapped places in reorder")


def test_preemption_and_resumption_are_met_in_schedule_and_ends_in_the_update() -> None:
    """CASES 20, whose passes count from 1: B is preempted in pass 6 and comes back in pass 9; A ends in pass 8."""
    prompts = {"A": [5, 6, 7, 8, 9, 10, 11, 12], "B": [21, 22, 23, 24, 25, 26, 27, 28]}
    for on, request_id, pass_id, phase, stop in (
        ("preempted", None, 5, "schedule", HAND_OFF),
        ("preempted", "B", 5, "schedule", HAND_OFF),
        ("resumed", None, 8, "schedule", HAND_OFF),
        ("finished", None, 7, "update_from_output", BEFORE),
        ("finished", "B", 10, "update_from_output", BEFORE),
    ):
        engine = Watched(num_gpu_blocks_override=7, max_num_seqs=2, max_num_batched_tokens=16, max_model_len=24)
        for req_id, prompt in prompts.items():
            engine.add(req_id, prompt, 8)
        engine.break_on(on, **({"request": request_id} if request_id else {}))
        hit = engine.run_into()
        assert (hit["pass_id"], hit["phase"], hit["stop"]) == (pass_id, phase, stop), on
        assert hit["words"].startswith("A " if (on, request_id) == ("finished", None) else "B ")
        engine.core.gate.set_breakpoints([])
        engine.run()
        assert [engine.tokens[req_id, 0] for req_id in "AB"] == [solo(prompt, 8) for prompt in prompts.values()]


def test_a_request_is_met_when_it_enters_the_batch_and_at_once_where_it_is_in_it() -> None:
    engine = Watched(max_num_seqs=1)
    engine.add("A", [1, 2, 3], 3)
    engine.add("B", [1, 2, 3], 5)
    engine.break_on("request_in_batch", request="B")
    assert {"pass_id": 3, "phase": "add_requests", "words": "B entered the batch"}.items() <= engine.run_into().items()
    engine.run(1)
    assert engine.core.gate.hit is None, "it is in the batch still, which is no news"
    engine.break_on("request_in_batch", request="B")
    assert {"pass_id": 5, "phase": "update_cached", "words": "B is in the batch"}.items() <= engine.run_into().items()


def test_a_pass_of_more_tokens_than_n_is_met_in_schedule() -> None:
    engine = Watched()
    engine.add("A", [1, 2, 3], 20)
    engine.break_on("total_tokens_above", value=4)
    engine.run(3)
    engine.add("B", [1, 2, 3, 4], 20)
    hit = engine.run_into()
    assert (hit["pass_id"], hit["phase"], hit["words"]) == (3, "schedule", "5 tokens were scheduled")


def test_an_abort_is_met_where_the_pass_takes_it() -> None:
    engine = Watched()
    engine.break_on("finished")
    engine.add("A", [1, 2, 3], 20)
    engine.run(1)
    engine.core.aborts_queue.put(Abort(["A"]))
    assert engine.run_into()["phase"] == "process_aborts"
    engine.add("B", [1, 2, 3], 20)
    engine.run(2)
    engine.core.abort_requests(["B"])
    hit = engine.run_into()
    assert (hit["phase"], hit["words"]) == ("remove_finished", 'B finished with reason "abort"')


def test_a_breakpoint_ends_a_run_of_counted_passes_and_going_on_forgets_it() -> None:
    engine = Watched()
    engine.add("A", [1, 2, 3], 3)
    engine.break_on("finished")
    engine.core.gate.step_passes(50)
    engine.run()
    assert len(engine.passes) == 3
    assert (engine.gate["permits"], engine.gate["hit"]["words"]) == (0, 'A finished with reason "length"')
    engine.core.gate.step_passes(1)
    assert engine.gate["hit"] is None


@pytest.mark.parametrize(
    ("breakpoint", "words"),
    [
        ({"on": "tuesday"}, "on is one of row_moved, preempted"),
        ({}, "missing required field on"),
        ({"on": "request_in_batch"}, "needs a request"),
        ({"on": "finished", "request": ""}, "leave request out"),
        ({"on": "row_moved", "request": "A"}, "leave request out"),
        ({"on": "total_tokens_above"}, "needs a value"),
        ({"on": "total_tokens_above", "value": -1}, "needs a value of 0 or more"),
        ({"on": "resumed", "value": 3}, "leave value out"),
        ({"on": "resumed", "colour": "red"}, "unknown field colour"),
    ],
)
def test_a_breakpoint_that_makes_no_sense_is_refused_with_the_reason(breakpoint: Any, words: str) -> None:
    core = InprocClient(fake_config(), lambda entry: None)
    with pytest.raises(ValueError, match=words):
        core.call("set_breakpoints", [breakpoint])
    with pytest.raises(ValueError, match="32 at most"):
        core.call("set_breakpoints", [{"on": "finished", "request": str(i)} for i in range(33)])
    assert core.call("gate_state")["breakpoints"] == []

"""A pass is a diff of assignments, and folding the diffs gives the batch."""

import numpy as np
import pytest

from tracer.compare import first_difference
from tracer.fold import KEPT_FINISHED, apply_change, fold, new_state
from tracer.marked_pass import describe
from tracer.phases import Phase
from tracer.recorder import Recorder
from tracer.schema import EventRecord, PassRecord, PhaseRecord, decode, encode


def a_pass(seq, pass_id, *phases):
    return PassRecord(seq, "pass", pass_id, 0.0, 0, list(phases))


def test_each_change_is_an_assignment():
    rows = [None] * 3
    apply_change(rows, ["set", "req_id", [0, 2], ["a", "c"]])
    apply_change(rows, ["set", "token_ids", [2], [[7, 8]]])
    apply_change(rows, ["put", "token_ids", [2], [2], [[9, 10]]])
    assert rows == [{"req_id": "a"}, None, {"req_id": "c", "token_ids": [7, 8, 9, 10]}]
    apply_change(rows, ["move", 2, 1])
    apply_change(rows, ["swap", 0, 1])
    apply_change(rows, ["clear", 1])
    assert rows == [{"req_id": "c", "token_ids": [7, 8, 9, 10]}, None, None]


def test_an_unknown_change_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="newer version"):
        apply_change([None], ["rotate", 0])


def test_fold_follows_a_request_from_arrival_to_its_end():
    state = new_state(2)
    added = {"status": "WAITING", "prompt_token_ids": [1, 2]}
    fold(state, EventRecord(0, "request", 0.0, {"event": "added"}, [("a", added)]))
    ended = PhaseRecord(
        "update_from_output", 0, 1, {}, [], [("a", {"status": "FINISHED", "finish_reason": "length"})], [("a", 0, [5])]
    )
    fold(state, a_pass(1, 0, ended))
    assert state["requests"]["a"] == added | {"output_token_ids": [5], "status": "FINISHED", "finish_reason": "length"}
    assert (state["seq"], state["pass_id"], state["finished"]) == (1, 0, ["a"])


def test_an_id_that_ends_and_comes_again_is_another_request():
    state = new_state(1)
    fold(state, EventRecord(0, "request", 0.0, {}, [("a", {"prompt_token_ids": [1]})]))
    fold(state, EventRecord(1, "request", 0.0, {}, [("a", {"finish_reason": "abort"})]))
    fold(state, EventRecord(2, "request", 0.0, {}, [("a", {"prompt_token_ids": [2]})]))
    assert state["requests"]["a"] == {"output_token_ids": [], "prompt_token_ids": [2]}
    assert state["finished"] == []


def test_what_is_kept_of_finished_requests_is_bounded():
    state = new_state(1)
    for i in range(KEPT_FINISHED + 50):
        fold(state, EventRecord(i, "request", 0.0, {}, [(f"r{i}", {"prompt_token_ids": [1], "finish_reason": "stop"})]))
    assert len(state["requests"]) == len(state["finished"]) == KEPT_FINISHED


def test_a_recorder_gives_each_phase_its_own_times_and_changes():
    recorder = Recorder()
    recorder.begin()
    recorder.clear(3)
    recorder.mark(Phase.REMOVE_FINISHED, {"x"})
    recorder.move(4, 3)
    recorder.mark(Phase.CONDENSE)
    recorder.tell([(4, 3)], blocks=[(1, 2, 0)])
    marks = recorder.take()
    first, second = describe(marks)
    assert (first.changes, second.changes) == ([["clear", 3]], [["move", 4, 3]])
    assert (first.facts, second.facts) == ({"finished_req_ids": ["x"]}, {"moved": [[4, 3, "UNIDIRECTIONAL"]]})
    assert second.blocks == [(1, 2, 0)]
    assert first.start <= first.end <= second.start <= second.end
    assert describe(marks) == [first, second]
    assert recorder.take() == []


def test_a_recorder_spells_appended_tokens_out_once_they_are_described():
    recorder = Recorder()
    recorder.swap(0, 1)
    recorder.append_tokens(np.array([0, 2]), np.array([7, 9]), np.array([40, 41]))
    recorder.clear(3)
    recorder.mark(Phase.BOOKKEEPING)
    (record,) = describe(recorder.take())
    assert record.changes == [
        ["swap", 0, 1],
        ["put", "token_ids", [0, 2], [7, 9], [[40], [41]]],
        ["set", "num_tokens_no_spec", [0, 2], [8, 10]],
        ["clear", 3],
    ]


def test_entries_survive_encoding():
    entry = a_pass(3, 1, PhaseRecord("condense", 1, 2, {"moved": [[4, 2, "UNIDIRECTIONAL"]]}, [["move", 4, 2]]))
    assert decode(encode(entry)) == entry
    event = EventRecord(4, "gate", 1.5, {"paused": True, "permits": 0})
    assert decode(encode(event)) == event


def test_the_comparator_names_the_first_difference():
    assert first_difference({"a": [1, (2, 3)]}, {"a": [1, [2, 3]]}) is None
    assert first_difference({"a": [1, 2]}, {"a": [1, 3]}) == ".a[1]: expected 2, got 3"
    assert first_difference({"a": [1, 2]}, {"a": [1]}) == ".a: expected 2 items, got 1"
    assert first_difference({"a": 1}, {}) == ".a: expected 1, got nothing"
    assert first_difference({}, {"b": 1}) == ".b: expected nothing, got 1"
    assert first_difference([True], [1]) == "[0]: expected True, got 1"

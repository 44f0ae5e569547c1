"""A recorded trace answers for any pass and any phase of it, whatever came later."""

import pytest

from batchscope.tables import Table
from batchscope.trace import Trace
from tracer.schema import Change, EventRecord, PassRecord, PhaseRecord, encode


def phase(name: str, *changes: Change, **facts: object) -> PhaseRecord:
    return PhaseRecord(name, 0, 1, dict(facts), list(changes))


def row(req_id: str, tokens: list[int], blocks: list[int], computed: int = 0) -> list[Change]:
    values = {"req_id": req_id, "num_prompt_tokens": len(tokens), "num_computed_tokens": computed,
              "num_tokens_no_spec": len(tokens), "token_ids": tokens, "block_table": blocks}  # fmt: skip
    return [["set", field, [0 if req_id == "a" else 1], [value]] for field, value in values.items()]


@pytest.fixture
def trace() -> Trace:
    """Pass 0 adds a and b and samples a token for a; pass 1 gives a block to b; pass 2 takes a out and moves b down."""
    trace = Trace([None, None])
    inputs = {"req_indices": [0, 0, 1], "query_pos": [0, 1, 0], "positions": [0, 1, 0], "token_indices": [0, 1, 8],
              "input_ids": [7, 8, 9], "slot_mapping": [4, 5, 8], "logits_indices": [1, 2]}  # fmt: skip
    passes = [
        [
            phase("schedule", num_scheduled_tokens={"a": 2, "b": 1}),
            phase("add_requests", *row("a", [7, 8], [1]), *row("b", [9], [2])),
            phase("refresh_metadata"),
            phase("prepare_inputs", **inputs),
            phase("bookkeeping", ["put", "token_ids", [0], [2], [[5]]], ["set", "num_tokens_no_spec", [0], [3]]),
        ],
        [
            phase("schedule", num_scheduled_tokens={"a": 1, "b": 1}),
            phase(
                "update_cached", ["put", "block_table", [1], [1], [[3]]], ["set", "num_computed_tokens", [0, 1], [2, 1]]
            ),
            phase("refresh_metadata"),
        ],
        [
            phase("schedule", num_scheduled_tokens={"b": 1}),
            phase("remove_finished", ["clear", 0]),
            phase("condense", ["move", 1, 0]),
            phase("refresh_metadata"),
        ],
    ]
    trace.append(encode(EventRecord(0, "gate", 0.0, {"paused": False})))
    for pass_id, phases in enumerate(passes):
        trace.append(encode(PassRecord(pass_id + 1, "pass", pass_id, 0.0, 0, phases)))
    return trace


def test_the_batch_after_a_phase_does_not_know_what_came_later(trace: Trace) -> None:
    assert trace.batch(2)[0]["req_id"] == "b"
    assert [(r["req_id"], r["token_ids"]) for r in trace.batch(0, "refresh_metadata")] == [("a", [7, 8]), ("b", [9])]
    assert trace.batch(0)[0]["token_ids"] == [7, 8, 5]
    assert trace.batch(1, "schedule")[1]["block_table"] == [2]
    assert trace.batch(1)[1]["block_table"] == [2, 3]


def test_writes_name_the_request_that_held_the_row(trace: Trace) -> None:
    assert [write[1:] for write in trace.writes(1)] == [
        (1, "b", "block_table", [3]), (0, "a", "num_computed_tokens", 2), (1, "b", "num_computed_tokens", 1),
    ]  # fmt: skip
    assert [write[:4] for write in trace.writes(2)] == [
        ("remove_finished", 0, "a", "(cleared)"),
        ("condense", 1, "b", "(moved to 0)"),
    ]


def test_a_recording_that_starts_late_starts_from_the_rows_it_is_given(trace: Trace) -> None:
    late = Trace([*trace.batch(0)])
    for entry in trace.entries[2:]:
        late.append(encode(entry))
    assert late.batch(2) == trace.batch(2)


def test_a_table_shows_rows_as_the_diff_left_them(trace: Trace) -> None:
    assert trace.table(1).rows == [["0", "a", "2", "2", "1", "3", "1"], ["1", "b", "1", "1", "1", "1", "2 3"]]
    assert trace.token_axis(0).rows[-1] == ["logits", "", "*", "*"]
    assert "<td" in trace.table(0)._repr_html_()
    assert "| row | request |" in str(trace.table(0))


def test_a_table_escapes_what_a_request_calls_itself() -> None:
    assert "<script>" not in Table(["request"], [["<script>"]])._repr_html_()


def test_what_was_not_recorded_is_said(trace: Trace) -> None:
    with pytest.raises(KeyError, match="pass 7 was not recorded"):
        trace.batch(7)
    with pytest.raises(KeyError, match="pass 1 has no phase 'condense'"):
        trace.facts(1, "condense")

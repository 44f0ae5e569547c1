"""Constrained requests in the real engine on the tiny model, in check mode: CASES 38 and 41."""

import re
import time

import numpy as np
import pytest
from helpers.held_backend import hold
from helpers.invariants import check_scheduler
from helpers.tiny_engine import Engine

from engine.request import RequestStatus
from tracer.explain import sentence

END = 256
DIGITS, LETTERS = {"regex": "[0-9]{40}"}, {"regex": "[a-z]{40}"}
RANDOM = {"temperature": 1.0, "seed": 5}


class Constrained(Engine):
    """Collects errors and reasons as well; `settle` waits until every grammar is compiled."""

    def __init__(self, **flags):
        super().__init__(**{"dtype": "float32", "max_num_seqs": 4, "max_num_batched_tokens": 64, **flags})
        self.ended = {}  # id -> (finish reason, error)
        self.manager = self.core.scheduler.structured_output_manager

    def add(self, req_id, tokens, count=40, grammar=None, **fields):
        super().add(req_id, tokens, count, structured_outputs=grammar, **{**RANDOM, **fields})

    def run(self, passes=200):
        for _ in range(passes):
            outputs, _ = self.core.step()
            check_scheduler(self.core.scheduler)
            for output in (output for client in outputs.values() for output in client.outputs):
                self.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
                if output.finish_reason:
                    self.ended[output.request_id] = (output.finish_reason, output.error)

    def settle(self):
        within(lambda: not any(each.structured_output_request.seconds_left for each in self.manager.blocked))

    def text(self, req_id):
        return bytes(self.tokens[req_id]).decode()

    def status(self, req_id):
        return self.core.scheduler.requests[req_id].status

    def why(self, req_id, pass_id=-1):
        return self.facts("schedule", pass_id)["why"][req_id]


def within(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def alone(tokens, count=40, **params):
    """The tokens of the same request without neighbours or a grammar, in float32."""
    engine = Constrained(max_num_seqs=1, enable_prefix_caching=False)
    engine.add("solo", tokens, count, **params)
    engine.run(count + 1)
    return engine.tokens["solo"]


def test_masks_are_on_their_rows_after_moves_and_reorders_while_ids_come_in_another_order():
    """CASES 38, whole: two grammars among four rows that move and swap; the others' tokens are as if alone."""
    engine = Constrained(reorder_batch_threshold=1)
    engine.add("gone", [1, 2], 3)
    engine.add("A", [3, 4, 5], 30)
    engine.add("C", [6, 7, 8], 30, DIGITS)
    engine.add("D", [9, 10, 11], 30, LETTERS)
    engine.settle()
    engine.run(4)
    engine.add("B", list(range(60, 90)), 20)
    engine.run(60)
    assert engine.tokens["A"] == alone([3, 4, 5], 30)
    assert engine.tokens["B"] == alone(list(range(60, 90)), 20)
    assert engine.text("C").isdigit()
    assert re.fullmatch("[a-z]{30}", engine.text("D"))
    mixed = [i for i in range(len(engine.passes)) if len(ids(engine, i)) == 2]
    rows = {tuple(engine.facts("sample_tokens", i)["masked_rows"]) for i in mixed}
    assert len(rows) > 1, "the masks followed rows that moved"
    assert any(ids(engine, i) != in_row_order(engine, i) for i in mixed), "the scheduler's order is its own"


def ids(engine, pass_id):
    return engine.facts("grammar_bitmask", pass_id)["structured_output_request_ids"]


def in_row_order(engine, pass_id):
    return [req_id for req_id in engine.facts("park_logits", pass_id)["req_ids"] if req_id in ids(engine, pass_id)]


def test_one_constrained_decode_among_a_decode_and_a_prefill():
    """CASES 38: A (decode), B (prefill of 4), C (decode), only C constrained."""
    engine = Constrained(reorder_batch_threshold=1)
    engine.add("C", [6, 7, 8], 8, DIGITS)
    engine.add("A", [3, 4, 5], 8)
    engine.settle()
    engine.run(2)
    engine.add("B", [60, 61, 62, 63], 8)
    engine.run(30)
    assert engine.text("C").isdigit()
    assert engine.tokens["A"] == alone([3, 4, 5], 8)
    assert engine.tokens["B"] == alone([60, 61, 62, 63], 8)


def test_bad_grammars_are_errors_of_their_own_requests_and_good_ones_go_on():
    """CASES 41: a valid schema, then an invalid one and an empty one."""
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 22]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    engine = Constrained()
    engine.add("valid", [1, 2], grammar={"json": schema})
    engine.add("invalid", [1, 2], grammar={"json": {"type": "objekt"}})
    engine.add("free", [3, 4, 5], 12)
    engine.add("any", [1, 2], grammar={"json": {}})
    with pytest.raises(ValueError, match="not empty"):
        engine.add("empty", [1, 2], grammar={"regex": ""})
    engine.settle()
    engine.run(60)
    assert engine.text("valid").replace(" ", "") in ('{"a":1}', '{"a":22}')
    assert engine.ended["valid"] == ("stop", None)
    assert engine.ended["invalid"] == (
        "error", "structured_outputs.json cannot be compiled: Invalid type: objekt"
    )  # fmt: skip
    assert engine.tokens["invalid"] == []
    assert engine.ended["any"][0] in ("stop", "length")
    assert engine.tokens["free"] == alone([3, 4, 5], 12)
    changes = [change for entry in engine.passes for phase in entry.phases for change in phase.requests]
    (ended,) = (change for req_id, change in changes if req_id == "invalid" and "finish_reason" in change)
    assert (ended["status"], ended["error"]) == ("FINISHED_ERROR", engine.ended["invalid"][1])
    assert not engine.core.scheduler.has_requests()


def test_a_refused_token_ends_its_request_alone_and_is_not_given_out(monkeypatch):
    """CASES 41. The mask is kept off the logits, so that a token comes that the grammar refuses."""
    engine = Constrained()
    engine.add("C", [6, 7, 8], 20, DIGITS)
    engine.add("A", [3, 4, 5], 20)
    engine.settle()
    engine.run(3)
    given = list(engine.tokens["C"])
    everything = np.full(10, -1, dtype=np.int32)
    grammar = engine.core.scheduler.requests["C"].structured_output_request.grammar
    monkeypatch.setattr(type(grammar), "fill_bitmask", lambda self, row: np.copyto(row, everything))
    engine.run(40)
    reason, error = engine.ended["C"]
    assert reason == "error"
    assert error.startswith("the grammar refused the sampled tokens [")
    assert bytes(engine.tokens["C"][: len(given)]).isdigit()
    assert engine.text("C").isdigit(), "what was refused is not part of the output"
    assert engine.tokens["A"] == alone([3, 4, 5], 20)


def test_the_end_comes_only_where_the_output_can_be_complete():
    """CASES 41: end-of-sequence at the end state. A bias makes it by far the likeliest token everywhere."""
    engine = Constrained()
    eager = {"logit_bias": {END: 100.0}, "ignore_eos": False}
    engine.add("C", [6, 7, 8], 20, {"regex": "[0-9]{3,9}"}, **eager)
    engine.add("exact", [6, 7, 8], 20, {"regex": "[0-9]{5}"}, **eager)
    engine.core.scheduler.requests["C"].sampling_params.eos_token_id = END
    engine.core.scheduler.requests["exact"].sampling_params.eos_token_id = END
    engine.settle()
    engine.run(20)
    assert engine.tokens["C"][3:] == [END]
    assert bytes(engine.tokens["C"][:3]).isdigit()
    assert len(engine.tokens["exact"]) == 5, "nothing can follow: it stops without an end token"
    assert engine.ended == {"C": ("stop", None), "exact": ("stop", None)}


def test_min_tokens_or_a_bias_that_leave_no_token_end_the_request_with_an_error():
    engine = Constrained()
    engine.add("stuck", [6, 7, 8], 20, {"regex": "[0-9]+"}, allowed_token_ids=[ord("x")])
    engine.add("A", [3, 4, 5], 6)
    engine.settle()
    engine.run(20)
    assert engine.ended["stuck"][0] == "error"
    assert engine.tokens["A"] == alone([3, 4, 5], 6)


def test_a_request_waits_for_its_grammar_in_a_state_of_its_own_and_others_pass_it(monkeypatch):
    release = hold(monkeypatch, DIGITS["regex"])
    engine = Constrained()
    engine.add("slow", [6, 7, 8], 5, DIGITS)
    engine.add("A", [3, 4, 5], 5)
    engine.add("quick", [6, 7, 8], 5, LETTERS)
    within(lambda: len([r for r in engine.manager.blocked if not r.structured_output_request.seconds_left]) == 1)
    engine.run(8)
    assert engine.ended == {"A": ("length", None), "quick": ("length", None)}
    assert engine.status("slow") is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    code, numbers = engine.why("slow", 0)
    assert code == "waiting_for_grammar"
    assert "grammar" in sentence(code, numbers)
    assert not engine.core.ready, "nothing to do: no passes are run for the sake of waiting"
    assert engine.core.patience > 5
    release.set()
    engine.settle()
    assert engine.core.ready
    engine.run(8)
    assert engine.text("slow").isdigit()
    statuses = [
        c["status"] for p in engine.passes for x in p.phases for r, c in x.requests if r == "slow" and "status" in c
    ]
    assert statuses == ["WAITING", "RUNNING", "FINISHED_LENGTH_CAPPED"]


def test_an_abort_while_compiling_ends_the_request_and_nothing_else(monkeypatch):
    """CASES 41. The id is free at once, also for a request with the same grammar."""
    release = hold(monkeypatch, DIGITS["regex"])
    engine = Constrained()
    engine.add("C", [6, 7, 8], 5, DIGITS)
    engine.add("A", [3, 4, 5], 5)
    engine.run(2)
    engine.core.abort_requests(["C"])
    assert "C" not in engine.core.scheduler.requests
    assert not engine.manager.requests
    engine.add("C", [6, 7, 8], 5, DIGITS)
    engine.run(8)
    assert engine.tokens["A"] == alone([3, 4, 5], 5)
    release.set()
    engine.settle()
    engine.run(8)
    assert engine.text("C").isdigit()
    assert engine.ended["C"] == ("length", None)


def test_a_grammar_that_takes_too_long_is_an_error_of_its_request(monkeypatch):
    release = hold(monkeypatch, DIGITS["regex"])
    engine = Constrained()
    engine.manager.compile_limit_s, engine.manager.load_limit_s = 0.05, 0.0
    engine.add("C", [6, 7, 8], 5, DIGITS)
    engine.add("A", [3, 4, 5], 60)
    engine.settle()
    engine.run(70)
    assert engine.ended["C"] == ("error", "structured_outputs.regex took more than 0.05 s to compile")
    assert engine.ended["A"] == ("length", None)
    assert not engine.core.scheduler.has_requests()
    release.set()


def test_the_error_comes_also_while_all_rows_are_taken():
    engine = Constrained(max_num_seqs=1)
    engine.add("A", [3, 4, 5], 30)
    engine.run(1)
    engine.add("bad", [1, 2], grammar={"regex": "("})
    engine.settle()
    engine.run(1)
    assert engine.ended["bad"][0] == "error"
    code, numbers = engine.why("bad")
    assert code == "grammar_failed"
    assert "structured_outputs.regex" in sentence(code, numbers)
    assert engine.status("A") is RequestStatus.RUNNING


def test_a_preempted_request_goes_on_in_its_grammar_and_gives_the_same_tokens():
    grammar = {"regex": "([0-9][a-z]){30}"}
    roomy = Constrained()
    roomy.add("C", [6, 7, 8], 24, grammar)
    roomy.settle()
    roomy.run(30)
    tight = Constrained(num_gpu_blocks_override=15, max_num_batched_tokens=8)
    tight.add("first", [1, 2, 3], 24, priority=0)
    tight.add("C", [6, 7, 8], 24, grammar)
    tight.add("last", [9, 9, 9], 24, grammar)
    tight.settle()
    tight.run(120)
    assert tight.tokens["C"] == roomy.tokens["C"]
    preempted = {req_id for i in range(len(tight.passes)) for req_id in tight.facts("schedule", i)["preempted_req_ids"]}
    assert preempted & {"C", "last"}, "the pool was too small on purpose"
    assert all(re.fullmatch("([0-9][a-z]){12}", tight.text(req_id)) for req_id in ("C", "last"))
    assert tight.tokens["first"] == alone([1, 2, 3], 24)


def test_rows_still_in_prefill_have_no_mask_and_do_not_move_the_grammar():
    engine = Constrained(max_num_batched_tokens=8)
    engine.add("C", list(range(30, 60)), 5, DIGITS)
    engine.settle()
    engine.run(3)
    assert [ids(engine, i) for i in range(3)] == [[], [], []]
    engine.run(10)
    assert ids(engine, 3) == ["C"]
    assert engine.text("C").isdigit()


def test_the_trace_counts_the_allowed_tokens_and_shows_the_likeliest_before_and_after():
    engine = Constrained()
    engine.add("A", [3, 4, 5], 2)
    engine.add("C", [6, 7, 8], 2, DIGITS)
    engine.settle()
    engine.run(1)
    assert engine.facts("grammar_bitmask")["num_allowed_tokens"] == {"C": 10}
    samples = engine.facts("sample_tokens")
    row = engine.facts("park_logits")["req_ids"].index("C")
    assert (samples["masked_rows"], samples["num_allowed_tokens"]) == ([row], [10])
    (before,), (after,) = samples["candidates_before"], samples["candidates_after"]
    assert len(before) == len(after) == 5
    for candidates in (before, after):
        assert [logit for _, logit in candidates] == sorted((logit for _, logit in candidates), reverse=True)
    assert {token_id for token_id, _ in after} <= set(b"0123456789")
    assert before[0][1] > after[0][1], "the likeliest of all is no digit"


def test_requests_that_ask_for_the_same_share_what_is_compiled():
    engine = Constrained()
    for i in range(3):
        engine.add(f"r{i}", [6, 7, 8], 6, DIGITS, seed=i)
    assert len(engine.manager._compiled) == 1
    engine.settle()
    engine.run(10)
    texts = {engine.text(f"r{i}") for i in range(3)}
    assert len(texts) == 3
    assert all(text.isdigit() for text in texts)

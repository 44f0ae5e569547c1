"""Why a request is or isn't in the batch, at any pass, from what was recorded then. The engine is the real one."""

import pytest

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.messages import EngineCoreRequest
from engine.model_source import resolve
from engine.sampling_params import SamplingParams
from tracer.explain import SENTENCES, explain
from tracer.log import Log
from tracer.schema import decode


class Engine:
    """A core on the tiny model, in check mode, with its log."""

    def __init__(self, **flags):
        config = EngineConfig.make(model="tiny", dtype="float32", block_size=4, check=True, **flags)
        config.model_config = resolve(config.model_config)
        self.log = Log(config.scheduler_config.max_num_seqs)
        self.core = EngineCore(config, self.log.append)

    def add(self, req_id, prompt, max_tokens=4, seed=0):
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        tokens = [(seed * 31 + i) % 256 for i in range(prompt)]
        self.core.add_request(EngineCoreRequest(req_id, tokens, params, arrival_time=0.0))

    def run(self, passes=1):
        for _ in range(passes):
            self.core.run_pass()

    def why(self, req_id, pass_id=None):
        answer = explain(self.log, req_id, pass_id)
        return answer["code"], answer["numbers"]


def test_waiting_for_budget_for_rows_and_for_ones_turn():
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=8)
    for name in "ABC":
        engine.add(name, 6)
    engine.run()
    assert engine.why("A", 0) == ("scheduled", {"num_new_tokens": 6})
    assert engine.why("B", 0) == ("scheduled", {"num_new_tokens": 2})
    assert engine.why("C", 0) == ("no_budget", {"token_budget": 0})
    engine.run()
    assert engine.why("C", 1) == ("no_rows", {"max_num_seqs": 2, "running": 2})


def test_waiting_for_blocks_says_how_many_were_needed_and_how_many_were_free():
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=32, num_gpu_blocks_override=6)
    engine.add("A", 12, seed=1)
    engine.add("B", 9, seed=2)
    engine.add("C", 4, seed=3)
    engine.run()
    assert engine.why("B") == ("no_blocks", {"needed": 3, "free": 2})
    assert engine.why("C") == ("behind", {"request": "B"})


def test_preempted_in_favour_of_whom_then_finished_when_and_why():
    """CASES 20: B is preempted in pass 6 (counting from 1), comes back in pass 9 and ends in pass 11."""
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=16, num_gpu_blocks_override=7, max_model_len=24)
    engine.add("A", 8, max_tokens=8, seed=1)
    engine.add("B", 8, max_tokens=8, seed=2)
    engine.run(14)
    code, numbers = engine.why("B", 5)
    assert code == "preempted"
    assert numbers == {"for": "A", "needed": 1, "free": 0, "num_computed_tokens": 12}
    assert engine.why("B", 6)[0] == "no_blocks"
    assert engine.why("B", 8)[0] == "scheduled"
    assert engine.why("A", 8) == ("finished", {"pass": 7, "reason": "length"})
    assert engine.why("B", 11) == ("finished", {"pass": 10, "reason": "length"})


def test_aborted_not_arrived_held_and_unknown():
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=16)
    engine.add("A", 4, max_tokens=9)
    engine.run(2)
    engine.add("B", 4)
    engine.core.gate.pause()
    assert engine.why("B", 1) == ("not_arrived", {"arrival_pass": 2})
    assert engine.why("B") == ("held", {"pass": 2})
    assert engine.why("B", 3) == ("held", {"pass": 3})
    engine.core.abort_requests(["A"])
    assert engine.why("A", 2) == ("aborted", {"pass": 1})
    assert engine.why("A", 1)[0] == "scheduled"
    assert engine.why("Z") == ("unknown", {})
    engine.core.gate.resume()
    assert engine.why("B", 9) == ("not_run", {"pass": 9, "last": 1})


def test_an_id_used_twice_is_answered_for_the_request_that_had_it_then():
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=16)
    engine.add("A", 4, max_tokens=1)
    engine.run(3)
    last = engine.log.state()["pass_id"]
    engine.add("A", 4, max_tokens=2)
    engine.run(3)
    assert engine.why("A", 0)[0] == "scheduled"
    assert engine.why("A", last) == ("finished", {"pass": 0, "reason": "length"})
    assert engine.why("A", last + 1)[0] == "scheduled"


def test_every_code_that_is_recorded_has_a_sentence_that_its_numbers_fill():
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=8, num_gpu_blocks_override=7, max_model_len=24)
    for i, name in enumerate("ABCDEF"):
        engine.add(name, 5 + i, max_tokens=8, seed=i)
    engine.run(60)
    seen = set()
    for pass_id in range(engine.log.state()["pass_id"] + 1):
        for name in "ABCDEF":
            answer = explain(engine.log, name, pass_id)
            assert "{" not in answer["text"]
            seen.add(answer["code"])
    assert {"scheduled", "no_rows", "preempted", "after_preemption", "finished"} <= seen <= set(SENTENCES)


def test_a_pass_below_zero_is_refused():
    with pytest.raises(ValueError, match="count from 0"):
        explain(Log(1), "A", -1)


def blocks_of(engine):
    """[reference count, cached] of every block that isn't plain free, and who holds what."""
    state = engine.log.state()
    blocks = {block_id: block for block_id, block in state["blocks"].items() if any(block)}
    return blocks, {req_id: request.get("block_ids") for req_id, request in state["requests"].items()}


def test_the_trace_shows_owners_references_hits_and_evictions_of_blocks():
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=32, num_gpu_blocks_override=5)
    engine.add("A", 9, max_tokens=1, seed=1)
    engine.add("B", 9, max_tokens=1, seed=1)
    engine.run()
    passes = [decode(data) for data in engine.log.entries(0, engine.log.last_seq) if b"pass_id" in data]
    facts = passes[0].phases[0].facts
    assert facts["hits"] == {"B": [1, 2]}
    shared = {tuple(item) for item in passes[0].phases[0].blocks}
    assert {(1, 2, 1), (2, 2, 1), (3, 1, 0), (4, 1, 0)} == shared
    blocks, owners = blocks_of(engine)
    assert blocks == {"1": [0, 1], "2": [0, 1]}  # free again, and still to be found
    assert owners == {"A": [], "B": []}
    engine.add("C", 16, max_tokens=1, seed=9)
    engine.run()
    last = decode(engine.log.pass_bytes(engine.log.state()["pass_id"]))
    assert sorted(last.phases[0].facts["evicted"]) == [1, 2]

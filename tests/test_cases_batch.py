"""CASES.md at the level of the runner and of the real engine: rows, slots and the two-phase step, on the tiny model."""

from typing import Any

import numpy as np
import pytest
from helpers.passes import Driver, Pass, new
from helpers.tiny_engine import Engine, ask, solo, tiny

from engine.core import Abort
from engine.core_client import EngineDeadError
from engine.executor.uniproc import UniProcExecutor
from engine.inproc_client import InprocClient
from runner.prepare_inputs import flat_token_indices

PROMPTS = {req_id: np.random.default_rng(i).integers(0, 256, 26).tolist() for i, req_id in enumerate("ABCDEFX")}


def test_rows_fill_move_and_swap_and_each_row_s_parameters_follow_its_id() -> None:
    """CASES 1, with the parameters that the engine has; in the whole engine, until all have ended."""
    params = {
        req_id: {"temperature": 0.6 + i / 5, "seed": 40 + i, "top_k": 20 + i, "top_p": 0.9 + i / 100, "min_p": i / 100}
        for i, req_id in enumerate("ABCDEF")
    }
    engine = Engine(max_num_seqs=5, max_num_batched_tokens=64, block_size=16, reorder_batch_threshold=1)
    lengths = {"A": 2, "B": 6, "C": 2, "D": 6, "E": 6, "F": 6}
    for req_id in "ABCDE":
        engine.add(req_id, PROMPTS[req_id][:3], lengths[req_id], **params[req_id])
    engine.run(2)
    batch = engine.runner.input_batch
    assert batch.req_ids == list("ABCDE")
    before = {req_id: batch.row_state(row) for req_id, row in batch.req_id_to_index.items()}
    seeds = {req_id: batch.seeds.np[row] for req_id, row in batch.req_id_to_index.items()}
    engine.add("F", PROMPTS["F"][:3], lengths["F"], **params["F"])
    engine.run(1)
    assert engine.facts("add_requests") == {"req_ids": ["F"], "rows": [0]}
    assert engine.facts("condense")["moved"] == [[4, 2, "UNIDIRECTIONAL"]]
    assert [sorted(move[:2]) for move in engine.facts("reorder")["moved"]] == [[0, 3]]
    assert batch.req_ids == ["D", "B", "E", "F"]
    for req_id in "BDE":
        row = batch.req_id_to_index[req_id]
        after = batch.row_state(row)
        assert {**after, "token_ids": None} == {
            **before[req_id], "token_ids": None, "num_computed_tokens": 4, "num_tokens_no_spec": 6
        }  # fmt: skip
        assert batch.seeds.np[row] == seeds[req_id] == params[req_id]["seed"]
    engine.run()
    for req_id, count in lengths.items():
        assert engine.tokens[req_id, 0] == solo(PROMPTS[req_id][:3], count, **params[req_id]), req_id


def test_columns_past_a_short_row_in_a_long_rows_place_are_unreachable() -> None:
    """CASES 2: 8 blocks leave, 3 move into the row, and all that was freed is NaN."""
    driver = Driver(dtype="float64")
    a_pass = Pass().new(new("long", PROMPTS["A"] + PROMPTS["B"][:6], list(range(1, 9))), 32)
    first = driver.run(a_pass.new(new("short", PROMPTS["C"][:10], [20, 21, 22]), 10))["short"]
    for layer in (module for module in driver.worker.model.modules() if hasattr(module, "key_cache")):
        layer.key_cache[:20] = layer.value_cache[:20] = float("nan")
        layer.key_cache[23:] = layer.value_cache[23:] = float("nan")
    second = driver.run(Pass().finish("long").cached("short", 10))["short"]
    assert driver.phases["condense"].facts["moved"] == [[1, 0, "UNIDIRECTIONAL"]]
    table = driver.batch.block_table
    assert table.row(0) == [20, 21, 22]
    assert table.block_table.np[0, 3:8].tolist() == [4, 5, 6, 7, 8], "stale, and past the count"
    assert driver.inputs["slot_mapping"] == [4 * 22 + 2]
    assert first + second == solo(PROMPTS["C"][:10], 2)


def test_a_running_request_that_a_pass_leaves_out_returns_without_a_new_prefill() -> None:
    """CASES 3, runner level."""
    driver = Driver(dtype="float64")
    a_pass = Pass()
    for i, req_id in enumerate("ABC"):
        a_pass.new(new(req_id, PROMPTS[req_id][:5], [1 + 4 * i, 2 + 4 * i, 3 + 4 * i]), 5)
    tokens = driver.run(a_pass)["B"]
    state = driver.runner.requests["B"]
    out = driver.run(Pass().cached("A", 5).cached("C", 5))
    assert "B" not in out
    assert driver.batch.req_ids == ["A", "C"]
    assert driver.runner.requests["B"] is state
    assert state.output_token_ids == tokens
    for computed in (5, 6):
        tokens += driver.run(Pass().cached("A", computed + 1).cached("B", computed).cached("C", computed + 1))["B"]
        assert driver.inputs["num_scheduled_tokens"] == [1, 1, 1]
    assert tokens == solo(PROMPTS["B"][:5], 3)


def test_flat_index_arithmetic_is_64_bits_wide_whatever_comes_in() -> None:
    """CASES 5."""
    for kind in (np.int32, np.int64):
        rows, positions = np.array([598], dtype=kind), np.array([0], dtype=kind)
        assert flat_token_indices(positions, rows, 3_600_000).tolist() == [2_152_800_000]


def test_a_prefix_hit_of_the_same_pass_may_stand_before_the_row_that_computes_it() -> None:
    """CASES 8."""
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=64, reorder_batch_threshold=1)
    for req_id in "AB":
        engine.add(req_id, PROMPTS["X"][:9], 3)
    engine.run(1)
    new_reqs = engine.facts("schedule")["scheduled_new_reqs"]
    assert [(new["block_ids"], new["num_computed_tokens"]) for new in new_reqs] == [
        ([[1, 2, 3]], 0), ([[1, 2, 4]], 8)
    ]  # fmt: skip
    assert engine.facts("schedule")["num_scheduled_tokens"] == {"A": 9, "B": 1}
    assert engine.facts("refresh_metadata")["req_ids"] == ["B", "A"]
    inputs = engine.facts("prepare_inputs")
    assert inputs["logits_indices"] == [0, 9]
    assert inputs["slot_mapping"] == [16, *range(4, 13)]
    engine.run()
    assert engine.tokens["A", 0] == engine.tokens["B", 0] == solo(PROMPTS["X"][:9], 3)


def test_an_abort_between_execute_and_sample_uses_the_park_once_and_a_pass_without_tokens_tells_the_runner() -> None:
    """CASES 28a."""
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=16)
    engine.add("X", PROMPTS["X"][:6], 9)
    engine.core.aborts_queue.put(Abort(["X"]))
    engine.run(1)
    assert engine.facts("park_logits")["parked"] is True
    assert engine.runner.execute_model_state is None
    assert engine.facts("process_aborts")["aborted"] == ["X"]
    assert engine.facts("update_from_output") == {"new_token_ids": {}, "finished": {}}
    assert engine.tokens == {}
    assert "X" in engine.runner.requests
    engine.run(1)
    assert engine.facts("schedule")["finished_req_ids"] == ["X"]
    assert engine.facts("schedule")["total_num_scheduled_tokens"] == 0
    assert not {"forward", "park_logits", "sample_tokens"} & {phase.phase for phase in engine.passes[-1].phases}
    assert not engine.runner.requests
    assert not engine.core.scheduler.has_requests()


def test_an_aborted_id_that_comes_again_before_the_next_pass_starts_fresh() -> None:
    """CASES 28b."""
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=16)
    engine.add("X", PROMPTS["X"][:9], 9, temperature=1.0, seed=1, submission=1)
    engine.core.aborts_queue.put(Abort(["X"]))
    engine.run(1)
    engine.add("X", PROMPTS["X"][:10], 4, temperature=0.7, seed=5, submission=2)
    engine.run(1)
    schedule = engine.facts("schedule")
    assert schedule["finished_req_ids"] == ["X"]
    assert [(new["req_id"], new["num_computed_tokens"]) for new in schedule["scheduled_new_reqs"]] == [("X", 8)]
    assert engine.passes[-1].phases[0].phase == "schedule"
    phases = {phase.phase: phase for phase in engine.passes[-1].phases}
    assert phases["remove_finished"].changes == [["clear", 0]]
    assert phases["add_requests"].facts == {"req_ids": ["X"], "rows": [0]}
    engine.run()
    assert engine.tokens == {("X", 2): solo(PROMPTS["X"][:10], 4, temperature=0.7, seed=5)}


def test_calls_out_of_turn_are_clear_errors_and_change_nothing() -> None:
    """CASES 30: execute twice, and sample first, through the executor; then the pass ends as if nothing had been."""
    executor = UniProcExecutor(tiny(max_num_seqs=2, max_num_batched_tokens=16))
    executor.collective_rpc("initialize_cache", args=(16,))
    with pytest.raises(RuntimeError, match=r"execute_model\(\) must be called before sample_tokens\(\)"):
        executor.sample_tokens(None)
    a_pass = Pass().new(new("A", PROMPTS["A"][:5], [1, 2]), 5).output
    assert executor.execute_model(a_pass) is None
    future = executor.execute_model(Pass().cached("A", 5).output, non_block=True)
    with pytest.raises(RuntimeError, match=r"sample_tokens\(\) must be called after execute_model\(\) returns None"):
        future.result()
    assert executor.sample_tokens(None).sampled_token_ids == [solo(PROMPTS["A"][:5], 1)]


def test_a_failure_while_sampling_is_told_and_the_park_is_cleared() -> None:
    """CASES 30, in the engine: the client learns the reason, and nothing is left parked."""
    client = InprocClient(tiny(max_num_seqs=2, max_num_batched_tokens=16))
    runner = client.core.model_executor.driver_worker.model_runner  # type: ignore[attr-defined]

    def broken(*args: Any) -> None:
        raise FloatingPointError("no sample today")

    runner.sampler = broken
    client.add_request(ask("A", PROMPTS["A"][:5]))
    with pytest.raises(EngineDeadError, match="FloatingPointError: no sample today"):
        client.get_outputs()
    assert runner.execute_model_state is None
    with pytest.raises(EngineDeadError, match="no sample today"):
        client.add_request(ask("B", PROMPTS["B"][:5]))

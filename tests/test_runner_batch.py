"""The batch outlives the pass: what leaves, what stays, what moves, and that everything follows its request."""

import numpy as np
import pytest
from helpers.passes import GREEDY, Driver, Pass, new

from engine.outputs import EMPTY_MODEL_RUNNER_OUTPUT
from engine.sampling_params import SamplingParams


def prompt(seed, length):
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def solo(tokens, count, params=GREEDY, **flags):
    """The tokens that a request alone in a fresh engine gets."""
    driver = Driver(**flags)
    blocks = list(range(1, 40))
    out = driver.run(Pass().new(new("solo", tokens, blocks, params=params), len(tokens)))["solo"]
    while len(out) < count:
        out += driver.run(Pass().cached("solo", len(tokens) + len(out) - 1))["solo"]
    return out


def five_rows(driver, params=None):
    """A..E with prompts of 3 tokens, and blocks of their own, after their prefill."""
    ids = "ABCDE"
    a_pass = Pass()
    for i, req_id in enumerate(ids):
        blocks = [1 + 4 * i, 2 + 4 * i, 3 + 4 * i, 4 + 4 * i]
        a_pass.new(new(req_id, prompt(i, 3), blocks, params=params[i] if params else GREEDY), 3)
    return driver.run(a_pass)


def test_a_finished_request_leaves_the_batch_and_the_dictionary_and_an_unscheduled_one_only_the_batch():
    driver = Driver()
    five_rows(driver)
    driver.run(Pass().finish("A").cached("C", 3).cached("D", 3).cached("E", 3))
    assert "A" not in driver.runner.requests
    assert "B" in driver.runner.requests
    assert set(driver.batch.req_ids) == {"C", "D", "E"}
    assert driver.phases["remove_finished"].changes == [["clear", 0]]
    assert driver.phases["remove_unscheduled"].changes == [["clear", 1]]


def test_an_unscheduled_request_returns_with_its_state_and_no_new_prefill():
    driver = Driver()
    first = five_rows(driver)
    driver.run(Pass().cached("A", 3).cached("C", 3).cached("D", 3).cached("E", 3))
    assert "B" not in driver.batch.req_id_to_index
    again = driver.run(Pass().cached("B", 3).cached("A", 4))
    assert driver.inputs["num_scheduled_tokens"] == [1, 1]
    assert first["B"] + again["B"] == solo(prompt(1, 3), 2)


def test_new_rows_fill_the_lowest_hole_then_condense_moves_the_last_rows_down_then_the_reorder_swaps():
    params = [
        SamplingParams(temperature=0.7 + i / 10, seed=40 + i, top_k=20 + i, top_p=0.95, ignore_eos=True)
        for i in range(6)
    ]
    driver = Driver(reorder_batch_threshold=1)
    out = five_rows(driver, params)
    rows = {req_id: driver.batch.row_state(row) for req_id, row in driver.batch.req_id_to_index.items()}
    f = new("F", prompt(5, 3), [30, 31], params=params[5])
    got = driver.run(Pass().finish("A", "C").cached("B", 3).cached("D", 3).cached("E", 3).new(f, 3))
    assert driver.phases["add_requests"].facts == {"req_ids": ["F"], "rows": [0]}
    assert driver.phases["condense"].facts["moved"] == [[4, 2, "UNIDIRECTIONAL"]]
    assert driver.phases["reorder"].facts["moved"] == [[3, 0, "SWAP"]]
    assert driver.batch.req_ids == ["D", "B", "E", "F"]
    for req_id in "BDE":
        after = driver.batch.row_state(driver.batch.req_id_to_index[req_id])
        for name in ("temperature", "top_k", "top_p", "block_table", "num_prompt_tokens"):
            assert after[name] == rows[req_id][name]
    for req_id in "BDE":
        i = "ABCDE".index(req_id)
        assert out[req_id] + got[req_id] == solo(prompt(i, 3), 2, params[i])
    assert got["F"] == solo(prompt(5, 3), 1, params[5])


def test_a_short_row_in_a_long_rows_place_never_reaches_the_old_columns():
    driver = Driver()
    a_pass = Pass().new(new("long", prompt(0, 30), list(range(1, 9))), 30)
    driver.run(a_pass.new(new("short", prompt(1, 10), [20, 21, 22]), 10))
    for key_cache, value_cache in ((layer.key_cache, layer.value_cache) for layer in attention_layers(driver)):
        key_cache[1:9] = value_cache[1:9] = float("nan")
    out = driver.run(Pass().finish("long").cached("short", 10))
    assert driver.batch.req_id_to_index["short"] == 0
    assert driver.batch.block_table.row(0) == [20, 21, 22]
    assert out["short"] == solo(prompt(1, 10), 2)[1:]


def attention_layers(driver):
    return [module for module in driver.worker.model.modules() if hasattr(module, "key_cache")]


def test_a_running_request_costs_one_counter_and_block_ids_only_when_it_got_some():
    driver = Driver()
    driver.run(Pass().new(new("A", prompt(0, 4), [1]), 4))
    driver.run(Pass().cached("A", 4, blocks=[2]))
    assert driver.phases["update_cached"].changes == [
        ["put", "block_table", [0], [1], [[2]]], ["set", "num_computed_tokens", [0], [4]],
    ]  # fmt: skip
    driver.run(Pass().cached("A", 5))
    assert driver.phases["update_cached"].changes == [["set", "num_computed_tokens", [0], [5]]]
    assert driver.phases["refresh_metadata"].facts["rebuilt"] is False


def test_a_resumed_requests_blocks_are_replaced():
    driver = Driver()
    first = driver.run(Pass().new(new("A", prompt(0, 4), [1, 2]), 4).new(new("B", prompt(1, 4), [3, 4]), 4))
    driver.run(Pass().cached("A", 4))
    again = driver.run(Pass().cached("A", 5).cached("B", 0, tokens=5, blocks=[7, 8], resumed=True))
    assert driver.batch.block_table.row(driver.batch.req_id_to_index["B"]) == [7, 8]
    assert first["B"] + again["B"] == solo(prompt(1, 4), 2)


def test_a_request_that_is_in_the_batch_and_resumed_leaves_before_it_comes_back():
    driver = Driver()
    driver.run(Pass().new(new("A", prompt(0, 4), [1, 2]), 4))
    driver.run(Pass().cached("A", 0, tokens=5, blocks=[5, 6], resumed=True))
    assert driver.phases["remove_unscheduled"].facts["unscheduled_req_ids"] == ["A"]
    assert driver.batch.block_table.row(0) == [5, 6]


def test_an_id_that_finishes_and_comes_again_in_one_pass_is_two_requests():
    driver = Driver()
    driver.run(Pass().new(new("X", prompt(0, 4), [1, 2]), 4))
    out = driver.run(Pass().finish("X").new(new("X", prompt(1, 6), [3, 4]), 6))
    assert driver.runner.requests["X"].prompt_token_ids == prompt(1, 6)
    assert out["X"] == solo(prompt(1, 6), 1)


def test_a_pass_without_tokens_does_the_diff_and_nothing_else():
    driver = Driver()
    driver.run(Pass().new(new("X", prompt(0, 4), [1, 2]), 4))
    assert driver.worker.execute_model(Pass().finish("X").output) is EMPTY_MODEL_RUNNER_OUTPUT
    assert driver.batch.num_reqs == 0
    assert driver.runner.requests == {}
    assert "forward" not in {phase.phase for phase in driver.worker.take_trace()}


def test_execute_twice_and_sample_first_are_state_errors_and_a_failure_clears_the_park():
    driver = Driver()
    with pytest.raises(RuntimeError, match="execute_model"):
        driver.worker.sample_tokens(None)
    assert driver.worker.execute_model(Pass().new(new("A", prompt(0, 4), [1, 2]), 4).output) is None
    assert driver.runner.execute_model_state is not None
    with pytest.raises(RuntimeError, match=r"sample_tokens\(\) must be called after execute_model\(\) returns None"):
        driver.worker.execute_model(Pass().cached("A", 4).output)

    def broken(*args):
        raise ValueError("no sample today")

    sampler, driver.runner.sampler = driver.runner.sampler, broken
    with pytest.raises(ValueError, match="no sample today"):
        driver.worker.sample_tokens(None)
    assert driver.runner.execute_model_state is None
    driver.runner.sampler = sampler


def test_a_seeded_request_gets_the_same_tokens_beside_any_neighbours_in_any_chunks_and_after_a_move():
    params = SamplingParams(temperature=0.8, seed=42, ignore_eos=True)
    expected = solo(prompt(0, 6), 16, params)
    driver = Driver()
    other = SamplingParams(temperature=1.2, ignore_eos=True)
    a_pass = Pass().new(new("gone", prompt(7, 5), [1, 2], params=other), 5)
    a_pass.new(new("greedy", prompt(8, 5), [3, 4]), 5)
    out = driver.run(a_pass.new(new("S", prompt(0, 6), list(range(10, 17)), params=params), 4))
    assert out["S"] == []  # still in prefill: sampled and discarded
    tokens = driver.run(Pass().finish("gone").cached("greedy", 5).cached("S", 4, tokens=2))["S"]
    assert driver.phases["condense"].facts["moved"] == [[2, 0, "UNIDIRECTIONAL"]]
    while len(tokens) < 16:
        tokens += driver.run(Pass().cached("S", 5 + len(tokens)))["S"]
    assert tokens == expected


def test_min_tokens_keeps_the_stop_tokens_out_until_then():
    (favourite,) = solo(prompt(0, 4), 1)
    params = SamplingParams(temperature=0.0, min_tokens=1, stop_token_ids=[favourite])
    assert solo(prompt(0, 4), 1, params) != [favourite]

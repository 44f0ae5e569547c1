"""Rows of different lengths lie end to end on one token axis."""

import numpy as np
from helpers.passes import Driver, Pass, new

from runner.prepare_inputs import cumsum_and_arange, flat_token_indices
from runner.reorder import DECODE, LONG_EXTEND, PREFILL, SHORT_EXTEND, regions


def run_2_5_3(driver):
    """The pass of the reference: 2 of 102 tokens (100 computed), 5 of 600, 3 of 60 (40 computed)."""
    a_pass = Pass()
    a_pass.new(new("R1", [1] * 102, list(range(1, 27)), computed=100), 2)
    a_pass.new(new("R2", list(range(200)) * 3, [30, 31]), 5)
    a_pass.new(new("R3", [3] * 60, list(range(40, 55)), computed=40), 3)
    return driver.run(a_pass)


def test_the_2_5_3_pass():
    driver = Driver()
    out = run_2_5_3(driver)
    inputs = driver.inputs
    assert inputs["req_indices"] == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    assert inputs["query_pos"] == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]
    assert inputs["positions"] == [100, 101, 0, 1, 2, 3, 4, 40, 41, 42]
    width = driver.batch.token_ids_cpu.shape[1]
    assert inputs["token_indices"] == [100, 101, *(width + i for i in range(5)), *(2 * width + i for i in (40, 41, 42))]
    assert inputs["input_ids"] == [1, 1, 0, 1, 2, 3, 4, 3, 3, 3]
    assert inputs["query_start_loc"] == [0, 2, 7, 10]
    assert inputs["logits_indices"] == [1, 6, 9]
    assert inputs["discard_request_mask"] == [False, True, True]
    assert inputs["seq_lens"] == [102, 5, 43]
    assert [len(out[req_id]) for req_id in ("R1", "R2", "R3")] == [1, 0, 0]


def test_query_start_loc_is_padded_to_the_end_of_its_buffer_with_its_last_value():
    driver = Driver()
    run_2_5_3(driver)
    assert driver.runner.query_start_loc.np.tolist() == [0, 2, 7] + [10] * 6


def test_only_the_rows_at_logits_indices_are_projected_to_the_vocabulary():
    driver = Driver()
    run_2_5_3(driver)
    vocab_size = driver.worker.config.model_config.hf_config["vocab_size"]
    assert driver.phases["park_logits"].facts["logits_shape"] == [3, vocab_size]


def test_block_table_and_positions_give_each_token_one_slot():
    driver = Driver()
    driver.run(Pass().new(new("A", [5] * 10, [7, 2, 9]), 10))
    assert driver.inputs["slot_mapping"] == [28, 29, 30, 31, 8, 9, 10, 11, 36, 37]


def test_buffers_are_allocated_once():
    driver = Driver()
    run_2_5_3(driver)
    names = ("input_ids", "positions", "query_start_loc", "seq_lens", "discard_request_mask")
    before = [getattr(driver.runner, name).cpu.data_ptr() for name in names]
    driver.run(Pass().finish("R1", "R3").cached("R2", 5, tokens=7, blocks=[32]))
    assert [getattr(driver.runner, name).cpu.data_ptr() for name in names] == before
    assert driver.runner.query_start_loc.np.tolist() == [0] + [7] * 8


def test_a_preempted_request_resumed_in_chunks_emits_only_with_all_its_known_tokens():
    driver = Driver()
    out = driver.run(Pass().new(new("A", [1, 2, 3], [1, 2, 3, 4]), 3))["A"]
    for i in range(9):
        out += driver.run(Pass().cached("A", 3 + i))["A"]
    driver.run(Pass().new(new("B", [9], [5]), 1))
    masks, emitted = [], []
    for computed, tokens in ((0, 4), (4, 4), (8, 4), (12, 1)):
        blocks = [10, 11, 12, 13] if computed == 0 else None
        got = driver.run(Pass().cached("A", computed, tokens=tokens, blocks=blocks, resumed=computed == 0))
        masks += driver.inputs["discard_request_mask"]
        emitted.append(got["A"])
    assert masks == [True, True, True, False]
    assert [len(ids) for ids in emitted] == [0, 0, 0, 1]
    assert len(driver.runner.requests["A"].output_token_ids) == 11


def test_flat_indices_do_not_wrap_at_32_bits():
    assert flat_token_indices(np.array([0]), np.array([598], dtype=np.int32), 3_600_000).tolist() == [2_152_800_000]


def test_cumsum_and_arange():
    out = np.zeros(12, dtype=np.int64)
    sums = cumsum_and_arange(np.array([2, 5, 3]), np.arange(12), out)
    assert sums.tolist() == [2, 7, 10]
    assert out[:10].tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]


def test_regions_of_a_reorder():
    got = regions(np.array([1, 1, 9, 9, 1]), np.array([5, 5, 5, 0, 0]), np.array([5, 9, 20, 9, 1]), threshold=1)
    assert got.tolist() == [DECODE, SHORT_EXTEND, LONG_EXTEND, PREFILL, PREFILL]

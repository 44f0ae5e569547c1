"""Each sampling parameter follows its request: alone, beside others, in chunks, through moves and preemptions."""

import numpy as np
import pytest
import torch
from helpers.passes import GREEDY, Driver, Pass, new
from helpers.threads import one_thread

from engine.outputs import GrammarOutput
from engine.sampling_params import SamplingParams
from runner.logits_processors import BatchUpdate, MoveDirectionality, update_rows
from runner.logits_processors.batch_update_builder import BatchUpdateBuilder
from runner.logits_processors.penalties import PenaltiesLogitsProcessor

NUM_TOKENS = 10


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def prompt(seed, length=3):
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def params(i, **own):
    """Everything at once, of its own kind for each i."""
    everything = {
        "temperature": 0.6 + i / 5,
        "seed": 40 + i,
        "logit_bias": {12 * i + 12: 4.0, 60: 3.0},
        "allowed_token_ids": list(range(0, 300, 2 + i % 3)),
        "bad_words_token_ids": [[120 + 12 * i], [12 * i + 12, 60]],
        "presence_penalty": 0.2 * i,
        "frequency_penalty": 0.5 - 0.1 * i,
        "repetition_penalty": 1.0 + 0.1 * i,
        "min_tokens": 2 * i,
        "stop_token_ids": [24, 36 + 12 * i],
        "extra_args": {"multiples_of": 1 + i % 2},
        "ignore_eos": True,
        "max_tokens": 100,
    }
    return SamplingParams(**everything | own)


FLAGS = {"logits_processors": ["helpers.own_processor:OnlyMultiplesOf"]}


def solo(tokens, count, parameters, **flags):
    """The tokens that a request alone in a fresh engine gets."""
    driver = Driver(**FLAGS | flags)
    out = driver.run(Pass().new(new("solo", tokens, list(range(1, 40)), params=parameters), len(tokens)))["solo"]
    while len(out) < count:
        out += driver.run(Pass().cached("solo", len(tokens) + len(out) - 1))["solo"]
    return out


def test_everything_follows_its_request_through_a_hole_a_condense_and_a_reorder():
    """CASES 1: A and C leave, F fills row 0, condense moves 4 to 2, the reorder swaps 0 and 3."""
    driver = Driver(reorder_batch_threshold=1, **FLAGS)
    first = Pass()
    for i, req_id in enumerate("ABCDE"):
        first.new(new(req_id, prompt(i), list(range(1 + 5 * i, 6 + 5 * i)), params=params(i)), 3)
    out = driver.run(first)
    second = Pass().finish("A", "C").cached("B", 3).cached("D", 3).cached("E", 3)
    got = driver.run(second.new(new("F", prompt(5), list(range(30, 35)), params=params(5)), 3))
    assert driver.phases["condense"].facts["moved"] == [[4, 2, "UNIDIRECTIONAL"]]
    assert driver.phases["reorder"].facts["moved"] == [[3, 0, "SWAP"]]
    assert driver.batch.req_ids == ["D", "B", "E", "F"]
    tokens = {req_id: out.get(req_id, []) + got[req_id] for req_id in "BDEF"}
    for _ in range(NUM_TOKENS):
        a_pass = Pass()
        for req_id in "FEBD":
            a_pass.cached(req_id, 2 + len(tokens[req_id]))
        for req_id, ids in driver.run(a_pass).items():
            tokens[req_id] += ids
    assert all(len(set(ids)) > 4 for ids in tokens.values())
    assert tokens == {
        req_id: solo(prompt("ABCDEF".index(req_id)), len(ids), params("ABCDEF".index(req_id)))
        for req_id, ids in tokens.items()
    }


@pytest.mark.parametrize("own", [
    {}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.1}, {"allowed_token_ids": None, "top_k": 9},
])  # fmt: skip
def test_chunks_neighbours_moves_and_preemptions_change_no_token(own):
    """CASES 14, for every parameter: chunks, other rows beside it, a move, a preemption, a pass left out."""
    mine = params(4, **own)
    expected = solo(prompt(9, 7), 12, mine)
    driver = Driver(**FLAGS)
    first = Pass().new(new("gone", prompt(7), [1, 2], params=params(1)), 3)
    first.new(new("other", prompt(8), [3, 4, 5, 6, 7], params=params(2)), 3)
    tokens = driver.run(first.new(new("S", prompt(9, 7), list(range(10, 17)), params=mine), 4))["S"]
    assert tokens == []  # still in prefill: sampled and discarded
    tokens += driver.run(Pass().finish("gone").cached("other", 3).cached("S", 4, tokens=3))["S"]
    assert driver.phases["condense"].facts["moved"] == [[2, 0, "UNIDIRECTIONAL"]]
    for _ in range(4):
        tokens += driver.run(Pass().cached("S", 6 + len(tokens)))["S"]
    driver.run(Pass().cached("other", 4))  # S is preempted
    blocks = list(range(20, 30))
    tokens += driver.run(Pass().cached("other", 5).cached("S", 0, tokens=8, blocks=blocks, resumed=True))["S"]
    tokens += driver.run(Pass().cached("other", 6).cached("S", 8, tokens=6 + len(tokens) - 7))["S"]
    driver.run(Pass().cached("other", 7))  # S is left out of one pass and keeps its blocks
    while len(tokens) < 12:
        tokens += driver.run(Pass().cached("S", 6 + len(tokens)))["S"]
    assert tokens == expected


def test_a_greedy_row_beside_rows_that_use_everything_is_untouched():
    """CASES 19."""
    driver = Driver()
    first = Pass().new(new("G", prompt(0), list(range(1, 6))), 3)
    for i in range(1, 5):
        first.new(new(f"r{i}", prompt(i), list(range(1 + 8 * i, 6 + 8 * i)), params=params(i)), 3)
    tokens = driver.run(first)["G"]
    for step in range(5):
        a_pass = Pass().cached("G", 3 + step)
        for i in range(1, 5):
            a_pass.cached(f"r{i}", 3 + step)
        tokens += driver.run(a_pass)["G"]
    assert tokens == solo(prompt(0), 6, GREEDY)


def shift_of(driver, req_id, token_id):
    """What the penalties add to a token's logit now."""
    (penalties,) = (p for p in driver.runner.sampler.logits_processors if isinstance(p, PenaltiesLogitsProcessor))
    logits = penalties.apply(torch.zeros(driver.batch.num_reqs, 320))
    return float(logits[driver.batch.req_id_to_index[req_id], token_id])


def test_penalties_count_the_output_before_and_after_a_preemption_and_beside_longer_prompts():
    """CASES 16: frequency 0.5 and presence 0.3, X twice in the output and once in the prompt: -1.3."""
    x = 33
    forced = SamplingParams(
        temperature=0.0, frequency_penalty=0.5, presence_penalty=0.3, logit_bias={x: 100.0}, ignore_eos=True
    )
    driver = Driver()
    driver.run(Pass().new(new("long", prompt(1, 40), list(range(1, 14)), params=params(1)), 40))
    out = driver.run(Pass().cached("long", 40).new(new("A", [1, x, 2], [20, 21, 22], params=forced), 3))
    out["A"] += driver.run(Pass().cached("long", 41).cached("A", 3))["A"]
    assert out["A"] == [x, x]
    assert shift_of(driver, "A", x) == pytest.approx(-1.3)
    assert [shift_of(driver, "A", other) for other in (0, 1, 2)] == [0, 0, 0]  # neither prompt nor padding counts
    driver.run(Pass().cached("long", 42))
    resumed = Pass().cached("A", 0, tokens=2, blocks=[30, 31, 32], resumed=True)
    driver.run(resumed)
    assert shift_of(driver, "A", x) == pytest.approx(-1.3)


def test_the_grammars_mask_goes_to_its_own_row_in_whatever_order_the_ids_come():
    """CASES 38: C is constrained, wherever the reorder puts it; A and B are not."""
    for constrained in ("A", "B", "C"):
        driver = Driver(reorder_batch_threshold=1)
        driver.run(Pass().new(new("A", prompt(0), [1, 2]), 3).new(new("C", prompt(2), [5, 6]), 3))
        mask = np.zeros((2, 10), dtype=np.int32)
        mask[1, 3] = 1 << 5  # token 101 alone
        grammar = GrammarOutput(["gone", constrained], mask.tobytes())
        a_pass = Pass().new(new("B", prompt(1, 4), [3, 4]), 4).cached("C", 3).cached("A", 3)
        out = driver.run(a_pass, grammar)
        row = driver.batch.req_id_to_index[constrained]
        facts = driver.phases["sample_tokens"].facts
        assert (facts["masked_rows"], facts["num_allowed_tokens"]) == ([row], [1])
        for i, req_id in enumerate("ABC"):
            alone = solo(prompt(i, 4 if req_id == "B" else 3), 2, GREEDY)[0 if req_id == "B" else 1]
            assert out[req_id] == [101 if req_id == constrained else alone]


def test_a_users_own_processor_runs_after_the_temperature_where_it_keeps_the_highest_and_not_for_greedy_batches():
    flags = {"logits_processors": ["helpers.own_processor.OnlyTheTwoLikeliest"]}
    two = SamplingParams(temperature=0.8, top_k=2, seed=3, ignore_eos=True)
    free = SamplingParams(temperature=0.8, seed=3, ignore_eos=True)
    assert solo(prompt(0), 8, free, **flags) == solo(prompt(0), 8, two)
    assert solo(prompt(0), 8, GREEDY, **flags) == solo(prompt(0), 8, GREEDY)


def test_an_update_names_what_was_removed_what_came_and_what_moved_in_this_order():
    states = {0: "a", 1: "b", 2: "c", 3: "d"}
    one_way, swap = MoveDirectionality.UNIDIRECTIONAL, MoveDirectionality.SWAP
    added = (0, SamplingParams(extra_args={"state": "e"}), [], [])
    update = BatchUpdate(3, removed=[2], added=[added], moved=[(3, 2, one_way), (0, 1, swap)])
    assert update_rows(states, update, lambda params, *_: params.extra_args["state"])
    assert states == {0: "b", 1: "e", 2: "d"}
    assert not update_rows(states, None, lambda *_: None)


def test_metadata_and_updates_are_made_only_when_the_batch_has_changed():
    driver = Driver()
    driver.run(Pass().new(new("A", prompt(0), [1, 2], params=params(1)), 3))
    before = driver.batch.sampling_metadata
    driver.run(Pass().cached("A", 3))
    assert driver.batch.sampling_metadata is before
    assert BatchUpdateBuilder().take(1) is None

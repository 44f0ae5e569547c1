"""Who runs, for how many tokens, in which blocks: cases that the recordings do not hold."""

from random import Random

import pytest
from helpers.driver import Driver
from helpers.fake_executor import token

from engine.request import RequestStatus


def shares(output) -> dict[str, int]:
    return output.num_scheduled_tokens


def test_preemption_and_resumption_with_the_prefix_cache() -> None:
    """CASES 20: 7 blocks of 4; A and B have 8-token prompts and want 8 tokens each. Passes count from 1."""
    driver = Driver(num_gpu_blocks=7, max_model_len=24)
    driver.add("A", [11] * 8, 8)
    driver.add("B", [22] * 8, 8)
    passes = [None]
    while driver.scheduler.requests:
        passes.append(driver.run_pass())
        if len(passes) == 7:
            preempted = driver.scheduler.requests["B"]
            assert (preempted.num_tokens, preempted.num_output_tokens) == (13, 5)

    assert [new.block_ids for new in passes[1].scheduled_new_reqs] == [([1, 2],), ([3, 4],)]
    assert passes[2].scheduled_cached_reqs.new_block_ids == [([5],), ([6],)]
    assert passes[6].preempted_req_ids == {"B"}
    assert passes[6].scheduled_cached_reqs.new_block_ids == [([6],)]
    assert [shares(each) for each in passes[7:9]] == [{"A": 1}, {"A": 1}]
    resumed = passes[9].scheduled_cached_reqs
    assert (resumed.req_ids, resumed.resumed_req_ids) == (["B"], {"B"})
    assert resumed.num_computed_tokens == [8]
    assert resumed.new_block_ids == [([3, 4, 6, 5],)]
    assert shares(passes[9]) == {"B": 5}
    assert len(passes) == 12, "B ends in pass 11"
    assert sum(len(each.preempted_req_ids) for each in passes[1:]) == 1
    assert driver.tokens == {req_id: [token(req_id, i) for i in range(8)] for req_id in "AB"}


def test_two_requests_with_one_prompt_share_what_the_first_computes_in_the_same_pass() -> None:
    """CASES 8."""
    driver = Driver()
    for req_id in "AB":
        driver.add(req_id, [7] * 9)
    output = driver.run_pass()
    a, b = output.scheduled_new_reqs
    assert (a.block_ids, a.num_computed_tokens) == (([1, 2, 3],), 0)
    assert (b.block_ids, b.num_computed_tokens) == (([1, 2, 4],), 8)
    assert shares(output) == {"A": 9, "B": 1}


def test_a_resumed_request_is_recomputed_in_chunks_and_emits_once() -> None:
    """CASES 9: prompt 3, 10 outputs, preempted, budget 4: 13 known tokens as 4+4+4+1, then output 11."""
    driver = Driver(max_num_batched_tokens=4, enable_prefix_caching=False)
    driver.add("A", 3, 20)
    for _ in range(10):
        driver.run_pass()
    assert len(driver.tokens["A"]) == 10
    assert driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    sizes, emitted = [], []
    for _ in range(4):
        sizes.append(shares(driver.run_pass())["A"])
        emitted.append(len(driver.tokens["A"]))
    assert sizes == [4, 4, 4, 1]
    assert emitted == [10, 10, 10, 11]


@pytest.mark.parametrize(("length", "hit", "computed"), [(32, 16, 16), (33, 32, 1)])
def test_the_last_token_is_never_taken_from_the_cache(length: int, hit: int, computed: int) -> None:
    """CASES 11."""
    driver = Driver(block_size=16, max_num_batched_tokens=64)
    driver.add("A", length, 1)
    driver.run()
    driver.add("B", length, 1)
    output = driver.run_pass()
    assert output.scheduled_new_reqs[0].num_computed_tokens == hit
    assert shares(output) == {"B": computed}


@pytest.mark.parametrize(("max_tokens", "blocks"), [(1, 1), (17, 2), (18, 3)])
def test_the_last_token_needs_no_slot(max_tokens: int, blocks: int) -> None:
    """CASES 11: 16 prompt tokens, blocks of 16."""
    driver = Driver(block_size=16)
    driver.add("A", 16, max_tokens)
    most = 0
    while driver.scheduler.requests:
        output = driver.schedule()
        most = max(most, len(driver.blocks("A")))
        driver.apply(output)
    assert most == blocks


def test_a_long_prefill_makes_room_for_others_and_takes_all_when_alone() -> None:
    """CASES 24."""
    driver = Driver(max_num_seqs=16, max_num_batched_tokens=32, long_prefill_token_threshold=8, max_model_len=512,
                    num_gpu_blocks=128, enable_prefix_caching=False)  # fmt: skip
    driver.add("long", 320)
    assert shares(driver.run_pass()) == {"long": 32}
    for i in range(10):
        driver.add(f"s{i}", 4, 30)
    first = shares(driver.run_pass())
    assert first == {"long": 8, **{f"s{i}": 4 for i in range(6)}}
    second = shares(driver.run_pass())
    assert second == {"long": 8, **{f"s{i}": 1 for i in range(6)}, **{f"s{i}": 4 for i in range(6, 10)}}
    for _ in range(5):
        later = shares(driver.run_pass())
        assert later["long"] == 8
        assert [later[f"s{i}"] for i in range(10)] == [1] * 10, "running decodes never stop"


def test_without_chunked_prefill_a_prompt_waits_for_a_budget_that_holds_it() -> None:
    driver = Driver(enable_chunked_prefill=False, max_model_len=32, max_num_batched_tokens=32)
    driver.add("A", [1] * 20, 9)
    driver.add("B", [2] * 20, 9)
    assert shares(driver.run_pass()) == {"A": 20}
    assert shares(driver.run_pass()) == {"A": 1, "B": 20}
    driver.run()


def test_a_waiting_request_is_not_admitted_in_parts() -> None:
    """With 5 usable blocks and 3 held, a 12-token prompt waits, although its first chunk of 8 would fit."""
    driver = Driver(num_gpu_blocks=6, max_num_batched_tokens=8, enable_prefix_caching=False)
    driver.add("A", 8, 5)
    driver.run_pass()
    driver.add("B", 12, 1)
    while "A" in driver.scheduler.requests:
        assert "B" not in shares(driver.run_pass())
    assert shares(driver.run_pass()) == {"B": 8}


def test_nobody_overtakes_the_first_in_line() -> None:
    driver = Driver(num_gpu_blocks=6, enable_prefix_caching=False)
    driver.add("A", 12, 3)
    driver.run_pass()
    driver.add("big", 12, 1)
    driver.add("small", 2, 1)
    assert shares(driver.run_pass()) == {"A": 1}
    driver.run()
    assert set(driver.finished) == {"A", "big", "small"}


def test_less_urgent_requests_are_preempted_first_even_where_scheduled_already() -> None:
    driver = Driver(num_gpu_blocks=6, scheduling_policy="priority", enable_prefix_caching=False)
    driver.add("low", 4, 9, priority=5)
    driver.add("high", 7, 9, priority=1)
    driver.add("other", 3, 9, priority=2)
    driver.run_pass()  # low holds 1 block, high 2, other 1
    driver.run_pass()  # low takes the last one
    output = driver.run_pass()  # high needs a third: low, which has its token already, gives way, and other still runs
    assert shares(output) == {"high": 1, "other": 1}
    assert output.scheduled_cached_reqs.req_ids == ["high", "other"]
    assert output.preempted_req_ids == {"low"}
    assert driver.scheduler.plan.why["low"][0] == "preempted"
    assert driver.scheduler.plan.why["low"][1]["for"] == "high"
    driver.run()
    assert driver.tokens["low"] == [token("low", i) for i in range(9)]


def test_urgent_requests_are_admitted_first_and_then_the_earliest() -> None:
    driver = Driver(max_num_seqs=1, scheduling_policy="priority")
    for req_id, priority in (("c", 2), ("a", 1), ("d", 2), ("b", 1)):
        driver.add(req_id, 4, 1, priority=priority)
    order = [new.req_id for output in driver.run() for new in output.scheduled_new_reqs]
    assert order == ["a", "b", "c", "d"]


def test_requests_with_different_salts_share_nothing() -> None:
    driver = Driver()
    for req_id, salt in (("A", None), ("B", "x"), ("C", "y"), ("D", "x"), ("E", None)):
        driver.add(req_id, 9, 1, cache_salt=salt)
        hits = [new.num_computed_tokens for output in driver.run() for new in output.scheduled_new_reqs]
        assert hits == [8 if req_id in "DE" else 0], req_id


def test_a_reset_without_running_requests_changes_nothing_while_some_run() -> None:
    """CASES 25."""
    driver = Driver()
    driver.add("A", 9)
    driver.run_pass()
    before = driver.blocks("A")
    assert driver.scheduler.reset_prefix_cache() is False
    assert driver.blocks("A") == before
    assert shares(driver.run_pass()) == {"A": 1}
    driver.run()
    assert driver.scheduler.reset_prefix_cache() is True
    driver.add("B", 9)
    assert driver.run_pass().scheduled_new_reqs[0].num_computed_tokens == 0


def test_a_reset_with_running_requests_preempts_all_and_brings_them_back_in_order() -> None:
    """CASES 25."""
    driver = Driver()
    for req_id in "ABC":
        driver.add(req_id, 9, 6)
    driver.run_pass()
    driver.run_pass()
    assert driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    driver.check()
    output = driver.run_pass()
    assert output.preempted_req_ids == {"A", "B", "C"}
    assert output.scheduled_cached_reqs.req_ids == ["A", "B", "C"]
    assert output.scheduled_cached_reqs.resumed_req_ids == {"A", "B", "C"}
    assert output.scheduled_cached_reqs.num_computed_tokens[0] == 0, "no hits"
    driver.run()
    assert driver.tokens == {req_id: [token(req_id, i) for i in range(6)] for req_id in "ABC"}


def test_two_thousand_aborts_at_every_stage_leave_nothing() -> None:
    """CASES 26: waiting, in mid-chunk, between execute and sample, preempted, finished already."""
    driver = Driver(num_gpu_blocks=14, max_num_batched_tokens=12, max_num_seqs=4)
    choice, stages, num_aborted = Random(0), set(), 0
    while num_aborted < 2000:
        driver.add(f"r{driver.num_added}", [driver.num_added % 200 + 1] * (4 + driver.num_added % 19), 12)
        for _ in range(choice.randrange(3)):
            driver.run_pass()
        output = driver.schedule()
        for request in choice.sample(list(driver.scheduler.requests.values()), k=choice.randrange(2)):
            in_chunk = request.num_computed_tokens < request.num_prompt_tokens
            stages.add((request.status, request.status is RequestStatus.RUNNING and in_chunk))
            driver.abort(request.request_id)
            num_aborted += 1
        driver.apply(output)
    driver.abort(*driver.scheduler.requests)
    driver.run()
    assert stages >= {(RequestStatus.WAITING, False), (RequestStatus.RUNNING, True), (RequestStatus.RUNNING, False)}
    assert (RequestStatus.PREEMPTED, False) in stages
    pool = driver.scheduler.kv_cache_manager.block_pool
    assert pool.num_free_blocks == pool.num_usable_blocks
    assert not driver.scheduler.kv_cache_manager.req_to_blocks


def test_with_one_row_an_abort_of_the_waiting_touches_the_running_not_at_all() -> None:
    """CASES 32, in the scheduler."""
    driver = Driver(max_num_seqs=1, max_num_batched_tokens=8)
    driver.add("A", 20, 3)
    driver.add("B", 4, 3)
    driver.run_pass()
    driver.abort("B")
    assert shares(driver.run_pass()) == {"A": 8}
    driver.abort("A")  # in mid-prefill
    last = driver.run_pass()
    assert (shares(last), last.finished_req_ids) == ({}, {"A"})
    assert not driver.scheduler.has_requests()
    assert not driver.tokens["B"]


def test_throttled_prefills_wait_while_decodes_go_on() -> None:
    driver = Driver(max_num_batched_tokens=8)
    driver.add("A", 4, 9)
    driver.add("B", 20, 1)
    driver.run_pass()
    driver.add("C", 4, 1)
    output = driver.scheduler.schedule(throttle_prefills=True)
    assert shares(output) == {"A": 1}
    driver.apply(output)
    assert shares(driver.run_pass()) == {"A": 1, "B": 7}


def test_stop_tokens_count_from_min_tokens_on() -> None:
    stop = token("A", 1)
    driver = Driver()
    driver.add("A", 4, 9, stop_token_ids=[stop])
    assert [output.stop_reason for output in _last_outputs(driver)] == [stop]
    driver.add("A", 4, 9, stop_token_ids=[stop, token("A", 4)], min_tokens=3)
    driver.run()
    assert len(driver.tokens["A"]) == 5
    driver.add("A", 4, 9, ignore_eos=False, eos_token_id=token("A", 2))
    driver.run()
    assert (len(driver.tokens["A"]), driver.finished["A"]) == (3, "stop")


def test_the_model_length_ends_a_request() -> None:
    driver = Driver(max_model_len=10)
    driver.add("A", 7, 50)
    driver.run()
    assert (len(driver.tokens["A"]), driver.finished["A"]) == (3, "length")


def _last_outputs(driver: Driver) -> list:
    outputs = []
    while driver.scheduler.requests:
        outputs = driver.apply(driver.schedule())
    return outputs

"""CASES.md at the level of the whole engine: who runs, in which blocks, and that the tokens are those of solo."""

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers import recordings
from helpers.fake_executor import fake_config, request
from helpers.invariants import check_scheduler
from helpers.tiny_engine import Engine, solo, tiny

from engine.async_llm import AsyncLLM
from engine.core import Abort, EngineCore
from engine.inproc_client import InprocClient
from engine.outputs import SchedulerOutput
from engine.request import RequestStatus
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from webui.app import create_app


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def schedules(engine: Engine) -> list[dict[str, Any]]:
    """What was decided in each pass. Index 0 is left empty: the cases count passes from 1."""
    return [{}, *(engine.facts("schedule", i) for i in range(len(engine.passes)))]


@pytest.mark.parametrize(("pass_id", "row"), [(33, "r0"), (73, "r4")])
def test_where_a_row_preempts_itself_the_rows_behind_it_drop_out_for_one_pass(pass_id: int, row: str) -> None:
    """CASES 3, in the priority recording."""
    running: dict[int, list[str]] = {}
    decided: dict[int, SchedulerOutput] = {}

    def note(step: int, scheduler: Scheduler, output: SchedulerOutput, recorded: dict[str, Any]) -> None:
        running[step], decided[step] = [request.request_id for request in scheduler.running], output

    recordings.play(recordings.load("priority"), note)
    before, this, after = (decided[step] for step in (pass_id - 1, pass_id, pass_id + 1))
    assert this.preempted_req_ids == {row}
    dropped = [req_id for req_id in before.num_scheduled_tokens if req_id != row]
    assert dropped == running[pass_id], "they still run"
    assert this.num_scheduled_tokens == {}, "and emit nothing"
    assert {req_id: after.num_scheduled_tokens[req_id] for req_id in dropped} == dict.fromkeys(dropped, 1)
    assert not after.scheduled_cached_reqs.resumed_req_ids & set(dropped), "no new prefill"


def test_a_preempted_request_is_recomputed_with_the_budget_and_emits_output_11_alone() -> None:
    """CASES 9, in the whole engine."""
    engine = Engine(max_num_seqs=1, max_num_batched_tokens=4, enable_prefix_caching=False)
    engine.add("A", prompt(0, 3), 12)
    engine.run(10)
    assert len(engine.tokens["A", 0]) == 10
    assert engine.core.reset_prefix_cache(reset_running_requests=True)
    sizes, masks, emitted = [], [], []
    for _ in range(4):
        engine.run(1)
        sizes += engine.facts("prepare_inputs")["num_scheduled_tokens"]
        masks += engine.facts("prepare_inputs")["discard_request_mask"]
        emitted.append(len(engine.tokens["A", 0]))
    assert sizes == [4, 4, 4, 1]
    assert masks == [True, True, True, False]
    assert emitted == [10, 10, 10, 11]
    engine.run()
    assert engine.tokens["A", 0] == solo(prompt(0, 3), 12)


@pytest.mark.parametrize(("length", "hit", "computed"), [(32, 16, 16), (33, 32, 1)])
def test_a_prompt_sent_twice_hits_all_full_blocks_but_never_its_last_token(
    length: int, hit: int, computed: int
) -> None:
    """CASES 11, in the whole engine: what was hit gives the same tokens."""
    engine = Engine(block_size=16, max_num_seqs=2, max_num_batched_tokens=64)
    for submission in (1, 2):
        engine.add("A", prompt(1, length), 3, submission=submission)
        engine.run(5)
    second = next(each for each in schedules(engine)[2:] if each["scheduled_new_reqs"])
    assert second["scheduled_new_reqs"][0]["num_computed_tokens"] == hit
    assert second["num_scheduled_tokens"] == {"A": computed}
    assert engine.tokens["A", 1] == engine.tokens["A", 2] == solo(prompt(1, length), 3)


def test_a_preempted_request_comes_back_into_replaced_blocks_and_slots() -> None:
    """CASES 20, in the whole engine, with its slots. Passes count from 1."""
    engine = Engine(num_gpu_blocks_override=7, max_model_len=24, max_num_seqs=2, max_num_batched_tokens=16)
    for seed, req_id in enumerate("AB"):
        engine.add(req_id, prompt(seed, 8), 8)
    engine.run(6)
    preempted = engine.core.scheduler.requests["B"]
    assert (preempted.status, preempted.num_tokens, preempted.num_output_tokens) == (RequestStatus.PREEMPTED, 13, 5)
    engine.run()
    passes = schedules(engine)
    assert [new["block_ids"] for new in passes[1]["scheduled_new_reqs"]] == [[[1, 2]], [[3, 4]]]
    assert passes[2]["scheduled_cached_reqs"]["new_block_ids"] == [[[5]], [[6]]]
    assert passes[6]["preempted_req_ids"] == ["B"]
    assert passes[6]["scheduled_cached_reqs"]["new_block_ids"] == [[[6]]]
    assert engine.facts("update_from_output", 7)["finished"] == {"A": "length"}
    resumed = passes[9]["scheduled_cached_reqs"]
    assert (resumed["resumed_req_ids"], resumed["num_computed_tokens"]) == (["B"], [8])
    assert resumed["new_block_ids"] == [[[3, 4, 6, 5]]]
    assert engine.facts("prepare_inputs", 8)["slot_mapping"] == [24, 25, 26, 27, 20]
    assert engine.facts("update_from_output", 10)["finished"] == {"B": "length"}
    assert [each["preempted_req_ids"] for each in passes[1:]].count([]) == len(passes) - 2
    assert engine.tokens == {(req_id, 0): solo(prompt(seed, 8), 8) for seed, req_id in enumerate("AB")}


def test_what_can_never_fit_is_refused_with_400_and_what_waits_behind_it_completes() -> None:
    """CASES 22, over HTTP: 3 usable blocks of 4."""
    llm = AsyncLLM(tiny(num_gpu_blocks_override=4, max_model_len=64, max_num_seqs=2), InprocClient)
    app, _ = create_app(llm)

    def complete(length: int, **fields: Any) -> Any:
        body = {"prompt": [1] * length, "ignore_eos": True, **fields}
        return app.test_client().post("/v1/completions", json=body, headers={"Host": "127.0.0.1"})

    try:
        running = llm.generate([1] * 4, SamplingParams(max_tokens=9, ignore_eos=True))
        for answer in (complete(13), complete(8, max_tokens=16)):
            assert answer.status_code == 400
            assert "blocks of 4" in answer.get_json()["error"]["message"]
        assert complete(4, max_tokens=2).get_json()["usage"]["completion_tokens"] == 2
        assert complete(4, max_tokens=None).get_json()["usage"]["completion_tokens"] == 9, "capped to what fits"
        assert [output.finish_reason for output in running][-1] == "length"
    finally:
        llm.shutdown()


def test_a_long_prefill_shares_each_pass_with_the_short_ones_and_changes_nobodys_tokens() -> None:
    """CASES 24, in the whole engine."""
    engine = Engine(max_num_seqs=16, max_num_batched_tokens=32, long_prefill_token_threshold=8, max_model_len=512,
                    num_gpu_blocks_override=256)  # fmt: skip
    engine.add("long", prompt(50, 320), 2)
    engine.run(1)
    for i in range(10):
        engine.add(f"s{i}", prompt(i, 4), 12)
    engine.run(8)
    passes = schedules(engine)
    assert passes[1]["num_scheduled_tokens"] == {"long": 32}, "alone it takes the whole budget"
    assert passes[2]["num_scheduled_tokens"] == {"long": 8} | {f"s{i}": 4 for i in range(6)}
    assert passes[3]["num_scheduled_tokens"] == (
        {"long": 8} | {f"s{i}": 1 for i in range(6)} | {f"s{i}": 4 for i in range(6, 10)}
    )
    for later in passes[4:]:
        assert later["num_scheduled_tokens"] == {"long": 8} | {f"s{i}": 1 for i in range(10)}
    engine.run(60)
    assert all(engine.tokens[f"s{i}", 0] == solo(prompt(i, 4), 12) for i in range(10))


def test_a_reset_with_running_requests_empties_the_batch_before_they_come_back_in_order() -> None:
    """CASES 25, in the whole engine."""
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=64)
    for seed, req_id in enumerate("ABC"):
        engine.add(req_id, prompt(seed, 9), 6)
    engine.run(2)
    blocks = {req_id: engine.core.scheduler.kv_cache_manager.get_block_ids(req_id) for req_id in "ABC"}
    assert engine.core.reset_prefix_cache() is False
    assert {req_id: engine.core.scheduler.kv_cache_manager.get_block_ids(req_id) for req_id in "ABC"} == blocks
    assert engine.core.reset_prefix_cache(reset_running_requests=True) is True
    engine.run(1)
    assert engine.facts("remove_unscheduled")["unscheduled_req_ids"] == ["A", "B", "C"]
    assert engine.facts("add_requests")["req_ids"] == ["A", "B", "C"]
    resumed = engine.facts("schedule")["scheduled_cached_reqs"]
    assert resumed["req_ids"] == resumed["resumed_req_ids"] == ["A", "B", "C"]
    assert resumed["num_computed_tokens"] == [0, 0, 0], "no hits"
    engine.run()
    assert engine.tokens == {(req_id, 0): solo(prompt(seed, 9), 6) for seed, req_id in enumerate("ABC")}


def test_two_thousand_aborts_in_mid_pass_and_between_passes_leave_neither_blocks_nor_requests() -> None:
    """CASES 26, in the engine core: waiting, in mid-chunk, between execute and sample, preempted."""
    core = EngineCore(fake_config(num_gpu_blocks_override=14, max_num_batched_tokens=12), lambda entry: None)
    executor: Any = core.model_executor
    choice, stages, names, num_aborted = Random(0), set(), itertools.count(), 0
    while num_aborted < 2000:
        for name in itertools.islice(names, choice.randint(0, 2)):
            core.add_request(request(f"r{name}", 4 + name % 37, 12, arrival_time=float(name)))
        waiting = list(core.scheduler.waiting)
        preempted = [each for each in waiting if each.status is RequestStatus.PREEMPTED]
        live = preempted or choice.choice([core.scheduler.running, waiting])
        victim = choice.choice(live) if live and choice.random() < 0.5 else None
        if victim is not None:
            in_chunk = 0 < victim.num_computed_tokens < victim.num_prompt_tokens
            in_pass = choice.random() < 0.5
            stages.add((victim.status, in_chunk, in_pass))
            num_aborted += 1
            if in_pass:
                executor.in_pass = lambda: core.aborts_queue.put(Abort([victim.request_id]))  # noqa: B023
            else:
                core.abort_requests([victim.request_id])
        core.step()
        executor.in_pass = None
        check_scheduler(core.scheduler)
    core.abort_requests(list(core.scheduler.requests))
    core.step()
    for in_pass in (True, False):
        statuses = (RequestStatus.WAITING, RequestStatus.RUNNING, RequestStatus.PREEMPTED)
        assert {(status, False, in_pass) for status in statuses} | {(RequestStatus.RUNNING, True, in_pass)} <= stages
    assert core.stats() == {"running": 0, "waiting": 0, "num_free_blocks": 13}
    assert not core.scheduler.has_requests()
    assert not core.scheduler.kv_cache_manager.req_to_blocks
    assert not executor.known


def test_a_second_live_request_of_one_id_is_refused_and_the_first_keeps_its_tokens() -> None:
    """CASES 29, in the whole engine."""
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=16)
    engine.add("X", prompt(0, 6), 5, submission=1)
    for passes in (0, 1, 1):
        engine.run(passes)
        with pytest.raises(ValueError, match="'X' is in use by a live request"):
            engine.add("X", prompt(1, 6), 5, submission=2)
    engine.run()
    assert engine.tokens == {("X", 1): solo(prompt(0, 6), 5)}

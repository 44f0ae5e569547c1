"""Offline generation on the tiny model, with the trace held against the batch after every pass."""

import pytest
from helpers.invariants import check_scheduler
from helpers.threads import one_thread

from batchscope import LLM, ConfigError, SamplingParams
from tracer.schema import decode

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def llm():
    with one_thread():
        engine = LLM(
            "tiny", dtype="float64", max_num_seqs=3, max_num_batched_tokens=16, block_size=4,
            num_gpu_blocks_override=24, max_model_len=64, check=True,
        )  # fmt: skip
        yield engine
        engine.shutdown()


def solo(llm: LLM, prompt: str | list[int], params: SamplingParams) -> list[int]:
    llm.engine.core_client.call("reset_prefix_cache")
    return llm.generate(prompt, params, use_tqdm=False)[0].token_ids


def assert_idle(llm: LLM) -> None:
    scheduler = llm.engine.core_client.core.scheduler
    check_scheduler(scheduler)
    assert not scheduler.requests


def test_many_prompts_come_back_in_order_as_alone(llm: LLM) -> None:
    """More prompts than rows, more tokens than the pool holds: chunks, hits and preemptions change no token."""
    prompts = [f"{'shared beginning '[: 3 * i]}{i}" for i in range(9)]
    together = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [each.prompt for each in together] == prompts
    assert all(each.finish_reason == "length" for each in together)
    assert [each.token_ids for each in together] == [solo(llm, prompt, GREEDY) for prompt in prompts]
    assert_idle(llm)


def test_a_preempted_request_continues_as_if_nothing_had_happened(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    prompts = [[i + 1] * 20 for i in range(3)]  # 3 x 13 blocks, and there are 23
    before = llm.log.last_seq
    together = [each.token_ids for each in llm.generate(prompts, params, use_tqdm=False)]
    records = [decode(entry) for entry in llm.log.entries(before + 1, llm.log.last_seq)]
    preempted = [id_ for record in records if record.kind == "pass"
                 for id_ in record.phases[0].facts["preempted_req_ids"]]  # fmt: skip
    assert preempted
    assert together == [solo(llm, prompt, params) for prompt in prompts]


def test_one_token_list_is_one_prompt_and_each_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    assert len(llm.generate([1, 2, 3], GREEDY, use_tqdm=False)) == 1
    own = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in (1, 5)]
    assert [len(each.token_ids) for each in llm.generate(["a", "b"], own, use_tqdm=False)] == [1, 5]
    with pytest.raises(ValueError, match="2 prompts and 1 sampling"):
        llm.generate(["a", "b"], own[:1], use_tqdm=False)


def test_a_bad_prompt_among_good_ones_stops_all_and_leaves_nothing(llm: LLM) -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        llm.generate(["good", ""], GREEDY, use_tqdm=False)
    assert_idle(llm)


def test_a_stop_string_ends_a_request_in_the_core_too(llm: LLM) -> None:
    full = llm.generate("abc", GREEDY, use_tqdm=False)[0]
    stop = full.text[2:4]
    assert len(stop) == 2, "the tiny model says something"
    stopped = llm.generate("abc", SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, stop=[stop]), False)[
        0
    ]
    assert stopped.text == full.text[: full.text.index(stop)]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
    assert_idle(llm)


def test_a_paused_engine_says_so_instead_of_waiting_for_ever(llm: LLM) -> None:
    llm.engine.core_client.call("pause")
    with pytest.raises(RuntimeError, match="the engine is paused"):
        llm.generate("a", GREEDY, use_tqdm=False)
    llm.engine.core_client.call("resume")
    assert_idle(llm)


def test_the_progress_bar_counts_prompts_and_tokens(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b"], GREEDY)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "24 tokens" in shown


def test_a_reset_of_running_requests_changes_no_token(llm: LLM) -> None:
    """CASES 25."""
    engine, client = llm.engine, llm.engine.core_client
    prompts = {"A": [5] * 9, "B": [6] * 7}
    tokens: dict[str, list[int]] = {"A": [], "B": []}
    for req_id, prompt in prompts.items():
        engine.add_request(req_id, prompt, GREEDY)
    for step in range(1000):
        if not engine.has_unfinished_requests():
            break
        if step == 3:
            assert client.call("reset_prefix_cache") is False
            assert client.call("reset_prefix_cache", True) is True
        for output in engine.step():
            tokens[output.request_id] += output.token_ids
    assert tokens == {req_id: solo(llm, prompt, GREEDY) for req_id, prompt in prompts.items()}


def test_settings_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="max_num_sqs"):
        LLM("tiny", max_num_sqs=3)
    with pytest.raises(ConfigError, match="mp executor is not available yet"):
        LLM("tiny", tensor_parallel_size=2)

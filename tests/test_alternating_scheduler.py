"""Two alternating sets of requests: each in its turn, none lost, the same tokens, and nothing of the batch kept."""

import pytest
from helpers.tiny_engine import Engine, solo

from batchscope import LLM, SamplingParams
from engine.config import EngineConfig

QUALNAME = "engine.alternating_scheduler.AlternatingScheduler"


def engine(**flags) -> Engine:
    return Engine(scheduler_cls=QUALNAME, **{"max_num_seqs": 8, "max_num_batched_tokens": 64, **flags})


def prompt(number: int) -> list[int]:
    return [number * 7 + i for i in range(5 + number)]


def scheduled(each: Engine) -> list[set[str]]:
    return [set(each.facts("schedule", i)["num_scheduled_tokens"]) for i in range(len(each.passes))]


def test_two_disjoint_sets_run_in_turn_and_every_row_leaves_and_comes_back() -> None:
    alternating = engine()
    for number in range(6):
        alternating.add(f"r{number}", prompt(number), 20)
    alternating.run(7)
    admitted, *turns = scheduled(alternating)
    first, second = turns[:2]
    assert admitted == first | second
    assert not first & second
    assert len(first) == len(second) == 3
    assert turns == [first, second] * 3
    for pass_id in range(2, 7):
        left = alternating.facts("remove_unscheduled", pass_id)["unscheduled_req_ids"]
        assert set(left) == turns[pass_id - 2], "all that ran in the pass before"


def test_who_sits_out_is_told_why() -> None:
    alternating = engine()
    for number in range(3):
        alternating.add(f"r{number}", prompt(number), 20)
    alternating.run(3)
    why = alternating.facts("schedule", 2)["why"]
    assert [why["r0"], why["r2"]] == [["scheduled", {"num_new_tokens": 1}]] * 2
    assert why["r1"] == ["not_its_turn", {"others": 2, "set": 1}]


@pytest.mark.parametrize("blocks", [200, 14])
def test_the_tokens_are_those_that_each_request_gets_alone_also_under_preemption(blocks: int) -> None:
    alternating = engine(num_gpu_blocks_override=blocks, max_model_len=32)
    for number in range(6):
        alternating.add(f"r{number}", prompt(number), 6 + number)
    alternating.run(200)
    assert alternating.tokens == {(f"r{n}", 0): solo(prompt(n), 6 + n) for n in range(6)}
    preempted = [alternating.facts("schedule", i)["preempted_req_ids"] for i in range(len(alternating.passes))]
    assert any(preempted) == (blocks == 14)


def test_a_set_without_requests_has_no_turn() -> None:
    alternating = engine()
    alternating.add("only", prompt(1), 5)
    alternating.run(5)
    assert scheduled(alternating) == [{"only"}] * 5


def test_an_llm_takes_it_by_keyword() -> None:
    llm = LLM("tiny", scheduler_cls=QUALNAME, max_num_seqs=4)
    try:
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        outputs = llm.generate(["one", "two", "three"], params, use_tqdm=False)
        assert [len(output.token_ids) for output in outputs] == [8, 8, 8]
        assert type(llm.engine.core_client.core.scheduler).__name__ == "AlternatingScheduler"
    finally:
        llm.shutdown()


def test_serve_takes_it_by_flag() -> None:
    from batchscope.cli import make_parser
    from batchscope.commands.serve import engine_config

    args = make_parser(["serve"]).parse_args(["serve", "--model", "tiny", "--scheduler-cls", QUALNAME])
    config = engine_config(args)
    assert isinstance(config, EngineConfig)
    assert config.scheduler_config.scheduler_cls == QUALNAME

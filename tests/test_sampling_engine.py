"""Sampling parameters through the real engine on the tiny model."""

import pytest
from helpers.invariants import check_scheduler
from helpers.threads import one_thread

from batchscope import LLM, SamplingParams
from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig
from engine.inproc_client import InprocClient

FLAGS = {"dtype": "float32", "max_num_seqs": 3, "max_num_batched_tokens": 16, "block_size": 4, "max_model_len": 64,
         "num_gpu_blocks_override": 24, "check": True, "logits_processors": ["helpers.own_processor.OnlyMultiplesOf"],
         }  # fmt: skip


@pytest.fixture(scope="module")
def llm():
    with one_thread():
        engine = LLM("tiny", **FLAGS)
        yield engine
        engine.shutdown()


def generate(llm, prompts, **params):
    answers = llm.generate(prompts, SamplingParams.make(**params), use_tqdm=False)
    check_scheduler(llm.engine.core_client.core.scheduler)
    assert llm.engine.output_processor._states == {}
    return answers


def test_n_answers_have_seeds_of_their_own_and_equal_n_requests(llm):
    """More answers than rows; each is what a request with its seed gets alone."""
    answers = generate(llm, [[1, 2, 3], [4, 5]], n=4, seed=10, max_tokens=6, ignore_eos=True)
    assert [(each.request_id, each.index) for each in answers[:4]] == [(answers[0].request_id, i) for i in range(4)]
    assert len({tuple(each.token_ids) for each in answers[:4]}) == 4
    for i, answer in enumerate(answers):
        prompt = [[1, 2, 3], [4, 5]][i // 4]
        (alone,) = generate(llm, prompt, seed=10 + i % 4, max_tokens=6, ignore_eos=True)
        assert (answer.token_ids, answer.text) == (alone.token_ids, alone.text)


def test_n_answers_come_on_one_stream_which_ends_with_the_last_and_are_aborted_together():
    with one_thread():
        engine = AsyncLLM(EngineConfig.make(model="tiny", **FLAGS), make_client=InprocClient)
    try:
        params = SamplingParams(n=3, seed=1, max_tokens=5, ignore_eos=True, logprobs=0)
        outputs = list(engine.generate([1, 2], params, request_id="many"))
        assert {output.request_id for output in outputs} == {"many"}
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
        for index in range(3):
            mine = [output for output in outputs if output.index == index]
            assert sum(len(output.token_ids) for output in mine) == 5
            assert [output.finish_reason for output in mine][-1] == "length"
            assert all(len(output.logprobs) == len(output.token_ids) for output in mine)
        engine.call("pause")
        stream = engine.generate([1, 2], params, request_id="many")
        with pytest.raises(ValueError, match="'1_many' is in use by a live request"):
            engine.generate([1], SamplingParams(), request_id="1_many")
        stream.cancel()
        assert [(each.index, each.finish_reason, each.finished) for each in stream] == [
            (0, "abort", False), (1, "abort", False), (2, "abort", True),
        ]  # fmt: skip
        assert engine.call("stats")["waiting"] == 0
    finally:
        engine.shutdown()


@pytest.mark.parametrize("preempt", [False, True])
@pytest.mark.parametrize("stop_token_ids", [[], [9, 11]])
def test_min_tokens_holds_the_end_back_however_much_it_is_wanted(llm, preempt, stop_token_ids):
    """CASES 17: min_tokens 4 and a large bias towards the end: 5 tokens, reason stop."""
    ends = [*stop_token_ids, llm.tokenizer.eos_token_id]
    params = SamplingParams.make(
        temperature=0, min_tokens=4, max_tokens=20, stop_token_ids=stop_token_ids, logit_bias=dict.fromkeys(ends, 100.0)
    )
    engine = llm.engine
    engine.add_request("M", [1, 2, 3], params)
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
        if preempt and len(outputs) == 2:
            assert engine.core_client.call("reset_prefix_cache", True)
    tokens = [token_id for output in outputs for token_id in output.token_ids]
    assert len(tokens) == 5
    assert outputs[-1].finish_reason == "stop"
    assert set(tokens[:4]).isdisjoint(ends)
    assert tokens[4] in ends


def test_allowed_token_ids_and_bad_words_hold_for_every_token(llm):
    (only,) = generate(llm, [1, 2], allowed_token_ids=[65, 66, 67], max_tokens=20, temperature=2.0, seed=1)
    assert set(only.text) <= set("ABC")
    (some,) = generate(llm, [1, 2], allowed_token_ids=[65, 66], max_tokens=40, bad_words=["BB"], seed=1)
    assert "BA" in some.text
    assert "BB" not in some.text
    (none,) = generate(llm, "BBB", allowed_token_ids=[65, 66], max_tokens=40, bad_words=["B"], seed=1)
    assert set(none.text) == {"A"}


def test_a_preempted_batch_of_all_kinds_gives_each_request_what_it_gets_alone(llm):
    """Three requests of 13 blocks on 23: all are preempted in turn."""
    params = [
        SamplingParams(
            temperature=0.9, seed=1, frequency_penalty=0.7, logit_bias={65: 3.0}, max_tokens=30, ignore_eos=True
        ),
        SamplingParams(temperature=0.0, repetition_penalty=1.5, bad_words=["aa"], max_tokens=30, ignore_eos=True),
        SamplingParams(temperature=1.5, seed=2, presence_penalty=-1.0, top_p=0.8, min_tokens=29, max_tokens=30),
    ]
    prompts = [[i + 1] * 20 for i in range(3)]
    together = [each.token_ids for each in llm.generate(prompts, params, use_tqdm=False)]
    for prompt, each, tokens in zip(prompts, params, together, strict=True):
        llm.engine.core_client.call("reset_prefix_cache")
        assert llm.generate(prompt, each, use_tqdm=False)[0].token_ids == tokens


def test_a_users_own_processor_follows_its_request_and_checks_its_parameters(llm):
    params = [
        SamplingParams(seed=i, max_tokens=8, ignore_eos=True, extra_args={"multiples_of": i}) for i in range(1, 7)
    ]
    answers = llm.generate([[i] for i in range(6)], params, use_tqdm=False)
    for factor, answer in enumerate(answers, 1):
        assert all(token_id % factor == 0 for token_id in answer.token_ids)
    with pytest.raises(ValueError, match="multiples_of must be at least 1"):
        generate(llm, [1], extra_args={"multiples_of": 0})


@pytest.mark.parametrize("named", ["no.such.Class", "helpers.own_processor.Nothing", "engine.config.EngineConfig"])
def test_a_class_that_is_no_logits_processor_is_refused_at_the_start(named):
    with pytest.raises(ConfigError, match="logits_processors"):
        LLM("tiny", **FLAGS | {"logits_processors": [named]})


@pytest.mark.parametrize("temperature", [1e-45, 1e-9, 1e-5, 1e-4])
def test_very_small_temperatures_are_greedy_in_effect(llm, temperature):
    """CASES 19."""
    greedy, small = ({"max_tokens": 12, "ignore_eos": True, "temperature": t} for t in (0, temperature))
    assert generate(llm, [5, 6], **small)[0].token_ids == generate(llm, [5, 6], **greedy)[0].token_ids


def test_top_k_off_in_all_spellings_is_the_same_and_1_is_greedy(llm):
    """CASES 19."""
    base = {"max_tokens": 12, "ignore_eos": True, "seed": 4}
    off = [generate(llm, [5, 6], top_k=k, **base)[0].token_ids for k in (0, -1, 320, 10_000)]
    assert all(each == off[0] for each in off)
    greedy = generate(llm, [5, 6], temperature=0, max_tokens=12, ignore_eos=True)[0].token_ids
    assert generate(llm, [5, 6], top_k=1, temperature=3.0, **base)[0].token_ids == greedy

"""Log-probabilities are the model's own, before anything changes the logits, for outputs and for prompts."""

import numpy as np
import pytest
import torch
from helpers.passes import Driver, Pass, new
from helpers.threads import one_thread

from batchscope import LLM, SamplingParams


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def llm():
    engine = LLM(
        "tiny", dtype="float32", max_num_seqs=3, max_num_batched_tokens=16, block_size=4, max_logprobs=-1,
        num_gpu_blocks_override=24, max_model_len=64, check=True,
    )  # fmt: skip
    yield engine
    engine.shutdown()


def generate(llm, prompt, **params):
    return llm.generate(prompt, SamplingParams(ignore_eos=True, **params), use_tqdm=False)


def reference(tokens):
    """float32 log_softmax after each of the tokens, [T, V]: the model over all of them at once, in another engine."""
    driver = Driver(max_num_batched_tokens=128)
    driver.worker.execute_model(Pass().new(new("R", tokens, list(range(1, 40))), len(tokens)).output)
    logits = driver.worker.model.compute_logits(driver.runner.execute_model_state.hidden_states)
    return logits.log_softmax(-1).detach()


PROMPT = np.random.default_rng(5).integers(0, 256, 37).tolist()


def assert_positions(positions, tokens, expected, count):
    """Each position holds its token, with its rank, and the `count` likeliest."""
    assert len(positions) == len(tokens)
    for position, token_id, logprobs in zip(positions, tokens, expected, strict=True):
        ids = list(position)
        assert ids[0] == token_id
        assert position[token_id].rank == int((logprobs >= logprobs[token_id]).sum())
        top = logprobs.topk(count).indices.tolist()
        assert set(ids) == {token_id, *top}
        assert [each.rank for each in (position[i] for i in top)] == list(range(1, count + 1))
        values = torch.tensor([position[i].logprob for i in ids])
        torch.testing.assert_close(values, logprobs[ids], atol=1e-5, rtol=0)


def test_they_equal_a_float32_log_softmax_of_the_raw_logits(llm):
    params = {
        "temperature": 0.7,
        "top_k": 40,
        "seed": 1,
        "logprobs": 3,
        "logit_bias": {7: 5.0},
        "frequency_penalty": 1.0,
    }
    (answer,) = generate(llm, PROMPT, max_tokens=10, **params)
    expected = reference(PROMPT + answer.token_ids)[len(PROMPT) - 1 : -1]
    assert_positions(answer.logprobs, answer.token_ids, expected, 3)
    total = sum(float(row[token_id]) for row, token_id in zip(expected, answer.token_ids, strict=True))
    assert answer.cumulative_logprob == pytest.approx(total, abs=1e-4)


def test_prompt_logprobs_across_chunks_and_a_cached_prefix_equal_the_reference(llm):
    """37 tokens in chunks of 16, whose blocks are in the prefix cache already."""
    generate(llm, PROMPT, max_tokens=1)
    (answer,) = generate(llm, PROMPT, max_tokens=2, temperature=0.0, prompt_logprobs=2)
    assert answer.num_cached_tokens == 0
    assert answer.prompt_logprobs[0] is None
    assert_positions(answer.prompt_logprobs[1:], PROMPT[1:], reference(PROMPT)[:-1], 2)
    assert answer.logprobs is None


@pytest.mark.parametrize("chunks", [[37], [1, 36], [20, 17], [36, 1], [5] * 7 + [2]])
def test_prompt_logprobs_are_the_same_whatever_the_chunks_and_given_once(chunks):
    driver = Driver()
    params = SamplingParams(temperature=0.0, prompt_logprobs=1, ignore_eos=True)
    done = 0
    for i, chunk in enumerate(chunks):
        a_pass = Pass()
        if i:
            a_pass.cached("P", done, tokens=chunk)
        else:
            a_pass.new(new("P", PROMPT, list(range(1, 12)), params=params), chunk)
        driver.run(a_pass)
        done += chunk
        assert set(driver.output.prompt_logprobs_dict) == ({"P"} if done == 37 else set())
    lists = driver.output.prompt_logprobs_dict["P"]
    expected = reference(PROMPT)
    assert [ids[0] for ids in lists.logprob_token_ids] == PROMPT[1:]
    chosen = torch.tensor([values[0] for values in lists.logprobs])
    torch.testing.assert_close(chosen, expected[range(36), PROMPT[1:]], atol=1e-5, rtol=0)
    driver.run(Pass().cached("P", 37))
    assert driver.output.prompt_logprobs_dict == {}


def test_a_prompt_that_is_computed_again_after_a_preemption_gives_each_position_once():
    driver = Driver()
    params = SamplingParams(temperature=0.0, prompt_logprobs=0, ignore_eos=True)
    driver.run(Pass().new(new("P", PROMPT, list(range(1, 12)), params=params), 20))
    driver.run(Pass().new(new("Q", [1, 2], [20]), 2))
    driver.run(Pass().cached("P", 0, tokens=30, blocks=list(range(1, 12)), resumed=True))
    driver.run(Pass().cached("P", 30, tokens=7))
    lists = driver.output.prompt_logprobs_dict["P"]
    assert [ids[0] for ids in lists.logprob_token_ids] == PROMPT[1:]
    torch.testing.assert_close(
        torch.tensor(lists.logprobs).flatten(), reference(PROMPT)[range(36), PROMPT[1:]], atol=1e-5, rtol=0
    )
    driver.run(Pass().new(new("Q2", [1, 2], [21]), 2))
    driver.run(Pass().cached("P", 0, tokens=38, blocks=list(range(1, 12)), resumed=True))
    assert driver.output.prompt_logprobs_dict == {}


def test_rows_that_ask_for_none_or_fewer_get_no_more(llm):
    """Beside one another, each gets what it asked for; 0 is the sampled token alone, -1 the whole vocabulary."""
    wanted = [None, 0, 2, -1]
    params = [SamplingParams(temperature=0.0, max_tokens=3, logprobs=n, ignore_eos=True) for n in wanted]
    answers = llm.generate([[i + 1] * 5 for i in range(4)], params, use_tqdm=False)
    assert answers[0].logprobs is None
    vocab = llm.tokenizer.vocab_size
    assert [[len(at) for at in each.logprobs] for each in answers[1:]] == [[1] * 3, [2] * 3, [vocab] * 3]
    assert sum(np.exp(each.logprob) for each in answers[3].logprobs[0].values()) == pytest.approx(1)


def test_tokens_have_their_text_unless_nothing_is_to_be_detokenized(llm):
    (answer,) = generate(llm, [1, 2, 3], max_tokens=2, temperature=0.0, logprobs=1)
    token_id = answer.token_ids[0]
    assert answer.logprobs[0][token_id].decoded_token == llm.tokenizer.token_bytes(token_id).decode("utf-8", "replace")
    (answer,) = generate(llm, [1, 2, 3], max_tokens=2, temperature=0.0, logprobs=1, detokenize=False)
    assert answer.logprobs[0][token_id].decoded_token is None
    assert answer.text == ""
    assert len(answer.token_ids) == 2


def test_a_prompt_of_one_token_has_no_log_probability(llm):
    (answer,) = generate(llm, [4], max_tokens=1, prompt_logprobs=1)
    assert answer.prompt_logprobs == [None]


def test_more_than_max_logprobs_are_refused():
    few = LLM("tiny", dtype="float32", num_gpu_blocks_override=24, max_model_len=64, trace=False)
    try:
        for params in ({"logprobs": 21}, {"prompt_logprobs": -1}):
            with pytest.raises(ValueError, match=r"logprobs must be at most 20 \(max_logprobs\)"):
                generate(few, [1], **params)
    finally:
        few.shutdown()

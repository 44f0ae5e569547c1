"""How often each token is drawn, by chi-square against the exact probabilities of the tiny model. Seeds are fixed."""

import math

import numpy as np
import pytest
from helpers.threads import one_thread

from batchscope import LLM, SamplingParams

DRAWS = 1500
PROMPT = [5, 80, 80, 200]


@pytest.fixture(scope="module")
def llm():
    with one_thread():
        engine = LLM(
            "tiny", dtype="float32", max_num_seqs=64, max_num_batched_tokens=256, max_model_len=64, max_logprobs=-1,
            trace=False,
        )  # fmt: skip
        yield engine
        engine.shutdown()


def generate(llm, prompts, **params):
    return llm.generate(prompts, SamplingParams(ignore_eos=True, **params), use_tqdm=False)


def raw_logits(llm, prompts):
    """Log-probabilities after each prompt, [N, V]: logits, but for a constant."""
    answers = generate(llm, prompts, max_tokens=1, temperature=0.0, logprobs=-1)
    return np.array([[at[i].logprob for i in range(len(at))] for at in (each.logprobs[0] for each in answers)])


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def only(probabilities, kept):
    masked = np.where(kept, probabilities, 0)
    return masked / masked.sum()


def assert_drawn(counts, probabilities):
    """Chi-square at p = 0.001; ids of less than five expected draws are taken together."""
    assert (counts[probabilities == 0] == 0).all()
    expected = probabilities * counts.sum()
    rare = expected < 5
    observed, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    degrees = len(expected) - 1
    assert degrees > 1
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * math.sqrt(2 / (9 * degrees))) ** 3  # Wilson and Hilferty
    assert ((observed - expected) ** 2 / expected).sum() < limit


def draws(llm, **params):
    answers = generate(llm, PROMPT, n=DRAWS, seed=100, max_tokens=1, **params)
    return np.bincount([each.token_ids[0] for each in answers], minlength=llm.tokenizer.vocab_size)


def falling(probabilities):
    return np.argsort(-probabilities, kind="stable")


def of_top_k(probabilities, k):
    return only(probabilities, np.isin(np.arange(len(probabilities)), falling(probabilities)[:k]))


def of_top_p(probabilities, p):
    order = falling(probabilities)
    before = np.cumsum(probabilities[order]) - probabilities[order]
    return only(probabilities, np.isin(np.arange(len(probabilities)), order[before < p]))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"temperature": 1.0}, lambda logits: softmax(logits)),
        ({"temperature": 0.3}, lambda logits: softmax(logits / 0.3)),
        ({"temperature": 0.5, "top_k": 12}, lambda logits: of_top_k(softmax(logits / 0.5), 12)),
        ({"temperature": 0.5, "top_p": 0.6}, lambda logits: of_top_p(softmax(logits / 0.5), 0.6)),
        ({"temperature": 0.5, "top_k": 30, "top_p": 0.7},
         lambda logits: of_top_p(of_top_k(softmax(logits / 0.5), 30), 0.7)),
        ({"temperature": 0.5, "min_p": 0.2}, lambda logits: only(softmax(logits / 0.5), relative(logits / 0.5) >= 0.2)),
        ({"allowed_token_ids": [1, 5, 80, 99, 300]},
         lambda logits: only(softmax(logits), np.isin(np.arange(len(logits)), [1, 5, 80, 99, 300]))),
        ({"logit_bias": {7: 3.0, 80: 2.0}}, lambda logits: softmax(logits + 3.0 * one(7) + 2.0 * one(80))),
    ],
)  # fmt: skip
def test_draws_follow_the_exact_probabilities(llm, params, expected):
    (logits,) = raw_logits(llm, PROMPT)
    assert_drawn(draws(llm, **params), expected(logits))


def relative(logits):
    return np.exp(logits - logits.max())


def one(token_id):
    return np.eye(320)[token_id]


def test_draws_follow_the_exact_probabilities_under_penalties(llm):
    """The second token, given the first: six tokens may come, and what has come is worth 3 less."""
    allowed = [5, 80, 81, 120, 200, 250]
    penalties = {"presence_penalty": 1.0, "frequency_penalty": 2.0}
    answers = generate(
        llm, PROMPT, n=DRAWS, seed=7, max_tokens=2, temperature=1.5, allowed_token_ids=allowed, **penalties
    )
    pairs = np.array([each.token_ids for each in answers])
    logits = raw_logits(llm, [[*PROMPT, first] for first in allowed])
    num_checked = 0
    for first, after in zip(allowed, logits, strict=True):
        shifted = np.where(np.arange(320) == first, after - 3.0, after)
        expected = only(softmax(shifted / 1.5), np.isin(np.arange(320), allowed))
        counts = np.bincount(pairs[pairs[:, 0] == first, 1], minlength=320)
        if counts.sum() >= 100:
            assert_drawn(counts, expected)
            num_checked += 1
    assert num_checked >= 3


def test_draws_follow_the_exact_probabilities_under_a_repetition_penalty(llm):
    """A log-probability is a logit below zero, so take the real logit, whose sign decides."""
    logits = np.array(model_logits(llm))
    seen = np.isin(np.arange(320), PROMPT)
    penalized = np.where(seen, np.where(logits > 0, logits / 1.8, logits * 1.8), logits)
    assert_drawn(draws(llm, repetition_penalty=1.8, temperature=0.5), softmax(penalized / 0.5))


def model_logits(llm):
    """The logits after PROMPT themselves, seen by a logits processor's eyes."""
    runner = llm.engine.core_client.core.model_executor.driver_worker.model_runner
    seen = []

    def watch(logits, *rest):
        seen.append(logits[0].tolist())
        return sampler(logits, *rest)

    sampler, runner.sampler = runner.sampler, watch
    generate(llm, PROMPT, max_tokens=1, temperature=0.0)
    runner.sampler = sampler
    return seen[0]

"""What a request may ask of sampling is honoured or refused, each refusal with one clear sentence."""

import pytest
from helpers.fake_executor import fake_config
from helpers.fake_tokenizer import FakeTokenizer

from engine.processor import Processor
from engine.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"n": 2, "temperature": 0}, "n must be 1 at temperature 0.0: all answers would be one, got 2"),
        ({"logit_bias": {"5": 1e308}}, "at most 1000000"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty must be above 0, from 0.001 to 1000"),
        ({"temperature": -0.1}, "temperature must be from 0 to"),
        ({"temperature": float("nan")}, "temperature must be from 0 to"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1, got 0"),
        ({"top_p": 1.1}, "top_p must be above 0"),
        ({"top_k": -2}, r"top_k must be -1 or 0 \(off\) or at least 1, got -2"),
        ({"min_p": 1.5}, "min_p must be from 0 to 1"),
        ({"presence_penalty": 2.1}, "presence_penalty must be from -2 to 2, got 2.1"),
        ({"frequency_penalty": -3}, "frequency_penalty must be from -2 to 2"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty must be from -2 to 2"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty must be above 0"),
        ({"logprobs": -2}, "logprobs must be 0 or more, or -1 for the whole vocabulary, got -2"),
        ({"prompt_logprobs": -2}, "prompt_logprobs must be 0 or more"),
        ({"logit_bias": {"5": float("inf")}}, "logit_bias must be finite for token 5, at most 1000000, got inf"),
        ({"logit_bias": {"five": 1}}, "logit_bias must be given by token id, got 'five'"),
        ({"allowed_token_ids": []}, "allowed_token_ids must be left out or hold at least one id"),
        ({"bad_words": ["x", " "]}, "bad_words must be words that are not empty"),
        ({"stop": ["a", ""]}, "stop must be strings that are not empty"),
        ({"stop": "a", "detokenize": False}, "stop must be empty without detokenize"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_tokens": 3, "min_tokens": 4}, r"min_tokens must be at most max_tokens \(3\), got 4"),
        ({"min_tokens": -1}, "min_tokens must be 0 or more"),
        ({"best_of": 3}, "unknown sampling parameter best_of"),
        ({"logprobs": "many"}, "Expected `int"),
    ],
)
def test_a_value_out_of_range_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        SamplingParams.make(**values)


def test_token_ids_may_come_as_text_as_in_json():
    assert SamplingParams.make(logit_bias={"5": 1, 7: -2.5}).logit_bias == {5: 1.0, 7: -2.5}
    assert SamplingParams.make(top_k=-1, logprobs=-1, n=3, presence_penalty=-2).n == 3


class WordTokenizer(FakeTokenizer):
    """Some words are one token, others another one after a space; the rest is bytes."""

    words = {"cat": 130, " cat": 131, "far": 132, "?": 133}

    def encode(self, text, add_special_tokens=True):
        return [self.words[text]] if text in self.words else [] if "\u2603" in text else list(text.encode())


def processor(tokenizer=None):
    config = fake_config()
    config.cache_config.num_gpu_blocks = 64
    return Processor(config, tokenizer or WordTokenizer())


def test_a_bad_word_is_forbidden_at_the_beginning_and_after_a_space():
    """ "far" after a space is the space and then "far": one sequence forbids both."""
    made = processor().process("A", "x", SamplingParams.make(bad_words=["cat", " far", "no"]))
    assert made.sampling_params.bad_words_token_ids == [[130], [131], [132], [110, 111]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"logit_bias": {256: 1.0}}, "logit_bias: 256 is not a token id: they go from 0 to 255"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias: -1 is not a token id"),
        ({"allowed_token_ids": [3, 999]}, "allowed_token_ids: 999 is not a token id"),
        ({"bad_words": ["\u2603"]}, "bad_words: '\u2603' has no tokens in this model's vocabulary"),
        ({"logprobs": 21}, r"logprobs must be at most 20 \(max_logprobs\), got 21"),
        ({"prompt_logprobs": -1}, r"prompt_logprobs must be at most 20 \(max_logprobs\), got -1"),
    ],
)
def test_what_this_model_cannot_do_is_refused_at_the_door(values, message):
    with pytest.raises(ValueError, match=message):
        processor().process("A", "x", SamplingParams.make(**values))

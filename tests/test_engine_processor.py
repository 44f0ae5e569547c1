"""What users ask for is checked at the door, with one clear sentence for what can't be taken."""

from typing import Any

import pytest
from helpers.fake_executor import fake_config
from helpers.fake_tokenizer import FakeTokenizer

from engine.processor import Processor
from engine.sampling_params import SamplingParams


def processor(max_model_len: int = 32, num_gpu_blocks: int = 64) -> Processor:
    config = fake_config(max_model_len=max_model_len)
    config.cache_config.num_gpu_blocks = num_gpu_blocks
    return Processor(config, FakeTokenizer())


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        (None, {}, "the prompt must be a string or a list of token ids"),
        ([1, "2"], {}, "the prompt must be a string or a list of token ids"),
        ([True], {}, "the prompt must be a string or a list of token ids"),
        ("", {}, "the prompt is empty"),
        ([], {}, "the prompt is empty"),
        ([-1], {}, "-1 is not a token id: they go from 0 to 255"),
        ([256], {}, "256 is not a token id: they go from 0 to 255"),
        ("x", {"stop_token_ids": [256]}, "stop_token_ids: 256 is not a token id"),
        ("x" * 9000, {}, "the prompt has 9000 characters, too many for max_model_len 32"),
        ("x", {"stop": ["a"] * 65}, "stop must be at most 64 strings"),
        ("x", {"stop": ["a" * 1025]}, "stop must be strings of at most 1024 characters"),
        ("x", {"allowed_token_ids": [65], "stop_token_ids": [65], "min_tokens": 1}, "leave none of them"),
        ("x" * 32, {}, "the prompt has 32 tokens, and max_model_len is 32"),
    ],
)
def test_a_bad_request_is_refused(prompt: Any, params: dict[str, Any], message: str) -> None:
    """CASES 43."""
    with pytest.raises(ValueError, match=message):
        processor().process("A", prompt, SamplingParams.make(**params))


@pytest.mark.parametrize("priority", [3, 2**70, 1.5, "high"])
def test_a_priority_that_cannot_be_honoured_is_refused(priority: Any) -> None:
    with pytest.raises(ValueError, match="priority"):
        processor().process("A", "x", SamplingParams.make(), priority=priority)


def test_a_prompt_one_shorter_than_the_model_length_gets_one_token() -> None:
    request = processor().process("A", "x" * 31, SamplingParams.make(max_tokens=10, min_tokens=5))
    assert request.sampling_params.max_tokens == 1
    assert request.sampling_params.min_tokens == 1


def test_max_tokens_is_cut_to_what_fits() -> None:
    """CASES 22: 3 usable blocks of 4; a 4-token prompt can be followed by 9 tokens, whose last needs no slot."""
    small = processor(num_gpu_blocks=4)
    assert small.process("A", "x" * 4, SamplingParams.make(max_tokens=None)).sampling_params.max_tokens == 9
    assert small.process("A", "x" * 4, SamplingParams.make(max_tokens=9)).sampling_params.max_tokens == 9
    for prompt, max_tokens in (("x" * 13, 1), ("x" * 8, 16), ("x" * 4, 10)):
        with pytest.raises(ValueError, match="blocks of 4"):
            small.process("A", prompt, SamplingParams.make(max_tokens=max_tokens))
    assert processor().process("A", "x" * 4, SamplingParams.make(max_tokens=None)).sampling_params.max_tokens == 28


def test_the_end_tokens_of_the_model_are_filled_in() -> None:
    tokenizer = FakeTokenizer()
    tokenizer.eos_token_ids = [0, 7]
    config = fake_config()
    config.cache_config.num_gpu_blocks = 64
    params = SamplingParams.make(stop_token_ids=[9])
    filled = Processor(config, tokenizer).process("A", "x", params).sampling_params
    assert (filled.eos_token_id, filled.stop_token_ids) == (0, [9, 7])
    ignoring = SamplingParams.make(ignore_eos=True)
    assert Processor(config, tokenizer).process("A", "x", ignoring).sampling_params.stop_token_ids == []
    assert params.stop_token_ids == [9], "the user's own parameters stay as they are"

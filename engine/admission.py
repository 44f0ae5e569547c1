"""Whether a request can ever run to its end in this engine. vLLM lets one that can't wait for ever; we refuse it."""

from engine.config import EngineConfig

MAX_CHARS_PER_TOKEN = 256  # more than the longest token of any vocabulary stands for


def check_length(text: str, config: EngineConfig) -> None:
    """Raise ValueError for a text that no tokenizer could make short enough, so that none has to try."""
    max_model_len = config.model_config.max_model_len
    assert max_model_len is not None
    if len(text) > max_model_len * MAX_CHARS_PER_TOKEN:
        raise ValueError(f"the prompt has {len(text)} characters, too many for max_model_len {max_model_len}")


def most_tokens(num_prompt_tokens: int, config: EngineConfig) -> int:
    """Return how many tokens a prompt can be followed by, given the model length and the block pool.

    The last token's keys and values are never stored, so P + M - 1 slots are enough for P + M tokens. Raises
    ValueError, saying what to change, where not even one token can follow.
    """
    max_model_len, block_size = config.model_config.max_model_len, config.cache_config.block_size
    num_gpu_blocks = config.cache_config.num_gpu_blocks
    assert max_model_len is not None
    assert num_gpu_blocks is not None
    if num_prompt_tokens >= max_model_len:
        raise ValueError(
            f"the prompt has {num_prompt_tokens} tokens, and max_model_len is {max_model_len}: "
            f"at most {max_model_len - 1} leave room for one to follow"
        )
    num_slots = (num_gpu_blocks - 1) * block_size
    if num_prompt_tokens > num_slots:
        raise ValueError(
            f"the prompt's {num_prompt_tokens} tokens need {-(-num_prompt_tokens // block_size)} blocks of "
            f"{block_size}, and the KV cache has {num_gpu_blocks - 1}: shorten it or give the cache more blocks"
        )
    return min(max_model_len - num_prompt_tokens, num_slots - num_prompt_tokens + 1)


def check_fits(num_prompt_tokens: int, max_tokens: int, config: EngineConfig) -> None:
    """Raise ValueError, saying what to change, for a request that could only stall."""
    most = most_tokens(num_prompt_tokens, config)
    if max_tokens > most:
        block_size = config.cache_config.block_size
        needed = -(-(num_prompt_tokens + max_tokens - 1) // block_size)
        raise ValueError(
            f"{num_prompt_tokens} prompt tokens and max_tokens {max_tokens} can need {needed} blocks of {block_size}, "
            f"and at most {most} tokens can follow this prompt: ask for no more or give the KV cache more blocks"
        )

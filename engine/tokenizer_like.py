"""What the engine needs of a tokenizer."""

from typing import Protocol


class TokenizerLike(Protocol):
    vocab_size: int
    eos_token_id: int | None
    eos_token_ids: list[int]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...

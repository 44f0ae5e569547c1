"""A tokenizer whose tokens are bytes, but for 0, which is special and ends a text."""


class FakeTokenizer:
    vocab_size = 256
    eos_token_id: int | None = 0
    eos_token_ids = [0]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == 0 else bytes([token_id])

    def is_special(self, token_id: int) -> bool:
        return token_id == 0

"""Turns one request's tokens into text as they come, never showing what may still be taken back."""

import codecs

from engine.sampling_params import SamplingParams
from engine.stop_strings import StopStrings
from engine.tokenizer_like import TokenizerLike


class IncrementalDetokenizer:
    """Text is held back while it is half a character or may be the beginning of a stop string.

    Without `detokenize` there is no text.
    """

    def __init__(self, tokenizer: TokenizerLike, prompt_token_ids: list[int], params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        self._detokenize = params.detokenize
        self._skip_special_tokens = params.skip_special_tokens
        self._keep_stop_token = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._stop_strings = StopStrings(params.stop, params.include_stop_str_in_output)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._prompt_half = _unfinished_character(tokenizer, prompt_token_ids)
        self._num_tokens = 0

    def update(self, new_token_ids: list[int], ended_by_stop_token: bool = False) -> tuple[str, str | None]:
        """Take the next tokens; return the text that can be shown and the stop string if one was completed.

        The token that ended a request by stop_token_ids or end-of-sequence is shown only with
        include_stop_str_in_output.
        """
        if not self._detokenize:
            return "", None
        self._num_tokens += len(new_token_ids)
        if ended_by_stop_token and not self._keep_stop_token:
            new_token_ids = new_token_ids[:-1]
        text = self._decode(b"".join(map(self._bytes_of, new_token_ids)))
        return self._stop_strings.push(text, may_stop=self._num_tokens > self._min_tokens)

    def flush(self) -> str:
        """Return the text still held back, at the end. Bytes that never became a character are not shown."""
        return self._stop_strings.flush()

    def _bytes_of(self, token_id: int) -> bytes:
        if self._skip_special_tokens and self._tokenizer.is_special(token_id):
            return b""
        return self._tokenizer.token_bytes(token_id)

    def _decode(self, data: bytes) -> str:
        if data and self._prompt_half:
            if _continues_character(data[0]):
                data = self._prompt_half + data
            self._prompt_half = b""
        return self._decoder.decode(data)


def _unfinished_character(tokenizer: TokenizerLike, token_ids: list[int]) -> bytes:
    """Return the first bytes of a UTF-8 character that the prompt leaves unfinished, or none."""
    tail = b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids[-4:])[-3:]
    for length in range(1, len(tail) + 1):
        lead = tail[-length]
        if not _continues_character(lead):
            needed = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 1
            return tail[-length:] if needed > length else b""
    return b""


def _continues_character(byte: int) -> bool:
    return 0x80 <= byte < 0xC0

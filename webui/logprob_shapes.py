"""Log-probabilities in the two shapes of the OpenAI API."""

from collections.abc import Callable, Sequence
from typing import Any

from engine.logprobs import Logprob, Position

LEAST = -9999.0  # stands for what JSON has no number for
TokenBytes = Callable[[int], bytes]


def finite(logprob: float) -> float:
    """Return what JSON can hold in the place of minus infinity and of no number at all."""
    return max(LEAST, logprob)  # NaN is never the greater


def completion_logprobs(
    positions: Sequence[Position | None], token_ids: Sequence[int], wanted: int, start: int = 0
) -> dict[str, Any]:
    """Return four parallel lists. A position of None, as the first of a prompt, has no logprob.

    `token_ids` are the tokens at the positions; `wanted` is how many likeliest to list, beside the token itself;
    `start` is where in the text the first begins.
    """
    tokens: list[str] = []
    offsets: list[int] = []
    for position, token_id in zip(positions, token_ids, strict=True):
        offsets.append(start)
        tokens.append((position[token_id].decoded_token or "") if position else "")
        start += len(tokens[-1])
    return {
        "tokens": tokens,
        "token_logprobs": [
            finite(position[token_id].logprob) if position else None
            for position, token_id in zip(positions, token_ids, strict=True)
        ],
        "top_logprobs": [_by_text(position, wanted) if position else None for position in positions],
        "text_offset": offsets,
    }


def chat_logprobs(
    positions: Sequence[Position], token_ids: Sequence[int], wanted: int, token_bytes: TokenBytes
) -> dict[str, Any]:
    """Return one entry a token, each with its exact bytes and `wanted` likeliest tokens."""
    content = [
        _entry(token_id, position[token_id], token_bytes)
        | {"top_logprobs": [_entry(i, at, token_bytes) for i, at in _likeliest(position, wanted)]}
        for position, token_id in zip(positions, token_ids, strict=True)
    ]
    return {"content": content, "refusal": None}


def _entry(token_id: int, at: Logprob, token_bytes: TokenBytes) -> dict[str, Any]:
    raw = token_bytes(token_id)
    return {"token": raw.decode("utf-8", "replace"), "logprob": finite(at.logprob), "bytes": list(raw)}


def _likeliest(position: Position, wanted: int) -> list[tuple[int, Logprob]]:
    """Return at most `wanted` tokens, the likeliest first; -1 is all."""
    ranked = sorted(position.items(), key=lambda item: item[1].rank)
    return ranked if wanted == -1 else [item for item in ranked if item[1].rank <= wanted]


def _by_text(position: Position, wanted: int) -> dict[str, float]:
    """Return the likeliest and the token itself by their texts; where two have one text, the likelier stays."""
    named: dict[str, float] = {}
    sampled = next(iter(position.items()))
    for _, at in [*_likeliest(position, wanted), sampled]:
        named.setdefault(at.decoded_token or "", finite(at.logprob))
    return named

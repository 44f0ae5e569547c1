"""Log-probabilities on their way from the runner to the user."""

from dataclasses import dataclass

from engine.messages import EngineCoreOutput
from engine.outputs import LogprobsLists, ModelRunnerOutput
from engine.tokenizer_like import TokenizerLike


@dataclass(slots=True, frozen=True)
class Logprob:
    """Of one token at one position. rank: 1 for the likeliest; decoded_token: its text, None without detokenize."""

    logprob: float
    rank: int
    decoded_token: str | None


# By token id; the token that is or came at the position is the first.
Position = dict[int, Logprob]


def add_logprobs(output: EngineCoreOutput, runner_output: ModelRunnerOutput, row: int) -> None:
    """Take what the runner calculated for a request into its output."""
    if runner_output.logprobs is not None and runner_output.logprobs.logprob_token_ids[row]:
        output.new_logprobs = runner_output.logprobs.slice_request(row)
    output.new_prompt_logprobs = runner_output.prompt_logprobs_dict.get(output.request_id)


def decode_logprobs(lists: LogprobsLists, tokenizer: TokenizerLike | None) -> list[Position]:
    """Return one map a position. Without a tokenizer the tokens have no text."""
    return [
        _position(ids, values, rank, tokenizer)
        for ids, values, rank in zip(lists.logprob_token_ids, lists.logprobs, lists.sampled_token_ranks, strict=True)
    ]


def _position(ids: list[int], values: list[float], rank: int, tokenizer: TokenizerLike | None) -> Position:
    position: Position = {}
    for i, (token_id, value) in enumerate(zip(ids, values, strict=True)):
        if token_id not in position:
            text = tokenizer.token_bytes(token_id).decode("utf-8", "replace") if tokenizer else None
            position[token_id] = Logprob(value, i or rank, text)
    return position

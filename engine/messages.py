"""What crosses between a client and the engine core."""

from typing import Any

import msgspec

from engine.outputs import LogprobsLists
from engine.sampling_params import SamplingParams


class EngineCoreRequest(msgspec.Struct):
    """A validated, tokenized request. request_id is unique among live requests.

    An id may come again once its request has ended; `submission` is the client's own number for this one and comes
    back with its outputs, so that late outputs of the former are not taken for the latter's.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    arrival_time: float  # seconds since the epoch
    priority: int = 0  # lower runs first under the priority policy
    cache_salt: str | None = None
    submission: int = 0


class EngineCoreOutput(msgspec.Struct, omit_defaults=True):
    """What one pass gave one request. finish_reason: None, "stop", "length", "abort" or "error"."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None  # the stop token id or string that ended it
    num_cached_tokens: int = 0
    error: str | None = None  # why, where finish_reason is "error"
    submission: int = 0
    new_logprobs: LogprobsLists | None = None  # parallel to new_token_ids
    new_prompt_logprobs: LogprobsLists | None = None  # once, with the first token


class EngineCoreOutputs(msgspec.Struct, omit_defaults=True):
    outputs: list[EngineCoreOutput] = []


class UtilityCall(msgspec.Struct):
    """A method of the engine core, called by name from a client; the result comes back under call_id."""

    call_id: int
    method: str
    args: list[Any]


class UtilityResult(msgspec.Struct):
    call_id: int
    result: Any = None
    error: str | None = None

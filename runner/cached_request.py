"""What the runner knows of a request for as long as it lives, in the batch or out of it."""

from dataclasses import dataclass, field

from engine.outputs import BlockIds, LogprobsLists, NewRequestData
from engine.sampling_params import SamplingParams


@dataclass(slots=True)
class CachedRequestState:
    """An entry of the runner's `requests`. Its row in the batch is rebuilt from here when it returns."""

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    block_ids: BlockIds
    num_computed_tokens: int
    seed: int  # the request's own, or one drawn for it
    output_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: LogprobsLists | None = None  # so far; None where none are wanted or all have been handed over

    @classmethod
    def from_new(cls, data: NewRequestData, seed: int) -> "CachedRequestState":
        wanted = data.sampling_params.prompt_logprobs is not None
        return cls(
            data.req_id, data.prompt_token_ids, data.sampling_params,
            tuple(list(ids) for ids in data.block_ids), data.num_computed_tokens, seed,
            prompt_logprobs=LogprobsLists([], [], []) if wanted else None,
        )  # fmt: skip

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

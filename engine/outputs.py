"""What crosses between the engine and the runner: a SchedulerOutput goes down, a ModelRunnerOutput or None comes up."""

import msgspec

from engine.sampling_params import SamplingParams

BlockIds = tuple[list[int], ...]  # one list a KV cache group; Batchscope's models have one group


class NewRequestData(msgspec.Struct):
    """A request that the runner has not seen before."""

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    block_ids: BlockIds
    num_computed_tokens: int  # prefix-cache hits


class CachedRequestData(msgspec.Struct):
    """Scheduled requests that the runner knows already: parallel lists, plus the set of resumed ids.

    new_block_ids[i] extends the request's block table, or replaces it where req_ids[i] is resumed; None means no new
    blocks.
    """

    req_ids: list[str]
    resumed_req_ids: set[str]
    new_block_ids: list[BlockIds | None]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]

    @classmethod
    def make_empty(cls) -> "CachedRequestData":
        return cls([], set(), [], [], [])


class SchedulerOutput(msgspec.Struct):
    """One pass as the scheduler decided it. num_scheduled_tokens keeps the order in which requests were scheduled."""

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[str, list[int]]
    finished_req_ids: set[str]  # ended since the last pass; told once
    preempted_req_ids: set[str]

    @classmethod
    def make_empty(cls) -> "SchedulerOutput":
        return cls([], CachedRequestData.make_empty(), {}, 0, {}, set(), set())


class GrammarOutput(msgspec.Struct):
    """Ids of the scheduled structured-output requests, in the scheduler's own order, and one mask row for each.

    grammar_bitmask is int32 [len(ids), ceil(vocab_size / 32)], bit 1 for an allowed token, as bytes in row order.
    """

    structured_output_request_ids: list[str]
    grammar_bitmask: bytes


class LogprobsLists(msgspec.Struct):
    """Log-probabilities at a number of positions: parallel lists.

    At each position the token that is or came there is first, then the likeliest in falling order (it may be among
    them). A rank is 1 for the likeliest. A position whose list is empty was not asked for.
    """

    logprob_token_ids: list[list[int]]
    logprobs: list[list[float]]
    sampled_token_ranks: list[int]

    def slice_request(self, row: int) -> "LogprobsLists":
        """Return one row's position."""
        return LogprobsLists([self.logprob_token_ids[row]], [self.logprobs[row]], [self.sampled_token_ranks[row]])


class ModelRunnerOutput(msgspec.Struct):
    """What one pass sampled. sampled_token_ids is parallel to req_ids; an empty list where the sample was discarded.

    logprobs: one position a row, None where no row asked; prompt_logprobs_dict: of requests whose prompt this pass
    completed, one position for each prompt token but the first.
    """

    req_ids: list[str]
    req_id_to_index: dict[str, int]
    sampled_token_ids: list[list[int]]
    logprobs: LogprobsLists | None = None
    prompt_logprobs_dict: dict[str, LogprobsLists] = {}


EMPTY_MODEL_RUNNER_OUTPUT = ModelRunnerOutput([], {}, [])

"""A request as the scheduler knows it."""

from enum import IntEnum

from engine.messages import EngineCoreRequest
from engine.structured_output.request import StructuredOutputRequest


class RequestStatus(IntEnum):
    WAITING = 0
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 1
    RUNNING = 2
    PREEMPTED = 3
    FINISHED_STOPPED = 4
    FINISHED_LENGTH_CAPPED = 5
    FINISHED_ABORTED = 6
    FINISHED_ERROR = 7

    @property
    def finish_reason(self) -> str | None:
        """What the client is told; None while the request lives."""
        return _FINISH_REASONS.get(self)


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_ERROR: "error",
}


class Request:
    """Known tokens, how many of them are computed, and where the request stands.

    Ordered as the priority policy runs requests: by priority, then arrival time, then id.
    """

    __slots__ = (
        "arrival_time",
        "block_hashes",
        "cache_salt",
        "max_tokens",
        "num_cached_blocks",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_output_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_slots",
        "num_tokens",
        "priority",
        "prompt_token_ids",
        "reads_prefix_cache",
        "request_id",
        "sampling_params",
        "status",
        "stop_reason",
        "structured_output_request",
        "submission",
        "token_ids",
        "wants_logprobs",
    )

    def __init__(self, new: EngineCoreRequest) -> None:
        assert new.sampling_params.max_tokens is not None, "the input processor fills in max_tokens"
        self.request_id = new.request_id
        self.submission = new.submission
        self.prompt_token_ids = new.prompt_token_ids
        self.sampling_params = new.sampling_params
        self.arrival_time = new.arrival_time
        self.priority = new.priority
        self.cache_salt = new.cache_salt
        self.max_tokens: int = new.sampling_params.max_tokens
        params = new.sampling_params
        self.wants_logprobs = params.logprobs is not None or params.prompt_logprobs is not None
        self.reads_prefix_cache = params.prompt_logprobs is None  # else every prompt token has to be computed

        self.status = RequestStatus.WAITING
        self.structured_output_request: StructuredOutputRequest | None = None
        if params.structured_outputs is not None:
            self.structured_output_request = StructuredOutputRequest(params.structured_outputs)
            self.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.stop_reason: int | None = None
        self.token_ids = list(new.prompt_token_ids)  # prompt, then output
        self.num_prompt_tokens = self.num_tokens = len(self.token_ids)
        self.num_output_tokens = 0
        self.num_computed_tokens = 0
        self.num_cached_tokens = -1  # prefix-cache hits when it first ran; -1 before that
        self.num_preemptions = 0

        # Kept by the KV cache manager.
        self.num_slots = 0  # slots in the blocks that it holds
        self.num_cached_blocks = 0  # its leading blocks that carry a hash
        self.block_hashes: list[bytes] = []

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    def append_output_token_ids(self, token_ids: list[int]) -> None:
        self.token_ids += token_ids
        self.num_tokens += len(token_ids)
        self.num_output_tokens += len(token_ids)

    def __lt__(self, other: "Request") -> bool:
        return (self.priority, self.arrival_time, self.request_id) < (
            other.priority, other.arrival_time, other.request_id
        )  # fmt: skip

"""Makes what the engine core puts out into what users get."""

from dataclasses import dataclass

from engine.detokenizer import IncrementalDetokenizer
from engine.logprobs import Position, decode_logprobs
from engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from engine.parallel_sampling import ParentRequest
from engine.tokenizer_like import TokenizerLike


@dataclass(slots=True)
class RequestOutput:
    """What one answer to a request got since its last output. `token_ids` are new, and so is `text_delta`.

    index: which of the request's n answers this is; finish_reason: "stop", "length", "abort" or "error", None while
    this answer goes on; stop_reason: the stop string or token id that ended it; error: why, where the reason is
    "error". finished: whether all n answers have ended. logprobs: one map for each of token_ids, None where they were
    not asked for; prompt_logprobs: None for the first prompt token and one map for each of the others, given once.
    """

    request_id: str
    text_delta: str
    token_ids: list[int]
    finished: bool
    finish_reason: str | None
    stop_reason: int | str | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int = 0
    error: str | None = None
    index: int = 0
    logprobs: list[Position] | None = None
    prompt_logprobs: list[Position | None] | None = None


class RequestState:
    """One live answer on the client's side."""

    def __init__(self, parent: ParentRequest, index: int, tokenizer: TokenizerLike) -> None:
        request = parent.children[index]
        self.parent = parent
        self.engine_id = request.request_id
        self.num_output_tokens = 0
        self._index = index
        self._num_prompt_tokens = len(request.prompt_token_ids)
        params = request.sampling_params  # a grammar may end an answer too, with a token that belongs to it
        self._stop_tokens = [[token_id] for token_id in {params.eos_token_id, *params.stop_token_ids}]
        self._decodes_with = tokenizer if request.sampling_params.detokenize else None
        self._detokenizer = IncrementalDetokenizer(tokenizer, request.prompt_token_ids, request.sampling_params)

    def take(self, core: EngineCoreOutput) -> RequestOutput:
        """Return the user's side of an output. A completed stop string finishes the answer, whatever the core says."""
        finish_reason, stop_reason = core.finish_reason, core.stop_reason
        self.num_output_tokens += len(core.new_token_ids)
        ended_by_stop_token = finish_reason == "stop" and core.new_token_ids[-1:] in self._stop_tokens
        text, stop_string = self._detokenizer.update(core.new_token_ids, ended_by_stop_token)
        if stop_string is not None:
            finish_reason, stop_reason = "stop", stop_string
        elif finish_reason is not None:
            text += self._detokenizer.flush()
        output = self._output(text, core.new_token_ids, finish_reason, stop_reason)
        output.num_cached_tokens, output.error = core.num_cached_tokens, core.error
        if core.new_logprobs is not None:
            output.logprobs = decode_logprobs(core.new_logprobs, self._decodes_with)
        if core.new_prompt_logprobs is not None:
            output.prompt_logprobs = [None, *decode_logprobs(core.new_prompt_logprobs, self._decodes_with)]
        return output

    def aborted(self) -> RequestOutput:
        """Return the last output of an answer that is aborted, with the text held back so far."""
        return self._output(self._detokenizer.flush(), [], "abort", None)

    def _output(
        self, text: str, token_ids: list[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> RequestOutput:
        if finish_reason is not None:
            self.parent.open.discard(self.engine_id)
        return RequestOutput(
            self.parent.request_id, text, token_ids, not self.parent.open, finish_reason, stop_reason,
            self._num_prompt_tokens, self.num_output_tokens, index=self._index,
        )  # fmt: skip


class OutputProcessor:
    """Knows every live request of a client, by the user's ids and by the engine's. Not thread-safe."""

    def __init__(self, tokenizer: TokenizerLike) -> None:
        self._tokenizer = tokenizer
        self._parents: dict[str, ParentRequest] = {}
        self._states: dict[str, RequestState] = {}  # by the engine's id

    def is_live(self, request_id: str, submission: int | None = None) -> bool:
        """Whether a live request has this id, and this submission number where one is given."""
        parent = self._parents.get(request_id)
        return parent is not None and submission in (None, parent.submission)

    def __len__(self) -> int:
        return len(self._parents)

    def add_request(self, request: EngineCoreRequest) -> list[EngineCoreRequest]:
        """Expect outputs for a request; return what the engine core has to run for it.

        Raises ValueError when a live one has its id.
        """
        parent = ParentRequest(request)
        for request_id in {request.request_id, *parent.open}:
            if request_id in self._parents or request_id in self._states:
                raise ValueError(f"request id {request_id!r} is in use by a live request: choose another")
        self._parents[request.request_id] = parent
        for index, child in enumerate(parent.children):
            self._states[child.request_id] = RequestState(parent, index, self._tokenizer)
        return parent.children

    def abort_request(self, request_id: str) -> tuple[list[RequestOutput], list[str]]:
        """Forget a live request; return its last outputs and the ids for the core to abort; none if it isn't live."""
        parent = self._parents.pop(request_id, None)
        if parent is None:
            return [], []
        to_abort = [child.request_id for child in parent.children if child.request_id in parent.open]
        return [self._states.pop(engine_id).aborted() for engine_id in to_abort], to_abort

    def process_outputs(self, core_outputs: EngineCoreOutputs) -> tuple[list[RequestOutput], list[str]]:
        """Return the outputs of live requests, and the ids that the core must abort: a stop string ended them.

        Outputs for a request that has gone, or that had this id before, are dropped.
        """
        outputs: list[RequestOutput] = []
        to_abort: list[str] = []
        for core in core_outputs.outputs:
            state = self._states.get(core.request_id)
            if state is None or state.parent.submission != core.submission:
                continue
            output = state.take(core)
            outputs.append(output)
            if output.finish_reason is not None:
                del self._states[core.request_id]
                if core.finish_reason is None:
                    to_abort.append(core.request_id)
            if output.finished:
                del self._parents[output.request_id]
        return outputs, to_abort

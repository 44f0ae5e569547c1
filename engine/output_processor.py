"""Makes what the engine core puts out into what users get."""

from dataclasses import dataclass

from engine.detokenizer import IncrementalDetokenizer
from engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from engine.processor import TokenizerLike


@dataclass(slots=True)
class RequestOutput:
    """What one request got since its last output. `token_ids` are new, and so is `text_delta`.

    finish_reason: "stop", "length", "abort" or "error", None while it goes on; stop_reason: the stop string or token
    id that ended it; error: why, where the reason is "error".
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


class RequestState:
    """One live request on the client's side."""

    def __init__(self, request: EngineCoreRequest, tokenizer: TokenizerLike) -> None:
        self.request_id = request.request_id
        self.submission = request.submission
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_output_tokens = 0
        self._detokenizer = IncrementalDetokenizer(tokenizer, request.prompt_token_ids, request.sampling_params)

    def take(self, core: EngineCoreOutput) -> RequestOutput:
        """Return the user's side of an output. A completed stop string finishes the request, whatever the core says."""
        finish_reason, stop_reason = core.finish_reason, core.stop_reason
        self.num_output_tokens += len(core.new_token_ids)
        text, stop_string = self._detokenizer.update(core.new_token_ids, ended_by_stop_token=finish_reason == "stop")
        if stop_string is not None:
            finish_reason, stop_reason = "stop", stop_string
        elif finish_reason is not None:
            text += self._detokenizer.flush()
        return self._output(text, core.new_token_ids, finish_reason, stop_reason, core.num_cached_tokens, core.error)

    def aborted(self) -> RequestOutput:
        """Return the last output of a request that is aborted, with the text held back so far."""
        return self._output(self._detokenizer.flush(), [], "abort", None, 0, None)

    def _output(
        self,
        text: str,
        token_ids: list[int],
        finish_reason: str | None,
        stop_reason: int | str | None,
        num_cached_tokens: int,
        error: str | None,
    ) -> RequestOutput:
        return RequestOutput(
            self.request_id, text, token_ids, finish_reason is not None, finish_reason, stop_reason,
            self.num_prompt_tokens, self.num_output_tokens, num_cached_tokens, error,
        )  # fmt: skip


class OutputProcessor:
    """Knows every live request of a client. Not thread-safe."""

    def __init__(self, tokenizer: TokenizerLike) -> None:
        self._tokenizer = tokenizer
        self._states: dict[str, RequestState] = {}

    def is_live(self, request_id: str, submission: int | None = None) -> bool:
        """Whether a live request has this id, and this submission number where one is given."""
        state = self._states.get(request_id)
        return state is not None and submission in (None, state.submission)

    def __len__(self) -> int:
        return len(self._states)

    def add_request(self, request: EngineCoreRequest) -> None:
        """Expect outputs for a request. Raises ValueError when a live one has its id."""
        if request.request_id in self._states:
            raise ValueError(f"request id {request.request_id!r} is in use by a live request: choose another")
        self._states[request.request_id] = RequestState(request, self._tokenizer)

    def abort_request(self, request_id: str) -> RequestOutput | None:
        """Forget a live request; return its last output, or None when it isn't live."""
        state = self._states.pop(request_id, None)
        return state.aborted() if state else None

    def process_outputs(self, core_outputs: EngineCoreOutputs) -> tuple[list[RequestOutput], list[str]]:
        """Return the outputs of live requests, and the ids that the core must abort: a stop string ended them.

        Outputs for a request that has gone, or that had this id before, are dropped.
        """
        outputs: list[RequestOutput] = []
        to_abort: list[str] = []
        for core in core_outputs.outputs:
            state = self._states.get(core.request_id)
            if state is None or state.submission != core.submission:
                continue
            output = state.take(core)
            outputs.append(output)
            if output.finished:
                del self._states[core.request_id]
                if core.finish_reason is None:
                    to_abort.append(core.request_id)
        return outputs, to_abort

"""One POST to the API: its prompts as live requests, and the answer that they become, streamed or whole."""

import itertools
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence

from flask import Response, request

from engine.output_processor import RequestOutput
from engine.request_stream import RequestStream
from engine.sampling_params import SamplingParams
from webui.answer import Answer
from webui.disconnect import Disconnect
from webui.errors import ApiError, as_api_error, error_body
from webui.live import TICK, Prompt, outputs
from webui.request_fields import RequestFields
from webui.services import services
from webui.sse import DONE, PING, event, stream_response

PING_TICKS = round(0.5 / TICK)
GRAMMAR_TICKS = round(2 / TICK)  # a stream begins after so many, whether or not its grammar is ready
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; nginx's number for the same thing


class Call:
    """The live requests of one POST; `answer` takes their outputs."""

    def __init__(
        self, body: RequestFields, call_id: str, prompts: Sequence[Prompt], params: SamplingParams, answer: Answer
    ) -> None:
        """Submit every prompt, or none. Raises ApiError."""
        self.id = call_id
        self.ids = [call_id] if len(prompts) == 1 else [f"{call_id}-{i}" for i in range(len(prompts))]
        self.answer = answer
        self._n = params.n
        self._constrained = params.structured_outputs is not None
        self._live = services().live
        self._metrics = services().metrics
        self.streams: list[RequestStream] = []
        self._live.check_fits(len(prompts) * params.n)
        try:
            for request_id, prompt in zip(self.ids, prompts, strict=True):
                self.streams.append(self._live.submit(prompt, params, request_id, body.priority, body.cache_salt))
        except BaseException:
            self.release()
            raise

    def response(self, stream: bool | None) -> Response:
        """Return the answer, which is complete unless it streams. Aborts what runs when the response ends."""
        gone = Disconnect(request.environ)
        try:
            response = self._streamed(gone) if stream else self._whole(gone)
        except BaseException:
            self.release()
            raise
        response.call_on_close(self.release)
        response.headers["X-Request-Id"] = self.id
        return response

    def release(self) -> None:
        """Abort whatever still runs."""
        for request_id, stream in zip(self.ids, self.streams, strict=False):
            self._live.release(request_id, stream)

    def _outputs(self, gone: Disconnect) -> Iterator[tuple[int, RequestOutput] | None]:
        """Yield (which prompt, output) as they come and None after a quiet tick; end early where the client is gone."""
        for item in outputs(self.streams):
            if gone():
                return
            if item and isinstance(item[1].stop_reason, str):
                request_id = item[1].request_id
                self._metrics.stopped_by_string(request_id if self._n == 1 else f"{item[1].index}_{request_id}")
            yield item

    def _streamed(self, gone: Disconnect) -> Response:
        """Return the streaming answer. Raises ApiError where a grammar is refused before anything was sent."""
        items, begun = self._outputs(gone), []
        if self._constrained:
            for item in itertools.islice(items, GRAMMAR_TICKS):
                begun.append(item)
                if item and item[1].finish_reason == "error":
                    raise _failure(item[1])
                if item:
                    break
        return stream_response(self._events(itertools.chain(begun, items)))

    def _events(self, items: Iterable[tuple[int, RequestOutput] | None]) -> Iterator[bytes]:
        """Yield the events of a streamed answer, and comments while there are none."""
        quiet = 0
        try:
            for item in items:
                quiet = 0 if item else quiet + 1
                if item:
                    yield self.answer.chunk(*item)
                elif quiet % PING_TICKS == 0:
                    yield PING
                if item and item[1].finish_reason == "error":
                    raise _failure(item[1])
            yield self.answer.usage_chunk()
        except Exception as error:
            told = as_api_error(error)
            yield event(error_body(told.status, told.message, told.param))
        yield DONE

    def _whole(self, gone: Disconnect) -> Response:
        """Wait for every choice. Raises ApiError where one fails and EngineDeadError where the engine does."""
        for item in self._outputs(gone):
            if item:
                self.answer.take(*item)
                if item[1].finish_reason == "error":
                    raise _failure(item[1])
        if gone():
            return Response(status=CLIENT_CLOSED_REQUEST)
        return Response(self.answer.whole(), content_type="application/json")


def call_id(body: RequestFields) -> str:
    """Return the client's own id, from the body or the X-Request-Id header, else a random one. Raises ApiError 400."""
    for given, field in ((body.request_id, "request_id"), (request.headers.get("X-Request-Id"), "X-Request-Id")):
        if given is None:
            continue
        if not REQUEST_ID.fullmatch(given) or given == "__proto__":  # which no browser takes as the key of a map
            raise ApiError(400, f"{field} must be 1 to 128 visible ASCII characters, and not __proto__", field)
        return given
    return secrets.token_hex(8)


def _failure(output: RequestOutput) -> ApiError:
    """Return why a request failed: the client's doing where its grammar cannot be compiled or lets nothing else be."""
    reason = output.error or f"request {output.request_id} failed in the engine"
    uncompiled = reason.startswith("structured_outputs") and output.num_output_tokens == 0
    if uncompiled or "the grammar refused" in reason:
        return ApiError(400, reason, "structured_outputs")
    return ApiError(500, reason)

"""The requests that came in through the web and have not been given up or read to their end."""

import threading
import time
from collections.abc import Iterator, Sequence

from engine.async_llm import EngineDeadError, RequestOutput, RequestStream
from engine.sampling_params import SamplingParams
from webui.engine_like import EngineLike
from webui.errors import ApiError, refusal

Prompt = str | list[int]
TICK = 0.05  # seconds between looks at whether a client is still there
DRAIN_EVERY = 0.05  # seconds between looks at the streams that nobody reads


class LiveRequests:
    """Submits, knows by id and cancels. Used from every thread of the server."""

    def __init__(self, llm: EngineLike, max_queue: int) -> None:
        """`max_queue`: how many answers may wait beside those that have a row."""
        self._llm = llm
        self._max_queue = max_queue
        self._streams: dict[str, RequestStream] = {}
        self._widths: dict[str, int] = {}  # how many answers each has
        self._num_open = 0  # answers, of requests on their way to the engine as well
        self._changed = threading.Condition()
        self._closing = False

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream:
        """Hand a request to the engine. Raises ApiError with the reason where it is refused."""
        if self._closing:
            raise ApiError(503, "the server is shutting down")
        self._admit(params.n)
        try:
            stream = self._llm.generate(
                prompt, params, request_id=request_id, priority=priority, cache_salt=cache_salt
            )  # fmt: skip
        except BaseException as error:
            with self._changed:
                self._num_open -= params.n
            if isinstance(error, ValueError):
                raise refusal(error) from None
            raise
        with self._changed:
            self._streams[request_id] = stream
            self._widths[request_id] = params.n
        return stream

    def release(self, request_id: str, stream: RequestStream) -> None:
        """Forget a request, and abort it where it still runs."""
        with self._changed:
            if self._streams.get(request_id) is stream:  # its id may have come again
                del self._streams[request_id]
                self._num_open -= self._widths.pop(request_id)
            self._changed.notify_all()
        stream.cancel()

    def cancel(self, request_id: str) -> bool:
        """Abort a request, which then ends with reason "abort" for whoever reads it. Returns whether it was live."""
        return self._llm.abort(request_id)

    def ids(self) -> list[str]:
        """Return the ids of the requests that are still held."""
        with self._changed:
            return list(self._streams)

    def close(self, timeout: float) -> int:
        """Take nothing more, abort what runs, and wait for its readers. Returns how many requests were aborted."""
        self._closing = True
        ids = self.ids()
        for request_id in ids:
            self.cancel(request_id)
        with self._changed:
            self._changed.wait_for(lambda: not self._streams, timeout)
        return len(ids)

    def check_fits(self, count: int) -> None:
        """Raise ApiError 400 for a call whose answers could never wait all at once."""
        if count > self._most:
            raise ApiError(400, f"a call has at most {self._most} answers (rows and --max-queue), not {count}", "n")

    @property
    def _most(self) -> int:
        return self._llm.config.scheduler_config.max_num_seqs + self._max_queue

    def _admit(self, n: int) -> None:
        """Count n more answers. Raises ApiError 429 where too many would wait."""
        with self._changed:
            if self._num_open + n > self._most:
                raise ApiError(429, f"{self._max_queue} requests wait already (--max-queue): try again later")
            self._num_open += n


class Drain(threading.Thread):
    """Reads the streams of requests that the page follows through the trace, so that outputs don't pile up."""

    def __init__(self, live: LiveRequests) -> None:
        super().__init__(name="drain", daemon=True)
        self._live = live
        self._streams: dict[str, RequestStream] = {}
        self._added = threading.Condition()
        self._stopping = False

    def add(self, request_id: str, stream: RequestStream) -> None:
        with self._added:
            self._streams[request_id] = stream
            self._added.notify()

    def stop(self) -> None:
        """End the thread. What it has not read stays unread."""
        with self._added:
            self._stopping = True
            self._added.notify()

    def run(self) -> None:
        while not self._stopping:
            with self._added:
                self._added.wait_for(lambda: self._streams or self._stopping)
                streams = list(self._streams.items())
            for request_id, stream in streams:
                if _drained(stream):
                    del self._streams[request_id]
                    self._live.release(request_id, stream)
            time.sleep(DRAIN_EVERY)


def outputs(streams: Sequence[RequestStream], tick: float = TICK) -> Iterator[tuple[int, RequestOutput] | None]:
    """Yield (index of the stream, output) as they come until all have finished, and None after a quiet tick.

    Raises EngineDeadError where the engine has died.
    """
    live = dict(enumerate(streams))
    while live:
        quiet = True
        for index, stream in list(live.items()):
            output = stream.get(tick / len(live))
            while output is not None:
                quiet = False
                if output.finished:
                    del live[index]
                yield index, output
                output = None if index not in live else stream.get(0)
        if quiet:
            yield None


def _drained(stream: RequestStream) -> bool:
    """Read what is there; return whether nothing more will come."""
    try:
        while output := stream.get(0):
            if output.finished:
                return True
    except EngineDeadError:
        return True
    return False

"""One request's outputs, to be read in another thread than the engine's."""

import queue
from collections.abc import Callable, Iterator

from engine.output_processor import RequestOutput


class RequestStream:
    """Iterates over a request's outputs, the last of which is `finished`.

    Reading raises EngineDeadError when the engine dies. Unread outputs are kept: max_tokens bounds them.
    """

    def __init__(self, request_id: str, num_prompt_tokens: int, cancel: Callable[[], object]) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self._cancel = cancel
        self._outputs: queue.SimpleQueue[RequestOutput | Exception] = queue.SimpleQueue()
        self._over = False

    def put(self, output: RequestOutput | Exception) -> None:
        """For the engine: hand over the next output, or the error that ends the stream."""
        self._outputs.put(output)

    def get(self, timeout: float | None = None) -> RequestOutput | None:
        """Return the next output, or None when none comes within `timeout` seconds or the last one was read."""
        if self._over:
            return None
        try:
            output = self._outputs.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(output, Exception):
            self._over = True
            raise output
        self._over = output.finished
        return output

    def cancel(self) -> None:
        """Abort the request, unless it has ended. Its last output then has finish_reason "abort"."""
        self._cancel()

    def __iter__(self) -> Iterator[RequestOutput]:
        while (output := self.get()) is not None:
            yield output

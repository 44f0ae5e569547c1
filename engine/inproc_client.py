"""An engine core in this process: getting outputs runs a pass."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.core_client import EngineCoreClient, EngineDeadError
from engine.messages import EngineCoreOutputs, EngineCoreRequest


class InprocClient(EngineCoreClient):
    """One lock around the core: other threads' requests, aborts and calls take their turn between passes.

    So the gate holds the engine between passes alone, and `step_stop` is refused.
    """

    def __init__(self, config: EngineConfig, on_trace: Callable[[bytes], None] | None = None) -> None:
        """Start the engine. Raises ConfigError where the settings cannot work."""
        self.config = config
        self.core = EngineCore(config, on_trace)
        self._line = threading.Lock()  # whoever waits for the core has it, so that passes in a row let others in
        self._changed = threading.Condition()
        self._dead: str | None = None
        self.core.when_ready_again(self._wake)

    def add_request(self, request: EngineCoreRequest) -> None:
        with self._turn():
            self._check_alive()
            self.core.add_request(request)
            self._changed.notify_all()

    def abort_requests(self, request_ids: list[str]) -> None:
        with self._turn():
            if self._dead is None:
                self.core.abort_requests(request_ids)
                self._changed.notify_all()

    def get_outputs(self, timeout: float | None = 0.0) -> EngineCoreOutputs:
        """Run one pass, waiting up to `timeout` seconds for something to do."""
        with self._turn():
            self._changed.wait_for(lambda: self._dead is not None or self.core.ready, self._at_most(timeout))
            self._check_alive()
            try:
                outputs, _ = self.core.run_pass()
            except BaseException as error:  # a pass that broke off leaves batch and blocks half changed
                self._dead = f"the engine failed in a pass: {type(error).__name__}: {error}"
                if not isinstance(error, Exception):
                    raise
                raise EngineDeadError(self._dead) from error
            merged = [output for client in outputs.values() for output in client.outputs]
            return EngineCoreOutputs(merged)

    def call(self, method: str, *args: Any) -> Any:
        with self._turn():
            self._check_alive()
            result = self.core.utility(method, list(args))
            self._changed.notify_all()
            return result

    def set_trace_delay(self, seconds: float) -> None:
        """See EngineCoreClient."""

    def shutdown(self) -> None:
        with self._turn():
            if self._dead is None:
                self._dead = "the engine has been shut down"
                self.core.shutdown()
                self._changed.notify_all()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._line:
            self._changed.acquire()
        try:
            yield
        finally:
            self._changed.release()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _at_most(self, timeout: float | None) -> float | None:
        """Cut a timeout to when the core is ready by itself."""
        patience = self.core.patience
        return timeout if patience is None else min(patience, timeout if timeout is not None else patience)

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise EngineDeadError(self._dead)

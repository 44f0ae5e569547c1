"""An engine core in a child process, so that nothing the parent does can slow a pass."""

import contextlib
import itertools
import multiprocessing
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing import resource_tracker
from typing import Any

import msgspec
import zmq

from engine.config import ConfigError, EngineConfig
from engine.core_client import EngineCoreClient, EngineDeadError
from engine.core_process import INPUT, OUTPUT, run_engine_core
from engine.messages import EngineCoreOutputs, EngineCoreRequest, UtilityCall, UtilityResult
from engine.wire import FromCore, ToCore, make_socket

STARTUP_TIMEOUT_S = 900.0  # a first start converts the model and compiles kernels
GIVE_UP_POLL_S = 0.2  # how soon a start that nobody wants any more is given up
SHUTDOWN_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_MS = 5000
LAST_WORDS_MS = 200  # what a dead child sent may still be on its way
LONGEST_SOCKET_PATH = 100


class ProcessClient(EngineCoreClient):
    """Two sockets in a private folder; one thread reads what the core sends and notices when it dies."""

    def __init__(
        self,
        config: EngineConfig,
        on_trace: Callable[[bytes], None] | None = None,
        given_up: threading.Event | None = None,
    ) -> None:
        """Start the child and wait until it is ready, or until `given_up` is set.

        Raises ConfigError where the settings cannot work, and EngineDeadError, with the child's own words, where it
        could not start for another reason.
        """
        self.config = config
        config.trace_config.trace = config.trace_config.trace and on_trace is not None
        self._on_trace = on_trace or (lambda entry: None)
        self._context = zmq.Context()
        self._folder = _private_folder()
        self._clean_up = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._send_lock = threading.Lock()
        self._input = make_socket(self._context, zmq.PUSH, 0)
        self._input.bind(f"ipc://{self._folder}/{INPUT}")
        self._output = make_socket(self._context, zmq.PULL, 0)
        self._output.bind(f"ipc://{self._folder}/{OUTPUT}")
        self._outputs: queue.SimpleQueue[EngineCoreOutputs | None] = queue.SimpleQueue()
        self._calls: dict[int, Future[Any]] = {}
        self._call_ids = itertools.count()
        self._dead: str | None = None
        self._closing = False
        self._given_up = given_up or threading.Event()
        self._process = multiprocessing.get_context("spawn").Process(
            target=run_engine_core, args=(config, self._folder), name="engine core", daemon=True
        )
        with _ignored_interrupts():
            self._process.start()
        self._poller = zmq.Poller()
        self._poller.register(self._output, zmq.POLLIN)
        self._poller.register(self._process.sentinel, zmq.POLLIN)
        try:
            self._wait_until_ready()
        except BaseException:
            self._close()
            raise
        if self._input.poll(CONNECT_TIMEOUT_MS, zmq.POLLOUT):
            self._clean_up()  # both sockets are connected: nothing is left on the disk, however this ends
        self._reader = threading.Thread(target=self._read, name="engine core client", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process.pid is not None
        return self._process.pid

    def add_request(self, request: EngineCoreRequest) -> None:
        self._send(ToCore.ADD, request)

    def abort_requests(self, request_ids: list[str]) -> None:
        self._send(ToCore.ABORT, request_ids)

    def get_outputs(self, timeout: float | None = None) -> EngineCoreOutputs:
        """See EngineCoreClient."""
        try:
            outputs = self._outputs.get(timeout=timeout)
        except queue.Empty:
            return EngineCoreOutputs()
        if outputs is None:
            self._outputs.put(None)  # for whoever asks next
            raise EngineDeadError(self._dead)
        return outputs

    def call(self, method: str, *args: Any) -> Any:
        """See EngineCoreClient. Waits for the pass that is running."""
        future: Future[Any] = Future()
        call_id = next(self._call_ids)
        self._calls[call_id] = future
        try:
            self._send(ToCore.CALL, UtilityCall(call_id, method, list(args)))
        except EngineDeadError:
            self._calls.pop(call_id, None)
            raise
        return future.result()

    def set_trace_delay(self, seconds: float) -> None:
        """See EngineCoreClient."""
        self._send(ToCore.TRACE_DELAY, seconds)

    def shutdown(self) -> None:
        """End the child, after the pass that is running or else by force."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(EngineDeadError):
            self._send(ToCore.SHUTDOWN, None)
        self._process.join(SHUTDOWN_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
        self._reader.join()
        self._close()

    def _close(self) -> None:
        self._closing = True
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        with self._send_lock:
            self._dead = self._dead or "the engine has been shut down"
            self._context.destroy(linger=0)
        self._clean_up()

    def _send(self, kind: ToCore, message: Any) -> None:
        payload = msgspec.msgpack.encode(message)
        with self._send_lock:
            if self._dead is not None:
                raise EngineDeadError(self._dead)
            try:
                self._input.send_multipart([kind, payload], zmq.NOBLOCK)
            except zmq.Again:  # nobody at the other end
                raise EngineDeadError("the engine process does not take messages any more") from None

    # --- what the core sends ------------------------------------------------------------------------------------

    def _receive(self, timeout_s: float | None) -> list[bytes] | None:
        """Return the next message, or None when the child has died or nothing came in time."""
        ready = dict(self._poller.poll(None if timeout_s is None else int(timeout_s * 1000)))
        if self._output in ready or (ready and self._output.poll(LAST_WORDS_MS)):
            return self._output.recv_multipart()
        return None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + STARTUP_TIMEOUT_S
        while (message := self._receive(GIVE_UP_POLL_S)) is None:
            if self._given_up.is_set():
                raise EngineDeadError("the engine was ended before it had started")
            if not self._process.is_alive() or time.monotonic() > deadline:
                raise EngineDeadError(f"the engine could not start: {self._end_of_process()}")
        kind, payload = message
        if kind == FromCore.READY:
            self.config.cache_config.num_gpu_blocks = msgspec.msgpack.decode(payload, type=int)
        elif kind == FromCore.REFUSED:
            raise ConfigError(payload.decode())
        else:
            raise EngineDeadError(f"the engine could not start: {payload.decode()}")

    def _read(self) -> None:
        why = "the engine has been shut down"
        try:
            while (message := self._receive(None)) is not None:
                self._take(*message)
                if message[0] == FromCore.DEAD:
                    why = f"the engine failed: {message[1].decode()}"
            if not self._closing and why.startswith("the engine has been"):
                why = f"the engine process died: {self._end_of_process()}"
        except Exception as error:
            why = f"what the engine sent could not be taken: {type(error).__name__}: {error}"
        self._die(why)

    def _take(self, kind: bytes, payload: bytes, *traced: bytes) -> None:
        for entry in (payload, *traced) if kind == FromCore.TRACE else traced:
            self._on_trace(entry)
        if kind == FromCore.OUTPUTS:
            self._outputs.put(msgspec.msgpack.decode(payload, type=EngineCoreOutputs))
        elif kind == FromCore.RESULT:
            result = msgspec.msgpack.decode(payload, type=UtilityResult)
            future = self._calls.pop(result.call_id)
            if result.error is None:
                future.set_result(result.result)
            else:
                future.set_exception(ValueError(result.error))

    def _die(self, why: str) -> None:
        with self._send_lock:
            self._dead = self._dead or why
        for call_id in list(self._calls):
            if future := self._calls.pop(call_id, None):  # unless `call` has noticed meanwhile
                future.set_exception(EngineDeadError(self._dead))
        self._outputs.put(None)

    def _end_of_process(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        if code is None:
            return f"it did not answer within {STARTUP_TIMEOUT_S:.0f} seconds"
        if code < 0:
            with contextlib.suppress(ValueError):
                hint = " (is there enough memory?)" if -code == signal.SIGKILL else ""
                return f"killed by {signal.Signals(-code).name}{hint}"
        return f"exit code {code}; what it printed says more"


@contextlib.contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Let a child start without SIGINT: Ctrl-C in a terminal reaches it too, before it can ignore it itself."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
        return
    resource_tracker.ensure_running()  # which would unblock the signal when it starts
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _private_folder() -> str:
    folder = tempfile.mkdtemp(prefix="batchscope-")
    if len(os.path.join(folder, OUTPUT)) > LONGEST_SOCKET_PATH:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="batchscope-", dir="/tmp")
    return folder

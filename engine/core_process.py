"""The engine core in a process of its own: what runs in the child."""

import gc
import multiprocessing
import multiprocessing.connection
import os
import queue
import shutil
import signal
import threading
import traceback
from collections import deque
from typing import Any, NamedTuple

import msgspec
import zmq

from engine.config import ConfigError, EngineConfig
from engine.core import Abort, EngineCore
from engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, UtilityCall, UtilityResult
from engine.wire import FromCore, ToCore, make_socket

INPUT, OUTPUT = "input", "output"  # names of the two sockets in the shared folder
WAKE = "wake"  # an input that says nothing, but that something may have changed
POLL_MS = 100  # how soon the reader of inputs sees that it is to end
GC_THRESHOLD = 20_000  # new containers that set off a collection: more than passes that are held back have
LINGER_MS = 2000  # how long a dying core waits for its last words to be taken


class TraceDelay(NamedTuple):
    """How long the trace may hold quiet passes back from now on."""

    seconds: float


def run_engine_core(config: EngineConfig, folder: str) -> None:
    """Run until told to shut down, until a pass fails or until the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both: the parent decides
    _die_with_parent(folder)
    with zmq.Context() as context, make_socket(context, zmq.PUSH, LINGER_MS) as output:
        output.connect(f"ipc://{folder}/{OUTPUT}")
        core: EngineCoreProc | None = None
        try:
            core = EngineCoreProc(config, context, output, folder)
            gc.freeze()  # what a started engine is made of stays: no use to look through it
            gc.set_threshold(GC_THRESHOLD)
            core.run()
        except ConfigError as error:
            output.send_multipart([FromCore.REFUSED, str(error).encode()])
        except BaseException as error:
            traceback.print_exc()
            traced = core.take_traced() if core else []
            output.send_multipart([FromCore.DEAD, f"{type(error).__name__}: {error}".encode(), *traced])
        finally:
            if core is not None:
                core.close()  # its thread must be out of its socket before the context goes


class EngineCoreProc:
    """The busy loop. It blocks when there is nothing to do or the gate is closed."""

    def __init__(self, config: EngineConfig, context: zmq.Context, output: zmq.Socket, folder: str) -> None:
        self._output = output
        self._inputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._traced: list[bytes] = []  # log entries that go with the next message
        self.core = EngineCore(config, self._traced.append)
        self._trace = self.core.trace
        self.core.when_ready_again(lambda: self._inputs.put(WAKE))
        self.core.gate.hold = self._take_inputs_in_pass
        self._put_off: deque[Any] = deque()  # inputs that came while a pass was held and are for after it
        socket = make_socket(context, zmq.PULL, 0)
        socket.connect(f"ipc://{folder}/{INPUT}")
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read_inputs, args=(socket,), name="inputs", daemon=True)
        self._reader.start()

    def run(self) -> None:
        """Say that the engine is ready, then take inputs and run passes until told to shut down."""
        self._send(FromCore.READY, msgspec.msgpack.encode(self.core.config.cache_config.num_gpu_blocks))
        while self._take_inputs():
            outputs, _ = self.core.run_pass()
            for client_outputs in outputs.values():
                self._send(FromCore.OUTPUTS, msgspec.msgpack.encode(client_outputs))
            self._send_trace()
            if self._trace:
                self._trace.send_if_due()  # the outputs are on their way already
        self.core.shutdown()

    def take_traced(self) -> list[bytes]:
        """Return the log entries that have not been sent: the last words of a core that dies."""
        if self._trace:
            self._trace.flush()
        return self._traced

    def close(self) -> None:
        """End the thread that reads inputs, and its socket."""
        self._closing.set()
        self._reader.join()

    def _take_inputs(self) -> bool:
        """Handle all inputs there are, waiting for some while there is nothing to do. False: shut down."""
        while not self.core.ready or not self._inputs.empty() or self._put_off:
            self._flush_trace()
            try:
                message = self._put_off.popleft() if self._put_off else self._inputs.get(timeout=self.core.patience)
            except queue.Empty:
                continue  # a grammar has had its time
            if isinstance(message, Exception):
                raise message
            if message is None:
                return False
            self._handle(message)
        self._send_trace()  # of what came: the pass may be long
        return True

    def _take_inputs_in_pass(self) -> None:
        """Handle inputs while the gate holds the pass. Aborts wait in the core's own queue, where the pass finds them.

        A request whose id is in use in this pass comes after it, and so do aborts of that request. To shut down, the
        pass is let come to its end.
        """
        while self.core.gate.inside:
            self._flush_trace()
            message = self._inputs.get()
            match message:
                case Exception():
                    raise message
                case None:
                    self._put_off.append(None)
                    self.core.gate.release()
                case EngineCoreRequest() if message.request_id in self.core.scheduler.requests:
                    self._put_off.append(message)
                case Abort():
                    self._put_off_aborts(message)
                case _:
                    self._handle(message)

    def _put_off_aborts(self, abort: Abort) -> None:
        to_come = {request.request_id for request in self._put_off if isinstance(request, EngineCoreRequest)}
        if later := [request_id for request_id in abort.request_ids if request_id in to_come]:
            abort.request_ids = [request_id for request_id in abort.request_ids if request_id not in to_come]
            self._put_off.append(Abort(later))

    def _handle(self, message: Any) -> None:
        match message:
            case EngineCoreRequest():
                self._add(message)
            case Abort():
                message.handled = True
                self.core.abort_requests(message.request_ids)
            case TraceDelay() if self._trace:
                self._trace.delay_s = message.seconds
            case UtilityCall():
                self._send(FromCore.RESULT, msgspec.msgpack.encode(self._call(message)))

    def _add(self, request: EngineCoreRequest) -> None:
        try:
            self.core.add_request(request)
        except Exception as error:  # one bad request must not end the others
            refusal = EngineCoreOutput(
                request.request_id, [], finish_reason="error", error=str(error), submission=request.submission
            )
            self._send(FromCore.OUTPUTS, msgspec.msgpack.encode(EngineCoreOutputs([refusal])))

    def _call(self, call: UtilityCall) -> UtilityResult:
        try:
            return UtilityResult(call.call_id, self.core.utility(call.method, call.args))
        except Exception as error:
            return UtilityResult(call.call_id, error=str(error))

    def _send(self, kind: FromCore, payload: bytes) -> None:
        """Send a message and, before it in time, the log entries so far: each message wakes the parent up."""
        self._output.send_multipart([kind, payload, *self._traced])
        self._traced.clear()

    def _send_trace(self) -> None:
        if self._traced:
            self._send(FromCore.TRACE, self._traced.pop(0))

    def _flush_trace(self) -> None:
        """Send what the trace holds back as well."""
        if self._trace:
            self._trace.flush()
        self._send_trace()

    def _read_inputs(self, socket: zmq.Socket) -> None:
        """Aborts go into the core's own queue too, where a pass that is running finds them."""
        while not self._closing.is_set():
            if not socket.poll(POLL_MS):
                continue
            kind, payload = socket.recv_multipart()
            try:
                message: Any = _decode(ToCore(kind), payload)
            except Exception as error:  # never a deaf engine that seems alive
                message = error
            if isinstance(message, Abort):
                self.core.aborts_queue.put(message)
            self._inputs.put(message)
        socket.close()


def _decode(kind: ToCore, payload: bytes) -> EngineCoreRequest | Abort | UtilityCall | TraceDelay | None:
    match kind:
        case ToCore.ADD:
            return msgspec.msgpack.decode(payload, type=EngineCoreRequest)
        case ToCore.ABORT:
            return Abort(msgspec.msgpack.decode(payload, type=list[str]))
        case ToCore.CALL:
            return msgspec.msgpack.decode(payload, type=UtilityCall)
        case ToCore.TRACE_DELAY:
            return TraceDelay(msgspec.msgpack.decode(payload, type=float))
        case _:
            return None


def _die_with_parent(folder: str) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()

"""The engine for servers: requests from any thread, each with its own stream of outputs."""

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable
from typing import Any

from engine.config import EngineConfig
from engine.core_client import EngineCoreClient, EngineDeadError
from engine.messages import EngineCoreOutputs, EngineCoreRequest
from engine.model_source import resolve
from engine.output_processor import OutputProcessor, RequestOutput
from engine.process_client import ProcessClient
from engine.processor import Processor, Prompt
from engine.request_stream import RequestStream
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from tracer.log import Log

__all__ = ["AsyncLLM", "EngineDeadError", "RequestOutput", "RequestStream"]

MakeClient = Callable[[EngineConfig, Callable[[bytes], None]], EngineCoreClient]


class AsyncLLM:
    """Owns a client of the engine core, one thread that reads its outputs, and the engine's log.

    Every method may be called from any thread.
    """

    def __init__(self, config: EngineConfig, make_client: MakeClient = ProcessClient) -> None:
        """Fetch the model and start the engine, by default in a process of its own.

        Raises ConfigError where the model or the settings cannot work and EngineDeadError where the engine could not
        start, each with the reason.
        """
        config.model_config = resolve(config.model_config)
        config.validate()
        self.tokenizer = Tokenizer.load(config.model_config)
        self.log = Log(config.scheduler_config.max_num_seqs)
        self._client = make_client(config, self.log.append)
        self.config = self._client.config
        self.sources: dict[str, Any] = self._client.call("sources")  # of each phase: see engine.sources
        self._processor = Processor(self.config, self.tokenizer)
        self._lock = threading.Lock()
        self._output_processor = OutputProcessor(self.tokenizer)
        self._streams: dict[str, RequestStream] = {}
        self._submissions = itertools.count(1)
        self._dead: EngineDeadError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._read_outputs, name="outputs", daemon=True)
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """Whether the engine still runs."""
        return self._dead is None and not self._closing

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream:
        """Start a request and return its stream. Without an id it gets one.

        Raises ValueError, with one clear sentence, for what can't be taken: a live request's id among it. Raises
        EngineDeadError when the engine has died.
        """
        request_id = request_id or f"req-{uuid.uuid4().hex[:12]}"
        submission = next(self._submissions)
        request = self._processor.process(request_id, prompt, params, priority, cache_salt, submission)
        stream = RequestStream(
            request_id, len(request.prompt_token_ids), lambda: self._abort(request_id, submission)
        )  # fmt: skip
        self._start(request, stream)
        return stream

    def abort(self, request_id: str) -> bool:
        """Abort a live request by its id; return whether there was one."""
        return self._abort(request_id, None)

    def call(self, method: str, *args: Any) -> Any:
        """Call a utility of the engine core by name: pause, resume, step_passes, reset_prefix_cache, ..."""
        return self._client.call(method, *args)

    def set_trace_delay(self, seconds: float) -> None:
        """See EngineCoreClient. Raises EngineDeadError."""
        self._client.set_trace_delay(seconds)

    def shutdown(self) -> None:
        """End the engine; open requests end with EngineDeadError. May be called more than once."""
        self._closing = True
        self._client.shutdown()
        self._thread.join(timeout=10)
        self._die(EngineDeadError("the engine has been shut down"))

    def _start(self, request: EngineCoreRequest, stream: RequestStream) -> None:
        with self._lock:
            if self._dead is not None:
                raise self._dead
            children = self._output_processor.add_request(request)
            self._streams[request.request_id] = stream
            added: list[str] = []
            try:
                for child in children:
                    self._client.add_request(child)
                    added.append(child.request_id)
            except BaseException:
                self._output_processor.abort_request(request.request_id)
                del self._streams[request.request_id]
                if added:
                    self._client.abort_requests(added)
                raise

    def _abort(self, request_id: str, submission: int | None) -> bool:
        with self._lock:
            if not self._output_processor.is_live(request_id, submission):
                return False
            outputs, to_abort = self._output_processor.abort_request(request_id)
            stream = self._streams.pop(request_id)
            with contextlib.suppress(EngineDeadError):  # then there is nothing to end
                self._client.abort_requests(to_abort)
        for output in outputs:
            stream.put(output)
        return True

    def _read_outputs(self) -> None:
        try:
            while not self._closing:
                self._hand_out(self._client.get_outputs(timeout=1.0))
        except EngineDeadError as error:
            self._die(error)
        except Exception as error:
            self._die(EngineDeadError(f"outputs could not be read: {type(error).__name__}: {error}"))

    def _hand_out(self, core_outputs: EngineCoreOutputs) -> None:
        with self._lock:
            outputs, to_abort = self._output_processor.process_outputs(core_outputs)
            if to_abort:
                self._client.abort_requests(to_abort)
            for output in outputs:
                stream = self._streams[output.request_id]
                if output.finished:
                    del self._streams[output.request_id]
                stream.put(output)

    def _die(self, error: EngineDeadError) -> None:
        with self._lock:
            self._dead = self._dead or error
            streams, self._streams = self._streams, {}
            for request_id in streams:
                self._output_processor.abort_request(request_id)
        for stream in streams.values():
            stream.put(self._dead)

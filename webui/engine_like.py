"""What the web side asks of an engine: engine.async_llm.AsyncLLM, or the recording of one."""

from typing import Any, Protocol

from engine.config import EngineConfig
from engine.request_stream import RequestStream
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from tracer.log_view import LogView


class EngineLike(Protocol):
    """See engine.async_llm.AsyncLLM."""

    @property
    def config(self) -> EngineConfig: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def log(self) -> LogView: ...

    @property
    def sources(self) -> dict[str, Any]: ...

    @property
    def healthy(self) -> bool: ...

    def generate(
        self,
        prompt: Any,
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream: ...

    def abort(self, request_id: str) -> bool: ...

    def call(self, method: str, *args: Any) -> Any: ...

    def set_trace_delay(self, seconds: float) -> None: ...

    def shutdown(self) -> None: ...

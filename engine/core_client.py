"""How the rest of the program reaches an engine core, wherever it runs."""

from abc import ABC, abstractmethod
from typing import Any

from engine.config import EngineConfig
from engine.messages import EngineCoreOutputs, EngineCoreRequest


class EngineDeadError(RuntimeError):
    """The engine has stopped for good. The message says why."""


class EngineCoreClient(ABC):
    """All methods may be called from any thread, `get_outputs` from one at a time.

    `config` is the engine's, with num_gpu_blocks filled in. Trace entries go to the `on_trace` that the client was
    made with, from one thread at a time.
    """

    config: EngineConfig

    @abstractmethod
    def add_request(self, request: EngineCoreRequest) -> None:
        """Hand in a request. A refusal is raised as ValueError or comes back as an output with an error."""

    @abstractmethod
    def abort_requests(self, request_ids: list[str]) -> None:
        """End live requests; ids that aren't live are passed over. No outputs follow for them."""

    @abstractmethod
    def get_outputs(self, timeout: float | None = None) -> EngineCoreOutputs:
        """Return the next outputs, waiting for them up to `timeout` seconds; none within that time are no outputs.

        Raises EngineDeadError when the engine has died.
        """

    @abstractmethod
    def call(self, method: str, *args: Any) -> Any:
        """Call a utility of the engine core by name and return its result. Raises ValueError with its message."""

    @abstractmethod
    def set_trace_delay(self, seconds: float) -> None:
        """Let trace entries of quiet passes be held back so long, to be sent together, from the next pass on.

        A pass is quiet in which requests went on and none came, left or was preempted. Returns at once. Before the
        first call nothing is held back, and an engine in this process never holds anything back.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """End the engine and give back what it holds. May be called more than once."""

"""The executor holds no model, owns no batch and decides nothing: it carries method calls to the workers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, overload

from engine.config import EngineConfig
from engine.outputs import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from engine.qualname import resolve_obj_by_qualname


class Executor(ABC):
    """Chosen once, at startup, by `get_class`; every pass then goes through the same object."""

    name = "custom"

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._init_executor()

    @staticmethod
    def get_class(config: EngineConfig) -> type["Executor"]:
        """Return the class that distributed_executor_backend names.

        Raises TypeError for a class that is no Executor, ConfigError for a qualified name that leads nowhere and
        ValueError for a value of another kind.
        """
        backend = config.parallel_config.distributed_executor_backend
        if isinstance(backend, type):
            return _checked(backend, backend)
        if backend == "ray":
            from engine.executor.unavailable import RayDistributedExecutor

            return RayDistributedExecutor
        if backend == "mp":
            from engine.executor.unavailable import MultiprocExecutor

            return MultiprocExecutor
        if backend == "uni":
            from engine.executor.uniproc import UniProcExecutor

            return UniProcExecutor
        if backend == "external_launcher":
            from engine.executor.unavailable import ExecutorWithExternalLauncher

            return ExecutorWithExternalLauncher
        if isinstance(backend, str):
            return _checked(resolve_obj_by_qualname(backend), backend)
        raise ValueError(f"Unknown distributed executor backend: {backend}")

    @abstractmethod
    def _init_executor(self) -> None:
        """Make the workers, and have each take its device and load the model."""

    @abstractmethod
    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        single_value: bool = False,
    ) -> Any:
        """Run a worker's method by name, or a callable that takes the worker first, on every worker.

        Returns one result a worker (`single_value`: the one that counts), or a Future of that when `non_block`.
        """

    @overload
    def execute_model(
        self, scheduler_output: SchedulerOutput, non_block: Literal[False] = False
    ) -> ModelRunnerOutput | None: ...

    @overload
    def execute_model(
        self, scheduler_output: SchedulerOutput, non_block: Literal[True]
    ) -> Future[ModelRunnerOutput | None]: ...

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Run the forward pass. None means that logits are parked and `sample_tokens` must follow."""
        return self.collective_rpc(
            "execute_model", args=(scheduler_output,), non_block=non_block, single_value=True
        )  # fmt: skip

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        """Sample from the parked logits."""
        return self.collective_rpc("sample_tokens", args=(grammar_output,), single_value=True)

    def shutdown(self) -> None:
        """Let the workers give back what they hold."""
        self.collective_rpc("shutdown")


def _checked(candidate: Any, backend: object) -> type[Executor]:
    if not (isinstance(candidate, type) and issubclass(candidate, Executor)):
        raise TypeError(f"distributed_executor_backend must be a subclass of Executor, got {backend!r}")
    return candidate

"""Executors that get_class knows by name and that Batchscope does not have yet."""

from collections.abc import Callable
from typing import Any

from engine.config import ConfigError
from engine.executor.abstract import Executor


class _Unavailable(Executor):
    def _init_executor(self) -> None:
        raise ConfigError(
            f"the {self.name} executor is not available yet: use distributed_executor_backend uni with "
            "tensor_parallel_size 1 and pipeline_parallel_size 1"
        )

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        single_value: bool = False,
    ) -> Any:
        raise NotImplementedError(f"the {self.name} executor is not available yet")


class MultiprocExecutor(_Unavailable):
    name = "mp"


class RayDistributedExecutor(_Unavailable):
    name = "ray"


class ExecutorWithExternalLauncher(_Unavailable):
    name = "external_launcher"

"""One worker, in this process: a remote call is a method call."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from engine.executor.abstract import Executor
from engine.qualname import resolve_obj_by_qualname


class UniProcExecutor(Executor):
    """A non-blocking call has already run when its future exists; a failure waits in the future, as with processes."""

    name = "uni"

    def _init_executor(self) -> None:
        worker_cls = self.config.parallel_config.worker_cls
        if isinstance(worker_cls, str):
            worker_cls = resolve_obj_by_qualname(worker_cls)
        self.driver_worker = worker_cls(self.config, rank=0)
        self.collective_rpc("init_device")
        self.collective_rpc("load_model")

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        single_value: bool = False,
    ) -> Any:
        """See Executor. The call runs here and now, so there is nothing for `timeout` to cut short."""
        if not non_block:
            result = run_method(self.driver_worker, method, args, kwargs or {})
            return result if single_value else [result]

        future: Future[Any] = Future()
        try:
            result = run_method(self.driver_worker, method, args, kwargs or {})
            future.set_result(result if single_value else [result])
        except Exception as error:
            future.set_exception(error)
        return future


def run_method(worker: Any, method: str | Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call a worker's method by name, or a callable with the worker as its first argument.

    Raises NotImplementedError where the worker has no such method.
    """
    if callable(method):
        return method(worker, *args, **kwargs)
    try:
        function = getattr(worker, method)
    except AttributeError:
        raise NotImplementedError(f"{type(worker).__name__} has no method {method!r}") from None
    return function(*args, **kwargs)

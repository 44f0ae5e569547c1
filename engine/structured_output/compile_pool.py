"""Threads that compile grammars, so that the engine's thread never does."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

STACK_BYTES = 256 << 20  # address space: a grammar of 64 kB can nest thousands of rules, and each costs kilobytes


class CompilePool:
    """A few daemon threads with deep stacks: a ThreadPoolExecutor's have neither, and would hold up the exit."""

    def __init__(self, num_threads: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        before = threading.stack_size(STACK_BYTES)
        try:
            self._threads = [
                threading.Thread(target=self._run, name="grammars", daemon=True) for _ in range(num_threads)
            ]
            for thread in self._threads:
                thread.start()
        finally:
            threading.stack_size(before)

    def submit(self, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Call the function in one of the threads, in turn; its result or exception is the future's."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                result = function(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._work.put(work)
        return future

    def shutdown(self) -> None:
        """Let the threads end after what they have been given. Doesn't wait for them."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

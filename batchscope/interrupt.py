"""Ctrl-C waits for the end of the pass: a pass that breaks off would leave the batch half changed."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Raise a KeyboardInterrupt that arrives inside the block at its end. A second one does not wait.

    Does nothing outside the main thread, where Python delivers no signals, and where SIGINT is handled by others.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is not signal.default_int_handler:
        yield
        return
    arrived = False

    def note(signum: int, frame: Any) -> None:
        nonlocal arrived
        if arrived:
            signal.default_int_handler(signum, frame)
        arrived = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived:
        raise KeyboardInterrupt

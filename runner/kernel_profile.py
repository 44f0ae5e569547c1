"""Times the calls that the runner makes into kernels/, while somebody asks for it."""

import sys
import time
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch


class KernelProfile:
    """From `start` to `stop`, each kernel that a module of the runner imported is wrapped in a clock.

    Products count by their shapes, as they are many and differ. On a GPU each call waits for the device, so that its
    time is the kernel's own; the pass as a whole then takes longer.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._wrapped: list[tuple[ModuleType, str, FunctionType]] = []
        self._spent: dict[str, list[int]] = {}  # name -> [calls, nanoseconds]

    def start(self) -> None:
        """Begin anew, whether or not it has begun before."""
        self.stop()
        for module in [each for name, each in sys.modules.items() if name.startswith("runner.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and value.__module__.startswith("kernels."):
                    self._wrapped.append((module, name, value))
                    setattr(module, name, self._timed(value))

    def stop(self) -> list[dict[str, Any]]:
        """Put everything back; return name, calls and ns of each kernel that was called, the longest first."""
        for module, name, function in self._wrapped:
            setattr(module, name, function)
        spent, self._wrapped, self._spent = self._spent, [], {}
        kernels = [{"name": name, "calls": calls, "ns": ns} for name, (calls, ns) in spent.items()]
        return sorted(kernels, key=lambda kernel: -kernel["ns"])

    def _timed(self, function: FunctionType) -> Callable[..., Any]:
        spent = self._spent

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self._now()
            result = function(*args, **kwargs)
            took = self._now() - start
            entry = spent.setdefault(_name(function, args, result), [0, 0])
            entry[0] += 1
            entry[1] += took
            return result

        return timed

    def _now(self) -> int:
        if self._is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns()


def _name(function: FunctionType, args: tuple[Any, ...], result: Any) -> str:
    if function.__name__.startswith("linear"):
        return f"{function.__name__} {args[0].shape[-1]} → {result.shape[-1]}"
    return function.__name__

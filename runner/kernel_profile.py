"""Times the calls that the runner makes into kernels/, while somebody asks for it."""

import sys
import time
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch

from kernels.decoder_layers import DecoderLayers


class KernelProfile:
    """From `start` to `stop`, each kernel that a module of the runner imported is wrapped in a clock.

    Products count by their shapes, as they are many and differ. Layers that run in one call clock their kernels
    themselves. On a GPU each call waits for the device, so that its time is the kernel's own; the pass as a whole then
    takes longer.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._wrapped: list[tuple[ModuleType, str, FunctionType]] = []
        self._spent: dict[str, list[int]] = {}  # name -> [calls, nanoseconds]
        self._layers: DecoderLayers | None = None

    def start(self, layers: DecoderLayers | None) -> None:
        """Begin anew, whether or not it has begun before. layers: those of the model that run in one call."""
        self.stop()
        self._layers = layers
        if layers is not None:
            layers.reset_clock()
        for module in [each for name, each in sys.modules.items() if name.startswith("runner.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and value.__module__.startswith("kernels."):
                    self._wrapped.append((module, name, value))
                    setattr(module, name, self._timed(value))

    def stop(self) -> list[dict[str, Any]]:
        """Put everything back; return name, calls and ns of each kernel that was called, the longest first."""
        for module, name, function in self._wrapped:
            setattr(module, name, function)
        for times in [] if self._layers is None else self._layers.times():
            self._add(*times)
        spent, self._wrapped, self._spent, self._layers = self._spent, [], {}, None
        kernels = [{"name": name, "calls": calls, "ns": ns} for name, (calls, ns) in spent.items()]
        return sorted(kernels, key=lambda kernel: -kernel["ns"])

    def _timed(self, function: FunctionType) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self._now()
            result = function(*args, **kwargs)
            took = self._now() - start
            self._add(_name(function, args, result), 1, took)
            return result

        return timed

    def _add(self, name: str, calls: int, ns: int) -> None:
        entry = self._spent.setdefault(name, [0, 0])
        entry[0] += calls
        entry[1] += ns

    def _now(self) -> int:
        if self._is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns()


def _name(function: FunctionType, args: tuple[Any, ...], result: Any) -> str:
    if function.__name__.startswith("linear"):
        return f"{function.__name__} {args[0].shape[-1]} → {result.shape[-1]}"
    return function.__name__

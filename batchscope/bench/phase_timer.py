"""Times named methods from outside, in any engine. Standard library alone, for other engines' environments too."""

import statistics
import time
from typing import Any


class PhaseTimer:
    """Wraps methods and keeps how long each call took, in microseconds."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}

    def wrap(self, owner: Any, method: str, name: str) -> None:
        """Time `owner.method` as phase `name`; `owner` is an object or a class."""
        inner, samples = getattr(owner, method), self.samples.setdefault(name, [])

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                samples.append((time.perf_counter() - start) * 1e6)

        setattr(owner, method, timed)

    def clear(self) -> None:
        for samples in self.samples.values():
            samples.clear()

    def medians(self) -> dict[str, float]:
        """Return each phase's median, in microseconds."""
        return {name: statistics.median(samples) for name, samples in self.samples.items()}

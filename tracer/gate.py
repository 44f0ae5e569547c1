"""The gate in the engine core: lets passes through, holds them, or lets a counted number through."""

from typing import Any


class Gate:
    """Asked by the engine core before each pass. Used from the engine core's thread alone."""

    def __init__(self) -> None:
        self.paused = False
        self.permits = 0  # passes that may still run while paused

    def pause(self) -> None:
        self.paused, self.permits = True, 0

    def resume(self) -> None:
        self.paused, self.permits = False, 0

    def step(self, passes: int = 1) -> None:
        """Pause, and let `passes` more passes through. Raises ValueError below 1."""
        if passes < 1:
            raise ValueError(f"step takes 1 pass or more, got {passes}")
        self.paused, self.permits = True, self.permits + passes

    @property
    def open(self) -> bool:
        """Whether the next pass may start."""
        return not self.paused or self.permits > 0

    def enter(self) -> None:
        """Count a pass that starts. Call only when open."""
        if self.paused:
            self.permits -= 1

    def state(self) -> dict[str, Any]:
        return {"paused": self.paused, "permits": self.permits}

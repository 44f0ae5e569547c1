"""The gate in the engine core: it holds the engine at real points of its loop, and lets it go on."""

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from tracer.breakpoints import Breakpoint, Happened, On

SLOWEST, FASTEST = 0.01, 10_000.0  # passes a second


class Stop(StrEnum):
    """Where the engine can be held: before a pass, and at two points inside it."""

    BEFORE_SCHEDULE = "before_schedule"
    HAND_OFF = "hand_off"  # execute_model has returned None, the logits are parked, sample_tokens comes next
    BEFORE_UPDATE_FROM_OUTPUT = "before_update_from_output"  # aborts that came meanwhile are handled next


class Hit(msgspec.Struct, frozen=True):
    """The breakpoint that holds the engine: what it waited for, and the pass and phase that met it."""

    on: str
    pass_id: int
    phase: str
    words: str


class Gate:
    """Asked by the engine core at each stop. Used from the engine core's thread alone."""

    def __init__(self) -> None:
        self.paused = False
        self.permits = 0  # passes that may still run while paused
        self.rate: float | None = None  # passes a second at most
        self.breakpoints: list[Breakpoint] = []
        self.hit: Hit | None = None
        self.inside: Stop | None = None  # where a pass is held that has begun
        self.num_passes = 0  # that have begun
        self.at_next_stop = False  # hold there, or where the pass has ended before the next one
        self._due = 0.0  # when the rate lets the next pass start, on the monotonic clock

    # --- what people ask of it ----------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hold the next pass; a pass that is held inside stays so."""
        self.paused, self.permits, self.at_next_stop = True, 0, False

    def resume(self) -> None:
        """Let everything through."""
        self._go_on()
        self.paused, self.permits = False, 0

    def step_passes(self, passes: int = 1) -> None:
        """Pause, and let `passes` more through: one that is held inside is the first. Raises ValueError below 1."""
        if passes < 1:
            raise ValueError(f"step takes 1 pass or more, got {passes}")
        permits = self.permits + passes - (self.inside is not None)
        self._go_on()
        self.paused, self.permits = True, permits

    def step_stop(self) -> None:
        """Pause, and let the engine go to the next stop."""
        self._go_on()
        self.paused, self.permits, self.at_next_stop = True, 0, True

    def set_rate(self, rate: float | None) -> None:
        """Let at most `rate` passes start in a second; None: as many as can be. Raises ValueError out of bounds."""
        if rate is not None and not SLOWEST <= rate <= FASTEST:
            raise ValueError(f"rate must be from {SLOWEST:g} to {FASTEST:g} passes a second, or null, got {rate}")
        self.rate = rate
        if rate is not None:
            self._due = min(self._due, time.monotonic() + 1 / rate)

    # --- what the engine core asks it ---------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether the next pass may start, as far as people are concerned; the rate may hold it a little."""
        return not self.paused or self.permits > 0 or self.at_next_stop

    @property
    def wait(self) -> float:
        """How many seconds the rate holds the next pass."""
        return 0.0 if self.rate is None else max(0.0, self._due - time.monotonic())

    def enter(self) -> None:
        """Count a pass that starts. Call only when open."""
        self.num_passes += 1
        if self.paused and not self.at_next_stop:
            self.permits -= 1
        if self.rate is not None:
            now, period = time.monotonic(), 1 / self.rate
            late = now - self._due
            self._due = (self._due if late < period else now) + period

    @property
    def watching(self) -> bool:
        """Whether a stop inside a pass has to be looked at."""
        return self.at_next_stop or bool(self.breakpoints)

    def waits_for(self, on: On) -> bool:
        return any(breakpoint.on is on for breakpoint in self.breakpoints)

    def meet(self, happened: Sequence[Happened]) -> None:
        """Take what the newest pass did: the first thing that a breakpoint waits for holds the engine."""
        for breakpoint in self.breakpoints:
            met = [one for one in happened if breakpoint.met_by(one)]
            if met:
                words = met[0].words + (f" (and {len(met) - 1} more)" if len(met) > 1 else "")
                self.hit = Hit(breakpoint.on, self.num_passes - 1, met[0].phase, words)
                self.paused, self.permits, self.at_next_stop = True, 0, True
                return

    def arrive(self, stop: Stop) -> None:
        """The pass is held at `stop`, until `inside` is None again."""
        self.inside, self.at_next_stop = stop, False

    def release(self) -> None:
        """Let the pass that is held come to its end."""
        self.inside = None

    def leave(self) -> None:
        """A pass has ended: the next stop is before the one after it."""
        self.at_next_stop = False

    @property
    def stop(self) -> Stop | None:
        """Where the engine is held."""
        return self.inside or (None if self.open else Stop.BEFORE_SCHEDULE)

    def state(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "paused": self.paused,
            "permits": self.permits,
            "stop": self.stop,
            "rate": self.rate,
            "breakpoints": msgspec.to_builtins(self.breakpoints),
            "hit": msgspec.to_builtins(self.hit),
        }

    def _go_on(self) -> None:
        self.hit, self.inside, self.at_next_stop = None, None, False

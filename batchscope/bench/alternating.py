"""An engine process that records every other stretch of passes, so that one process is compared with itself.

Two processes of one program differ by more than tracing costs: where their memory lies, which core they got.
"""

import time
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from engine import core_process, process_client
from engine.config import EngineConfig
from engine.core_process import EngineCoreProc, run_engine_core
from engine.process_client import ProcessClient

SETTLING = 4  # passes of a round before its first stretch
PATTERNS = (False, True, True, False), (True, False, False, True)  # so that what grows over four stretches cancels out
PATTERN_STRETCHES = len(PATTERNS[0])


class Protocol(NamedTuple):
    """How often recording is switched. The shorter the stretches, the less else changes from one to the next."""

    stretch: int  # passes
    late: int  # so many of them, 1 at least, do not count: in them is done what the stretch before has left to be done
    patterns: int  # in a round, of four stretches each

    @property
    def round_passes(self) -> int:
        """How many passes all rows must decode for, so that the round is whole."""
        return SETTLING + self.stretch * PATTERN_STRETCHES * self.patterns + 1


class AlternatingClient(ProcessClient):
    """`call("stretches")` returns [[recorded, seconds], ...], and forgets them."""

    def __init__(self, protocol: Protocol, *args: Any) -> None:
        with patch.object(process_client, "run_engine_core", partial(run_alternating_core, protocol)):
            super().__init__(*args)


def run_alternating_core(protocol: Protocol, config: EngineConfig, folder: str) -> None:
    """What the child process runs."""
    core_process.EngineCoreProc = partial(AlternatingCoreProc, protocol)  # type: ignore[misc, assignment]
    run_engine_core(config, folder)


class AlternatingCoreProc(EngineCoreProc):
    """A round begins once every row decodes."""

    def __init__(self, protocol: Protocol, *args: Any) -> None:
        super().__init__(*args)
        self._protocol = protocol
        self._rows = self.core.config.scheduler_config.max_num_seqs
        self._recorders = [(owner, name, getattr(owner, name)) for owner, name in self._what_records()]
        self._core_step, self.core.step = self.core.step, self._step  # type: ignore[method-assign]
        self._core_utility, self.core.utility = self.core.utility, self._utility  # type: ignore[method-assign]
        self._stretches: list[tuple[bool, float]] = []
        self._round: list[tuple[bool, float]] = []
        self._passes = 0  # of the round
        self._began = 0.0

    def _what_records(self) -> list[tuple[Any, str]]:
        core = self.core
        worker = core.model_executor.driver_worker  # type: ignore[attr-defined]
        runner, pool = worker.model_runner, core.scheduler.kv_cache_manager.block_pool
        traced = [(owner, "trace") for owner in (core, worker, runner, runner.input_batch)]
        return [*traced, (core.scheduler, "traced"), (pool, "journal")]

    def _step(self) -> Any:
        scheduler = self.core.scheduler
        if len(scheduler.running) < self._rows or scheduler.waiting:
            self._passes, self._round = 0, []  # a round that rows left before its end does not count
        else:
            self._passes += 1
            if self._passes >= SETTLING:
                self._turn(*divmod(self._passes - SETTLING, self._protocol.stretch))
        return self._core_step()

    def _turn(self, number: int, passes: int) -> None:
        """Before pass `passes` of stretch `number`."""
        num_stretches = self._protocol.patterns * PATTERN_STRETCHES
        if number > num_stretches or passes not in (0, self._protocol.late):
            return
        now = time.perf_counter()
        if passes:
            self._began = now
            return
        if number:
            self._round.append((_recorded(number - 1), now - self._began))
        if number == num_stretches:
            self._stretches += self._round
        recorded = number == num_stretches or _recorded(number)
        for owner, name, recorder in self._recorders:
            setattr(owner, name, recorder if recorded else None)

    def _utility(self, method: str, args: list[Any]) -> Any:
        if method != "stretches":
            return self._core_utility(method, args)
        stretches, self._stretches = self._stretches, []
        return stretches


def _recorded(number: int) -> bool:
    pattern, place = divmod(number, PATTERN_STRETCHES)
    return PATTERNS[pattern % len(PATTERNS)][place]

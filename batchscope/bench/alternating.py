"""An engine process that records every other stretch of passes, so that one process is compared with itself.

Two processes of one program differ by more than tracing costs: where their memory lies, which core they got.
"""

import time
from typing import Any
from unittest.mock import patch

import zmq

from engine import core_process, process_client
from engine.config import EngineConfig
from engine.core_process import EngineCoreProc, run_engine_core
from engine.process_client import ProcessClient

STRETCH = 48  # passes
SETTLING = 4  # passes of a round before its first stretch
PATTERNS = (False, True, True, False), (True, False, False, True)  # so that what grows over a round cancels out
ROUND_STRETCHES = len(PATTERNS[0])
ROUND_PASSES = SETTLING + STRETCH * ROUND_STRETCHES + 1


class AlternatingClient(ProcessClient):
    """`call("stretches")` returns [[recorded, seconds], ...], and forgets them."""

    def __init__(self, *args: Any) -> None:
        with patch.object(process_client, "run_engine_core", run_alternating_core):
            super().__init__(*args)


def run_alternating_core(config: EngineConfig, folder: str) -> None:
    """What the child process runs."""
    core_process.EngineCoreProc = AlternatingCoreProc  # type: ignore[misc]
    run_engine_core(config, folder)


class AlternatingCoreProc(EngineCoreProc):
    """A round begins once every row decodes; it has one stretch for each entry of a pattern."""

    def __init__(self, config: EngineConfig, context: zmq.Context, output: zmq.Socket, folder: str) -> None:
        super().__init__(config, context, output, folder)
        self._rows = config.scheduler_config.max_num_seqs
        self._recorders = [(owner, name, getattr(owner, name)) for owner, name in self._what_records()]
        self._core_step, self.core.step = self.core.step, self._step  # type: ignore[method-assign]
        self._core_utility, self.core.utility = self.core.utility, self._utility  # type: ignore[method-assign]
        self._stretches: list[tuple[bool, float]] = []
        self._round: list[tuple[bool, float]] = []
        self._num_rounds = self._passes = 0
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
            self._num_rounds += self._passes > 0
            self._passes = 0
        else:
            self._passes += 1
            self._turn(*divmod(self._passes - SETTLING, STRETCH))
        return self._core_step()

    def _turn(self, number: int, passes: int) -> None:
        pattern = PATTERNS[self._num_rounds % len(PATTERNS)]
        if passes or not 0 <= number <= len(pattern):
            return
        now = time.perf_counter()
        if number:
            self._round.append((pattern[number - 1], now - self._began))
        if number == len(pattern):
            self._stretches += self._round
        if number in (0, len(pattern)):  # a round that rows left before its end does not count
            self._round = []
        self._began = now
        recorded = number == len(pattern) or pattern[number]
        for owner, name, recorder in self._recorders:
            setattr(owner, name, recorder if recorded else None)

    def _utility(self, method: str, args: list[Any]) -> Any:
        if method != "stretches":
            return self._core_utility(method, args)
        stretches, self._stretches = self._stretches, []
        return stretches

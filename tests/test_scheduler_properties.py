"""Whatever comes, in whatever order, on whatever settings: every invariant holds and every request gets its tokens."""

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import scripts
from helpers.driver import Driver
from helpers.fake_executor import request, token
from helpers.invariants import check_scheduler
from helpers.threads import one_thread
from hypothesis import given

from engine import core as engine_core
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.model_source import resolve

MOST_PASSES = 2000

pytestmark = pytest.mark.timeout(3600)  # for the longer profiles


@given(workload=scripts.workloads())
def test_the_scheduler_alone(workload: scripts.Workload) -> None:
    settings, actions = workload
    driver = Driver(settings["num_gpu_blocks_override"], **settings)
    live = driver.scheduler.requests
    wanted: dict[str, int] = {}
    for action in actions:
        match action:
            case scripts.Add(req_id, prompt, max_tokens, priority, salt):
                if req_id in live:
                    with pytest.raises(ValueError, match="in use"):
                        driver.scheduler.add_request(next(iter(live.values())))
                    continue
                driver.add(req_id, list(prompt), max_tokens, priority=priority, cache_salt=salt)
                wanted[req_id] = max_tokens
            case scripts.Passes(count):
                for _ in range(count):
                    if driver.scheduler.has_requests():
                        driver.run_pass()
            case scripts.Abort(which, in_pass):
                if live:
                    victim = list(live)[which % len(live)]
                    output = driver.schedule() if in_pass else None
                    driver.abort(victim)
                    del wanted[victim]
                    if output is not None:
                        driver.apply(output)
            case scripts.Reset(running):
                held = driver.scheduler.running
                assert driver.scheduler.reset_prefix_cache(running) is (running or not held)
                driver.check()
    for _ in range(MOST_PASSES):
        if not driver.scheduler.has_requests():
            break
        driver.run_pass()
    assert not driver.scheduler.has_requests(), "the scheduler goes round in circles"
    for req_id, count in wanted.items():
        assert driver.tokens[req_id] == [token(req_id, i) for i in range(count)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def tiny_config(**flags: Any) -> EngineConfig:
    config = EngineConfig.make(model="tiny", dtype="float64", **flags)
    config.model_config = resolve(config.model_config)
    return config


class Engine:
    """An engine core on the tiny model in float64, where no order of summation changes a token."""

    def __init__(self, **flags: Any) -> None:
        self.core = EngineCore(tiny_config(check=True, **flags), lambda entry: None)
        self.tokens: dict[str, list[int]] = {}
        self.num_added = 0

    def add(self, action: scripts.Add) -> None:
        self.core.add_request(
            request(
                action.req_id, list(action.prompt), action.max_tokens, priority=action.priority,
                cache_salt=action.cache_salt, arrival_time=float(self.num_added),
            )
        )  # fmt: skip
        self.num_added += 1
        self.tokens[action.req_id] = []

    def run_pass(self) -> None:
        outputs, _ = self.core.step()
        check_scheduler(self.core.scheduler)
        for output in (output for client in outputs.values() for output in client.outputs):
            self.tokens[output.request_id] += output.new_token_ids


@functools.cache
def solo_engine() -> Engine:
    return Engine(max_model_len=scripts.MODEL_LENGTH, num_gpu_blocks_override=9, block_size=16, max_num_seqs=1,
                  max_num_batched_tokens=64, enable_prefix_caching=False)  # fmt: skip


@functools.cache
def solo(prompt: tuple[int, ...]) -> list[int]:
    engine = solo_engine()
    engine.add(scripts.Add("solo", prompt, scripts.MOST_TOKENS, 0, None))
    while engine.core.scheduler.has_requests():
        engine.run_pass()
    return engine.tokens["solo"]


@given(workload=scripts.workloads())
def test_the_whole_engine_gives_each_request_the_tokens_it_would_get_alone(workload: scripts.Workload) -> None:
    settings, actions = workload
    engine = Engine(**settings)
    live = engine.core.scheduler.requests
    wanted: dict[str, scripts.Add] = {}
    for action in actions:
        match action:
            case scripts.Add():
                if action.req_id in live:
                    with pytest.raises(ValueError, match="in use"):
                        engine.core.add_request(request(action.req_id))
                    continue
                engine.add(action)
                wanted[action.req_id] = action
            case scripts.Passes(count):
                for _ in range(count):
                    engine.run_pass()
            case scripts.Abort(which, in_pass):
                if live:
                    victim = list(live)[which % len(live)]
                    del wanted[victim]
                    if in_pass:
                        engine.core.aborts_queue.put(engine_core.Abort([victim]))
                        engine.run_pass()
                    else:
                        engine.core.abort_requests([victim])
            case scripts.Reset(running):
                engine.core.reset_prefix_cache(running)
                check_scheduler(engine.core.scheduler)
    for _ in range(MOST_PASSES):
        if not engine.core.scheduler.has_requests():
            break
        engine.run_pass()
    assert not engine.core.scheduler.has_requests(), "the scheduler goes round in circles"
    assert not engine.core.model_executor.driver_worker.model_runner.requests  # type: ignore[attr-defined]
    for req_id, add in wanted.items():
        assert engine.tokens[req_id] == solo(add.prompt)[: add.max_tokens], req_id
    engine.core.shutdown()

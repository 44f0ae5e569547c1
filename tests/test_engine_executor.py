"""The executor is chosen once, by class, name or qualified name, and carries calls to the worker."""

from concurrent.futures import Future
from typing import Any

import pytest
from helpers.fake_executor import FakeExecutor, fake_config

from engine.config import ConfigError
from engine.executor import Executor, UniProcExecutor


class Worker:
    def __init__(self, config: Any, rank: int) -> None:
        self.calls = [f"rank {rank}"]

    def init_device(self) -> None:
        self.calls.append("init_device")

    def load_model(self) -> None:
        self.calls.append("load_model")

    def add(self, a: int, b: int = 1) -> int:
        return a + b

    def fail(self) -> None:
        raise FloatingPointError("NaN")


@pytest.fixture
def executor() -> UniProcExecutor:
    return UniProcExecutor(fake_config(distributed_executor_backend="uni", worker_cls=Worker))


def get_class(backend: Any) -> type[Executor]:
    config = fake_config()
    config.parallel_config.distributed_executor_backend = backend
    return Executor.get_class(config)


def test_every_branch_of_the_choice() -> None:
    """CLAIMS F1."""
    assert get_class(FakeExecutor) is FakeExecutor
    assert get_class("uni") is UniProcExecutor
    assert get_class("helpers.fake_executor.FakeExecutor") is FakeExecutor
    assert [get_class(name).name for name in ("ray", "mp", "external_launcher")] == ["ray", "mp", "external_launcher"]
    with pytest.raises(TypeError, match="must be a subclass of Executor"):
        get_class(int)
    with pytest.raises(TypeError, match="must be a subclass of Executor"):
        get_class("engine.scheduler.Scheduler")
    with pytest.raises(ValueError, match="Unknown distributed executor backend: 3"):
        get_class(3)


@pytest.mark.parametrize(
    ("name", "message"),
    [("unii", "package.module.Class"), ("no.such.Class", "no module 'no.such'"), ("engine.core.Nope", "has no 'Nope'")],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_class(name)


@pytest.mark.parametrize("name", ["mp", "ray", "external_launcher"])
def test_executors_that_do_not_exist_yet_say_so(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the {name} executor is not available yet"):
        get_class(name)(fake_config())


def test_the_default_is_uni_for_one_rank_and_mp_for_several() -> None:
    assert get_class(fake_default(1)) is UniProcExecutor
    assert get_class(fake_default(2)).name == "mp"


def fake_default(ranks: int) -> str:
    config = fake_config(distributed_executor_backend=None, tensor_parallel_size=ranks)
    return config.parallel_config.distributed_executor_backend


def test_the_worker_is_made_ready_in_order(executor: UniProcExecutor) -> None:
    assert executor.driver_worker.calls == ["rank 0", "init_device", "load_model"]


def test_a_call_by_name_or_with_a_callable_returns_one_result_a_worker(executor: UniProcExecutor) -> None:
    assert executor.collective_rpc("add", args=(1,), kwargs={"b": 2}) == [3]
    assert executor.collective_rpc("add", args=(1,), single_value=True) == 2
    assert executor.collective_rpc(lambda worker, n: len(worker.calls) + n, args=(1,)) == [4]
    with pytest.raises(NotImplementedError, match="Worker has no method 'nothing'"):
        executor.collective_rpc("nothing")


def test_a_non_blocking_call_has_run_when_its_future_exists(executor: UniProcExecutor) -> None:
    """CLAIMS F2."""
    future = executor.collective_rpc("add", args=(1,), non_block=True)
    assert isinstance(future, Future)
    assert future.done()
    assert future.result() == [2]
    assert executor.collective_rpc("add", args=(1,), non_block=True, single_value=True).result() == 2


def test_a_failure_waits_in_the_future(executor: UniProcExecutor) -> None:
    """CLAIMS F2."""
    future = executor.collective_rpc("fail", non_block=True)
    with pytest.raises(FloatingPointError, match="NaN"):
        future.result()
    with pytest.raises(FloatingPointError, match="NaN"):
        executor.collective_rpc("fail")

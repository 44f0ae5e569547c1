"""The engine core in a process of its own: it serves, refuses, dies and ends as it should."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_executor import FakeExecutor, fake_config, request, token

from engine.config import ConfigError
from engine.core_client import EngineDeadError
from engine.process_client import ProcessClient
from tracer.schema import decode


class SlowExecutor(FakeExecutor):
    def do_sample_tokens(self, grammar_output: Any) -> Any:
        time.sleep(0.05)
        return super().do_sample_tokens(grammar_output)


class BrokenExecutor(FakeExecutor):
    def do_sample_tokens(self, grammar_output: Any) -> Any:
        raise FloatingPointError("the logits are NaN")


class UnfitExecutor(FakeExecutor):
    def do_determine_num_gpu_blocks(self) -> int:
        raise ConfigError("kv_cache_memory_bytes holds no block: give more")


class CrashingExecutor(FakeExecutor):
    def _init_executor(self) -> None:
        raise MemoryError("cannot map the weights")


class DyingExecutor(FakeExecutor):
    def _init_executor(self) -> None:
        os._exit(3)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[ProcessClient, list[bytes]]]:
    trace: list[bytes] = []
    client = ProcessClient(fake_config(distributed_executor_backend=SlowExecutor), trace.append)
    yield client, trace
    client.shutdown()


def read(client: ProcessClient, until: Callable[[dict[str, list[int]], dict[str, Any]], bool]) -> Any:
    """Read outputs until the condition on (tokens by id, finish by id) holds."""
    tokens: dict[str, list[int]] = {}
    finished: dict[str, Any] = {}
    deadline = time.monotonic() + 20
    while not until(tokens, finished):
        assert time.monotonic() < deadline, (tokens, finished)
        for output in client.get_outputs(1.0).outputs:
            tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
            if output.finish_reason:
                finished[output.request_id] = (output.finish_reason, output.error)
    return tokens, finished


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_idle(client: ProcessClient) -> bool:
    return client.call("stats") == {"running": 0, "waiting": 0, "num_free_blocks": 63}


def test_requests_are_served_and_traced(shared: Any) -> None:
    client, trace = shared
    assert client.config.cache_config.num_gpu_blocks == 64
    for req_id in "AB":
        client.add_request(request(req_id, max_tokens=3))
    tokens, _ = read(client, lambda tokens, finished: len(finished) == 2)
    assert tokens == {req_id: [token(req_id, i) for i in range(3)] for req_id in "AB"}
    assert [decode(entry).seq for entry in trace] == list(range(len(trace)))
    assert is_idle(client)


def test_what_the_core_cannot_take_is_refused_alone(shared: Any) -> None:
    client, _ = shared
    client.add_request(request("A", max_tokens=5))
    client.add_request(request("A", submission=7))
    client.add_request(request("empty", prompt=[]))
    client.add_request(request("big", prompt=8, max_tokens=1000))
    outputs = {}
    wait_for(lambda: outputs.update({(o.request_id, o.submission): o for o in client.get_outputs(1).outputs}) or
             (outputs.get(("A", 0)) and outputs["A", 0].finish_reason == "length"))  # fmt: skip
    assert "in use by a live request" in outputs["A", 7].error
    assert "empty" in outputs["empty", 0].error
    assert "blocks of 4" in outputs["big", 0].error
    assert is_idle(client)


def test_an_abort_takes_effect_and_its_id_can_come_again_at_once(shared: Any) -> None:
    client, _ = shared
    for submission in range(1, 6):
        client.add_request(request("X", max_tokens=50, submission=submission))
        client.abort_requests(["X"])
    client.add_request(request("X", max_tokens=2, submission=9))
    seen = []
    while not (seen and seen[-1].finish_reason):
        seen += [output for output in client.get_outputs(1.0).outputs if output.submission == 9]
    assert [output.new_token_ids for output in seen] == [[token("X", 0)], [token("X", 1)]]
    assert is_idle(client)


def test_a_closed_gate_blocks_without_spinning_and_still_takes_calls(shared: Any) -> None:
    client, _ = shared
    client.call("pause")
    client.add_request(request("A", max_tokens=3))
    before = cpu_seconds(client.pid)
    assert client.get_outputs(0.5).outputs == []
    assert cpu_seconds(client.pid) - before < 0.2
    client.call("step_passes", 1)
    read(client, lambda tokens, finished: len(tokens.get("A", ())) == 1)
    assert client.call("gate_state").items() >= {"paused": True, "permits": 0}.items()
    client.abort_requests(["A"])
    wait_for(lambda: is_idle(client))
    client.call("resume")


def test_errors_of_calls_come_back(shared: Any) -> None:
    client, _ = shared
    with pytest.raises(ValueError, match="no utility 'exit'"):
        client.call("exit")
    with pytest.raises(ValueError, match="1 pass or more"):
        client.call("step_passes", 0)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_failed_pass_is_told_to_everybody() -> None:
    client = ProcessClient(fake_config(distributed_executor_backend=BrokenExecutor), lambda entry: None)
    client.add_request(request("A"))
    with pytest.raises(EngineDeadError, match="the logits are NaN"):
        client.get_outputs(20)
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="the logits are NaN"):
            client.add_request(request("B"))
        with pytest.raises(EngineDeadError, match="the logits are NaN"):
            client.call("stats")
    client.shutdown()


def test_a_killed_process_is_noticed_and_leaves_nothing_behind() -> None:
    client = ProcessClient(fake_config(), lambda entry: None)
    assert not Path(client._folder).exists(), "the sockets' folder is gone as soon as they are connected"
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        client.get_outputs(20)
    client.shutdown()


@pytest.mark.parametrize(
    ("executor", "error", "message"),
    [
        (UnfitExecutor, ConfigError, "holds no block: give more"),
        (CrashingExecutor, EngineDeadError, "could not start: MemoryError: cannot map the weights"),
        (DyingExecutor, EngineDeadError, "could not start: exit code 3"),
    ],
)
def test_a_start_that_fails_says_why(executor: type, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ProcessClient(fake_config(distributed_executor_backend=executor), lambda entry: None)


PARENT = """
    import sys, time
    from engine.process_client import ProcessClient
    from helpers.fake_executor import fake_config

    if __name__ == "__main__":
        client = ProcessClient(fake_config(), lambda entry: None)
        print(client.pid, client._folder, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_core_ends_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)  # as a terminal does: to both
    else:
        parent.kill()
    _, errors = parent.communicate(timeout=20)
    wait_for(lambda: not is_alive(int(pid)) and not Path(folder).exists())
    assert errors.count("Traceback") == (1 if how == signal.SIGINT else 0), "only the parent is interrupted"

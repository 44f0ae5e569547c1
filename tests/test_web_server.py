"""`batchscope serve` as a process: it starts, ends, and outlives its engine."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
import socketio
from helpers.web import ONE_THREAD, parsed, running_site, until


class Process:
    """`batchscope serve` on the tiny model."""

    def __init__(self):
        command = [sys.executable, "-c", "import sys; from batchscope.cli import main; sys.exit(main())", "serve"]
        flags = ["--model", "tiny", "--port", "0", "--max-num-seqs", "8", "--num-gpu-blocks-override", "200"]
        self.popen = subprocess.Popen(
            command + flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env=os.environ | ONE_THREAD,
        )  # fmt: skip
        line = self.popen.stdout.readline()
        found = re.fullmatch(r"Batchscope is at (http://127\.0\.0\.1:\d+)\n", line)
        assert found, line + self.rest()
        self.base = found[1]
        self.family = [self.popen.pid, *children(self.popen.pid)]

    def rest(self):
        self.popen.kill()
        return self.popen.stderr.read()

    def post(self, **fields):
        body = {"prompt": "go", "max_tokens": 900, "ignore_eos": True, **fields}
        return requests.post(self.base + "/v1/completions", json=body, stream=True, timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.kill()
        self.popen.communicate()


def children(pid: int) -> list[int]:
    """Every process below `pid`."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(stat[1]), []).append(int(entry.parent.name))
    found = parents.get(pid, [])
    return found + [below for child in found for below in children(child)]


def alive(pids: list[int]) -> list[int]:
    def running(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return [pid for pid in pids if running(pid)]


@pytest.fixture
def process():
    with Process() as running:
        yield running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_open_streams_in_order_and_leaves_no_process(process, number):
    """A terminal's Ctrl-C reaches every process of the group."""
    lines = process.post(stream=True).iter_lines()
    next(lines)
    os.killpg(process.popen.pid, number)
    told = parsed(lines)
    assert told[-1] == "[DONE]"
    assert told[-2]["choices"][0]["finish_reason"] == "abort"
    assert process.popen.wait(15) == 0
    assert until(lambda: not alive(process.family))
    assert "Traceback" not in process.popen.stderr.read()


def test_when_the_web_process_is_killed_the_engine_ends(process):
    process.popen.kill()
    assert until(lambda: not alive(process.family), timeout=15)


def test_when_the_engine_dies_open_requests_are_told_and_health_says_so(process):
    lines = process.post(stream=True).iter_lines()
    next(lines)
    [engine] = [
        pid for pid in children(process.popen.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(engine, signal.SIGKILL)
    told = parsed(lines)
    assert told[-1] == "[DONE]"
    assert "SIGKILL" in told[-2]["error"]["message"]
    health = requests.get(process.base + "/health", timeout=10)
    assert health.status_code == 503
    assert "SIGKILL" in health.json()["error"]["message"]
    refused = process.post()
    assert refused.status_code == 503
    assert refused.headers["x-should-retry"] == "false"
    assert requests.get(process.base + "/api/state", timeout=10).status_code == 200


def test_an_open_page_does_not_hold_the_server_up():
    with running_site() as site:
        browser = socketio.Client(reconnection=False)
        browser.connect(site.base, auth={"seq": -1}, transports=["websocket"])
        began = time.monotonic()
    assert time.monotonic() - began < 5
    browser.disconnect()

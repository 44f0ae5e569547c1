"""Engines of presets beside the served one: each in its own process, at most two, and nobody pays for another."""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import requests
import socketio
import websocket
from helpers.page import Served, within
from helpers.web import ONE_THREAD, Site, running_site, until

from tracer.schema import decode
from webui.presets import Preset

BROKEN = msgspec.convert(
    {"title": "Broken", "paragraph": "It cannot start.", "config": {"num_gpu_blocks_override": 1}, "script": []}, Preset
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ONE_THREAD.items():
            patch.setenv(name, value)
        with running_site() as running:
            engines = running.server.app.extensions["engines"]
            engines.presets = {**engines.presets, "broken": BROKEN}
            yield running


def engine(site: Site, engine_id: str) -> dict[str, Any] | None:
    listed = site.get("/api/engines").json()["engines"]
    return next((each for each in listed if each["id"] == engine_id), None)


def start(site: Site, name: str, **body: Any) -> str:
    reply = site.post(f"/api/presets/{name}", body)
    assert reply.status_code == 200, reply.text
    return reply.json()["engine"]


def settled(site: Site, engine_id: str) -> dict[str, Any]:
    """What is said of an engine once it is ready or has failed."""

    def found() -> dict[str, Any] | None:
        described = engine(site, engine_id)
        return described if described and described["status"] in ("ready", "failed") else None

    return until(found, timeout=60)


def message(reply: requests.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["message"]


def processes() -> set[int]:
    """The engine processes that this one has started."""
    return {child.pid for child in multiprocessing.active_children() if child.pid}


def gone(pids: set[int]) -> Callable[[], bool]:
    return lambda: not pids & processes()


def test_two_run_beside_the_served_one_a_third_takes_the_oldest_ones_place_and_all_end(site: Site) -> None:
    before = processes()
    first, second = start(site, "two-five-three"), start(site, "resubmit")
    status, words = message(site.post("/api/presets/preemption", {}))
    assert status == 409
    assert f'"replace": "{first}"' in words
    assert [settled(site, each)["status"] for each in (first, second)] == ["ready", "ready"]
    assert len(processes() - before) == 2

    configs = [site.get(f"/api/config{query}").json() for query in ("", f"?engine={first}", f"?engine={second}")]
    assert [config["engine"] for config in configs] == ["main", first, second]
    assert [config["block_size"] for config in configs] == [16, 4, 16]
    assert configs[0]["preset"] is None
    assert configs[1]["preset"]["title"] == "The [2, 5, 3] pass"
    assert configs[1]["preset"]["paragraph"].startswith("Three requests, ten tokens")
    assert [config["model"] for config in configs] == ["tiny"] * 3
    assert set(site.get(f"/api/state?engine={second}").json()["requests"]) == {"X", "Y", "Z"}
    assert site.state()["requests"] == {}, "and none of them is the served engine's"
    its_requests_its_gate_and_its_frames_are_its_alone(site, second)

    oldest = processes() - before
    third = start(site, "preemption", replace=first)
    assert message(site.get(f"/api/state?engine={first}")) == (
        410, f"engine {first!r} has ended: start its preset again")  # fmt: skip
    assert settled(site, third)["status"] == "ready"
    assert len(processes() - before) == 2
    assert len(oldest & processes()) == 1

    for each in (second, third):
        assert requests.delete(f"{site.base}/api/engines/{each}", timeout=30).json() == {"engine": each, "ended": True}
    until(gone(processes() - before))
    assert [each["id"] for each in site.get("/api/engines").json()["engines"]] == ["main"]
    assert site.complete("still here", max_tokens=2).status_code == 200


def its_requests_its_gate_and_its_frames_are_its_alone(site: Site, beside: str) -> None:
    site.post(f"/api/requests?engine={beside}", {"prompt": "to the preset", "max_tokens": 2})
    assert site.post(f"/api/control?engine={beside}", {"action": "resume"}).json()["gate"]["paused"] is False
    until(lambda: site.get(f"/api/state?engine={beside}").json()["requests"]["req-1"].get("finish_reason"))
    assert site.state()["requests"] == {}
    assert site.state()["gate"].get("paused") in (None, False)
    for path in ("/v1/models", "/metrics"):
        assert message(site.get(f"{path}?engine={beside}")) == (
            400, f"{path} is always the served engine's: leave ?engine= out")  # fmt: skip
    frames = watched(site, beside)
    assert {span["engine"] for span, _ in frames} == {beside}


def watched(site: Site, engine_id: str) -> list[tuple[dict[str, Any], bytes]]:
    """The frames of an engine with its newest entries, as a page gets them."""
    last = site.get(f"/api/state?engine={engine_id}").json()["seq"]
    frames: list[tuple[dict[str, Any], bytes]] = []
    complete = threading.Event()
    client = socketio.Client()

    @client.on("frame")
    def frame(span: dict[str, Any], data: bytes) -> None:
        frames.append((span, data))
        client.emit("ack", {"to": span["to"]})
        if span["to"] >= last:
            complete.set()

    client.connect(site.base, transports=["websocket"], auth={"seq": last - 9, "engine": engine_id})
    assert complete.wait(20)
    client.disconnect()
    assert decode(site.get(f"/api/log?from=1&to=1&engine={engine_id}").content).seq == 1
    return frames


def test_one_that_cannot_start_says_why_and_costs_nobody_anything(site: Site) -> None:
    before = processes()
    failing = start(site, "broken")
    described = settled(site, failing)
    assert described["status"] == "failed"
    assert "num_gpu_blocks_override must be at least 2" in described["error"]
    assert message(site.get(f"/api/state?engine={failing}"))[0] == 410
    assert processes() == before
    assert site.complete("still here", max_tokens=2).status_code == 200
    assert requests.delete(f"{site.base}/api/engines/{failing}", timeout=30).ok
    assert engine(site, failing) is None


def test_ending_one_that_starts_ends_its_process_at_once(site: Site) -> None:
    before = processes()
    starting = start(site, "steady-decode")
    until(lambda: processes() - before)
    assert message(site.get(f"/api/state?engine={starting}"))[0] == 503
    began = time.monotonic()
    assert requests.delete(f"{site.base}/api/engines/{starting}", timeout=30).ok
    until(gone(processes() - before))
    assert time.monotonic() - began < 3
    assert message(site.get(f"/api/state?engine={starting}"))[0] == 410


def test_what_does_not_exist_is_said_in_a_sentence(site: Site) -> None:
    assert message(site.post("/api/presets/nothing", {})) == (
        404, "there is no preset 'nothing': /api/presets lists them")  # fmt: skip
    for path in ("/api/state", "/api/config", "/api/log", "/api/trace/index", "/health"):
        assert message(site.get(f"{path}?engine=nobody")) == (
            404, "there is no engine 'nobody': /api/engines lists those that run")  # fmt: skip
    assert message(requests.delete(f"{site.base}/api/engines/main", timeout=30)) == (
        400, "the served engine ends with the server: stop `batchscope serve`")  # fmt: skip
    assert [each["name"] for each in site.get("/api/presets").json()["presets"]][:2] == [
        "two-five-three", "steady-decode"]  # fmt: skip
    socket = websocket.create_connection(
        f"{site.base.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket", timeout=30
    )  # fmt: skip
    assert socket.recv()[0] == "0"  # open
    socket.send('40{"seq": 0, "engine": "nobody"}')
    assert [socket.recv()[:2] for _ in range(2)] == ["40", "41"]  # connected, and disconnected at once
    socket.close()


def test_ctrl_c_ends_the_engines_of_presets_too_also_one_that_is_being_started() -> None:
    served = Served()
    try:
        served.post("/api/presets/resubmit")
        within(lambda: served.get("/api/engines")["engines"][1]["status"] == "ready", 60)
        served.post("/api/presets/preemption")
        pids = within(lambda: len(children(served.process.pid)) == 3 and children(served.process.pid))
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(20) == 0
        within(lambda: not any(map(alive, pids)))
    finally:
        served.stop()


def children(pid: int) -> set[int]:
    listed = subprocess.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True)
    return {int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

"""The gate of an engine in a process of its own, and over HTTP: what is still taken while a pass is held inside."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests
from helpers.fake_executor import fake_config, request
from helpers.tiny_engine import ask, solo, tiny
from helpers.web import Site, at_once, events, parsed, running_site, until

from engine.core_client import EngineDeadError
from engine.process_client import ProcessClient

HAND_OFF = "hand_off"


def held_at(client: ProcessClient, stop: str = HAND_OFF) -> dict[str, Any]:
    """Wait until the engine is held there; return the gate's state."""
    return until(lambda: (state := client.call("gate_state"))["stop"] == stop and state)


def outputs_of(client: ProcessClient, count: int) -> dict[tuple[str, int], list[int]]:
    """Read outputs until so many requests have finished; return their tokens by (id, submission)."""
    tokens: dict[tuple[str, int], list[int]] = {}
    while count:
        for output in client.get_outputs(20).outputs:
            assert output.error is None
            tokens.setdefault((output.request_id, output.submission), []).extend(output.new_token_ids)
            count -= output.finish_reason is not None
    return tokens


@pytest.fixture(scope="module")
def client() -> Iterator[ProcessClient]:
    made = ProcessClient(tiny(max_num_seqs=4, max_num_batched_tokens=64), lambda entry: None)
    yield made
    made.shutdown()


@pytest.fixture
def held(client: ProcessClient) -> Iterator[ProcessClient]:
    """An engine that is held at the hand-off of a pass that computes request X."""
    client.call("step_stop")
    client.add_request(ask("X", [1, 2, 3], 4, submission=1))
    held_at(client)
    yield client
    client.call("resume")
    until(lambda: client.call("stats") == {"running": 0, "waiting": 0, "num_free_blocks": 64})


def test_calls_are_answered_and_requests_wait_while_a_pass_is_held(held: ProcessClient) -> None:
    held.add_request(ask("Y", [4, 5], 2))
    assert held.call("stats").items() >= {"running": 1, "waiting": 1}.items()
    with pytest.raises(ValueError, match="held inside a pass"):
        held.call("reset_prefix_cache", True)
    with pytest.raises(ValueError, match="no utility"):
        held.call("exit")
    before = cpu_seconds(held.pid)
    assert held.get_outputs(0.4).outputs == []
    assert cpu_seconds(held.pid) - before < 0.1, "it waits without spinning"
    held.call("resume")
    assert outputs_of(held, 2) == {("X", 1): solo([1, 2, 3], 4), ("Y", 0): solo([4, 5], 2)}


def test_an_id_that_is_aborted_while_its_pass_is_held_can_come_again_at_once(held: ProcessClient) -> None:
    held.abort_requests(["X"])
    held.add_request(ask("X", [7, 8], 3, submission=2))
    held.call("step_stop")
    held_at(held, "before_update_from_output")
    held.call("resume")
    assert outputs_of(held, 1) == {("X", 2): solo([7, 8], 3)}


def test_whoever_comes_again_while_the_pass_is_held_can_be_aborted_as_well(held: ProcessClient) -> None:
    held.abort_requests(["X"])
    held.add_request(ask("X", [7, 8], 200, submission=2))
    held.abort_requests(["X"])
    held.call("resume")
    assert held.get_outputs(0.1).outputs == []
    assert held.call("stats") == {"running": 0, "waiting": 0, "num_free_blocks": 64}


def test_between_paced_passes_the_engine_sleeps_and_takes_calls(client: ProcessClient) -> None:
    client.call("set_rate", 4)
    client.add_request(ask("P", [1, 2, 3], 100))
    until(lambda: client.get_outputs(1).outputs)
    before, began, passes = cpu_seconds(client.pid), time.monotonic(), 0
    while passes < 3:
        passes += len(client.get_outputs(1).outputs)
    assert 0.6 < time.monotonic() - began < 1.2
    assert cpu_seconds(client.pid) - before < 0.3
    began = time.monotonic()
    client.call("stats")
    assert time.monotonic() - began < 0.2
    client.call("set_rate", None)
    client.abort_requests(["P"])


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_engine_that_is_held_inside_a_pass_shuts_down_and_its_death_is_noticed() -> None:
    ending, dying = (ProcessClient(fake_config(), lambda entry: None) for _ in range(2))
    for one in (ending, dying):
        one.call("step_stop")
        one.add_request(request("A"))
        held_at(one)
    ending.shutdown()
    assert ending._process.exitcode == 0, "it came to its end by itself"
    os.kill(dying.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        dying.get_outputs(20)
    dying.shutdown()


# --- over HTTP -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as running:
        yield running


def control(site: Site, action: str, **fields: Any) -> dict[str, Any]:
    answer = site.post("/api/control", {"action": action, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["gate"]


@pytest.fixture
def stream(site: Site) -> Iterator[requests.Response]:
    """A stream whose request is held at the hand-off of its first pass."""
    control(site, "step_stop")
    response = site.complete("held", max_tokens=8, ignore_eos=True, stream=True, headers={"X-Request-Id": "held"})
    until(lambda: site.state()["gate"].get("held"))
    yield response
    response.close()
    control(site, "breakpoints", breakpoints=[])
    control(site, "resume")
    until(lambda: site.rows() == [])


def test_the_state_tells_what_the_held_pass_has_done_so_far(site: Site, stream: requests.Response) -> None:
    gate = site.state()["gate"]
    assert (gate["paused"], gate["stop"]) == (True, HAND_OFF)
    assert gate["held"]["pass_id"] == site.state()["pass_id"] + 1
    assert gate["held"]["phases"][-2]["facts"]["parked"] is True
    why = site.get("/api/why?request=held").json()
    assert (why["pass"], why["code"]) == (gate["held"]["pass_id"], "scheduled")
    assert control(site, "step_stop")["stop"] in (None, "before_update_from_output")
    until(lambda: site.state()["gate"]["stop"] == "before_update_from_output")
    control(site, "step")
    until(lambda: site.state()["gate"]["stop"] == "before_schedule")
    assert site.state()["pass_id"] == gate["held"]["pass_id"]


def test_a_stream_is_kept_alive_and_the_server_stays_well_while_a_pass_is_held(
    site: Site, stream: requests.Response
) -> None:
    lines = stream.iter_lines()
    assert next(lines).startswith(b": ")
    assert site.get("/health").status_code == 200
    assert site.get("/is_paused").json() == {"is_paused": True}
    assert site.post("/pause", None).status_code == 200
    refused = site.post("/reset_prefix_cache?reset_running_requests=true", None)
    assert (refused.status_code, "held inside a pass" in refused.text) == (409, True)
    other = site.complete("other", max_tokens=2, stream=True)
    assert site.state()["gate"]["stop"] == HAND_OFF, "nobody's coming or going resumes it"
    assert site.post("/resume", None).status_code == 200
    assert events(other)[-1] == parsed(lines)[-1] == "[DONE]"


def test_openais_client_waits_through_the_comments(site: Site, stream: requests.Response) -> None:
    client = openai.OpenAI(base_url=f"{site.base}/v1", api_key="none", max_retries=0)

    def ask_it() -> str:
        chunks = client.completions.create(model="tiny", prompt="waits", max_tokens=3, temperature=0, stream=True)
        return "".join(chunk.choices[0].text for chunk in chunks)

    def let_go() -> None:
        time.sleep(1.2)
        control(site, "resume")

    text, _ = at_once([ask_it, let_go])
    assert text == site.complete("waits", max_tokens=3).json()["choices"][0]["text"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"action": "explode"}, "action", "pause, resume, step, step_stop, rate, breakpoints"),
        ({"action": "step", "passes": 0}, "passes", "from 1 to 1000"),
        ({"action": "rate", "rate": 0}, "rate", "from 0.01 to 10000"),
        ({"action": "rate"}, "rate", "rate is missing"),
        ({"action": "rate", "rate": "fast"}, "rate", "expected float"),
        ({"action": "breakpoints"}, "breakpoints", "give a list"),
        ({"action": "breakpoints", "breakpoints": [{"on": "x"}]}, "breakpoints", "on is one of row_moved"),
    ],
)
def test_what_the_gate_cannot_do_is_refused_by_name(site: Site, body: Any, param: str, words: str) -> None:
    answer = site.post("/api/control", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert words in answer.json()["error"]["message"]


def test_a_breakpoint_over_http_is_hit_and_told_to_all_viewers(site: Site) -> None:
    wanted = [{"on": "finished"}]
    assert control(site, "breakpoints", breakpoints=wanted)["breakpoints"] == wanted
    site.post("/api/requests", {"prompt": "short", "max_tokens": 2})
    hit = until(lambda: site.state()["gate"]["hit"])
    assert (hit["on"], hit["phase"], hit["pass_id"]) == ("finished", "update_from_output", site.state()["pass_id"])
    control(site, "breakpoints", breakpoints=[])
    assert control(site, "resume")["hit"] is None


def test_a_server_that_stops_while_a_pass_is_held_answers_open_requests() -> None:
    with running_site() as site:
        control(site, "step_stop")
        response = site.complete("held", max_tokens=800, ignore_eos=True, stream=True)
        until(lambda: site.state()["gate"].get("held"))
    assert [event if event == "[DONE]" else event["choices"][0]["finish_reason"] for event in events(response)] == [
        "abort", "[DONE]"
    ]  # fmt: skip

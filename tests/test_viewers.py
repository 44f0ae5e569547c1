"""CASES 49 with real sockets and --share: who never reads costs nothing, and who may not look is refused."""

import json
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import websocket
from helpers.threads import one_thread
from helpers.tiny_engine import tiny
from helpers.web import Site, until

from engine.async_llm import AsyncLLM
from engine.inproc_client import InprocClient
from tracer.schema import EventRecord, encode
from webui.app import UNWATCHED_DELAY_S
from webui.broadcaster import IN_FLIGHT
from webui.security import Access
from webui.server import Server, listen

PRESENTER, VIEWER = "presenter-token", "viewer-token"
EVENTS = 100_000


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with one_thread(), listen("127.0.0.1", 0) as listener:
        llm = AsyncLLM(tiny(), InprocClient)
        port = listener.getsockname()[1]
        server = Server(llm, listener, Access("127.0.0.1", port, PRESENTER, VIEWER))
        server.start()
        yield Site(server, llm, f"http://127.0.0.1:{port}")
        server.stop()


def connect(site: Site, token: str | None = VIEWER, origin: str | None = None) -> websocket.WebSocket:
    """A websocket that has said which entries it knows: none."""
    cookie = None if token is None else f"{site.server.services.access.cookie}={token}"
    address = site.base.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket"
    connection = websocket.create_connection(address, cookie=cookie, origin=origin or site.base, timeout=20)
    connection.recv()
    connection.send('40{"seq": -1}')
    return connection


def watched(site: Site) -> dict[str, int]:
    return site.get("/api/engines", headers={"Authorization": f"Bearer {VIEWER}"}).json()["watched"]["main"]


def happen(site: Site, count: int) -> float:
    """Let so much happen in the engine's log, and return the seconds that it took."""
    log = site.llm.log
    began = time.monotonic()
    for seq in range(log.last_seq + 1, log.last_seq + 1 + count):
        log.append(encode(EventRecord(seq, "gate", 0.0, {"paused": False, "filler": "x" * 100})))
    return time.monotonic() - began


def test_a_viewer_who_never_reads_while_100_000_things_happen_costs_nothing_and_is_counted(shared: Site) -> None:
    alone = happen(shared, EVENTS // 10)
    deaf = connect(shared)
    until(lambda: watched(shared)["viewers"] == 1)
    beside = happen(shared, EVENTS)
    assert beside / 10 < 2 * alone + 0.1, "the engine's side does not wait"
    until(lambda: watched(shared)["skipped_frames"] > 0)

    reader = connect(shared)
    last = shared.llm.log.last_seq
    seen: list[int] = []
    while not seen or seen[-1] < last:
        message = reader.recv()
        if isinstance(message, str) and '"to"' in message:
            seen.append(json.loads(message.partition("-")[2])[1]["to"])
        elif isinstance(message, str) and message.startswith('42["resync"'):
            seen.append(json.loads(message[2:])[1]["seq"])
    reader.close()

    queues = [socket.queue.qsize() for socket in shared.server.app.extensions["socketio"].server.eio.sockets.values()]
    assert max(queues) <= 2 * IN_FLIGHT + 2, "nothing piles up for who does not read"
    skipped = watched(shared)["skipped_frames"]
    deaf.close()
    until(lambda: watched(shared)["viewers"] == 0)
    assert watched(shared)["skipped_frames"] >= skipped, "what was skipped stays counted"


@pytest.mark.parametrize(("token", "origin"), [(None, None), ("wrong", None), (VIEWER, "http://evil.example")])
def test_without_a_token_or_from_a_foreign_page_no_socket_opens(
    shared: Site, token: str | None, origin: str | None
) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        connect(shared, token, origin)


def test_the_trace_may_come_late_while_nobody_looks_and_must_not_while_somebody_does(shared: Site) -> None:
    until(lambda: shared.server.services.broadcaster._told is False)
    told: list[float] = []
    with patch.object(shared.llm, "set_trace_delay", told.append):
        first, second = connect(shared), connect(shared)
        until(lambda: watched(shared)["viewers"] == 2)
        until(lambda: told == [0.0])
        first.close()
        second.close()
        until(lambda: told == [0.0, UNWATCHED_DELAY_S])


def test_a_viewer_looks_at_engines_and_presets_and_only_a_presenter_starts_or_ends_one(shared: Site) -> None:
    def as_(token: str) -> dict[str, dict[str, str]]:
        return {"headers": {"Authorization": f"Bearer {token}"}}

    assert shared.get("/api/presets", **as_(VIEWER)).ok
    assert shared.get("/api/engines", **as_(VIEWER)).ok
    refused = shared.post("/api/presets/two-five-three", {}, **as_(VIEWER))
    assert (refused.status_code, "only the presenter's may act" in refused.text) == (403, True)
    assert shared.post("/api/presets/nothing", {}, **as_(PRESENTER)).status_code == 404
    assert shared.get("/api/presets").status_code == 403


def test_the_token_leaves_the_address_and_the_engine_stays_in_it(shared: Site) -> None:
    for path, then in (("/?token={}", "/"), ("/?engine=a-1&token={}", "/?engine=a-1"),
                       ("/compare?left=a-1&token={}", "/compare?left=a-1")):  # fmt: skip
        answer = shared.get(path.format(VIEWER), allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (303, then)

"""The page's routes and its live connection, with a real engine behind them."""

import msgspec
import pytest
import requests
import socketio
from helpers.web import at_once, events, running_site, until

from tracer.fold import fold, new_state
from tracer.phases import Phase
from tracer.schema import decode
from webui import broadcaster
from webui.broadcaster import IN_FLIGHT


@pytest.fixture(scope="module")
def site():
    with running_site() as running:
        yield running


def split(data: bytes, count: int) -> list:
    """Decode `count` entries that lie end to end."""
    maps = msgspec.msgpack.decode(b"\xdd" + count.to_bytes(4, "big") + data)
    return [decode(msgspec.msgpack.encode(entry)) for entry in maps]


class Browser:
    """A viewer on a real websocket: keeps what it is sent, and acknowledges it if told to."""

    def __init__(self, site, seq=-1, acknowledges=True, **headers):
        self.frames, self.resyncs = [], []
        self.acknowledges = acknowledges
        self.client = socketio.Client(reconnection=False)
        self.client.on("frame", self.on_frame)
        self.client.on("resync", lambda data: self.resyncs.append(data["seq"]))
        self.client.connect(site.base, headers=headers, auth={"seq": seq}, transports=["websocket"])

    def on_frame(self, span, data):
        self.frames.append((span, data))
        if self.acknowledges:
            self.client.emit("ack", {"to": span["to"]})

    @property
    def seq(self):
        return self.frames[-1][0]["to"] if self.frames else -1

    def entries(self):
        return [entry for span, data in self.frames for entry in split(data, span["to"] - span["from"] + 1)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.disconnect()


def run_some(site, count=12, max_tokens=24):
    """Requests of different lengths, so that rows leave apart and others move into their places."""
    prompts = [f"request {i} " * (i + 1) for i in range(count)]
    at_once([lambda i=i: site.complete(prompts[i], max_tokens=max_tokens + 3 * i) for i in range(count)])


def test_what_a_browser_is_sent_folds_into_exactly_the_state():
    with running_site() as site, Browser(site) as browser:
        run_some(site)
        until(lambda: browser.seq == site.state()["seq"] > 0)
        entries = browser.entries()
        assert [entry.seq for entry in entries] == list(range(len(entries)))
        state = new_state(8)
        for entry in entries:
            fold(state, entry)
        assert state == site.state()
        assert any(change[0] == "move" for e in entries if e.kind == "pass" for p in e.phases for change in p.changes)


def test_a_browser_that_takes_the_state_goes_on_from_there(site):
    run_some(site, count=3)
    state = site.state()
    with Browser(site, seq=state["seq"]) as browser:
        run_some(site, count=3)
        until(lambda: browser.seq == site.state()["seq"])
        assert browser.frames[0][0]["from"] == state["seq"] + 1
        for entry in browser.entries():
            fold(state, entry)
        assert state == site.state()


def test_a_browser_that_never_acknowledges_slows_nobody_and_is_resynced_when_it_comes_back(site, monkeypatch):
    monkeypatch.setattr(broadcaster, "MAX_BEHIND", 200)  # some periods' worth
    with Browser(site, seq=site.state()["seq"], acknowledges=False) as sleeper, Browser(site) as other:
        while site.state()["seq"] - sleeper.seq < 300 or not sleeper.resyncs:
            site.complete("go on", max_tokens=60, ignore_eos=True)
        assert len(sleeper.frames) == IN_FLIGHT
        assert len(sleeper.resyncs) == 1
        until(lambda: other.seq == site.state()["seq"])
        state = site.state()
        sleeper.client.emit("ack", {"to": state["seq"]})
        sleeper.acknowledges = True
        del sleeper.frames[:]
        run_some(site, count=2)
        until(lambda: sleeper.seq == site.state()["seq"])
        for entry in sleeper.entries():
            if entry.seq > state["seq"]:
                fold(state, entry)
        assert state == site.state()


def test_a_page_from_elsewhere_gets_no_connection(site):
    with pytest.raises(socketio.exceptions.ConnectionError):
        Browser(site, Origin="http://evil.example")
    with pytest.raises(socketio.exceptions.ConnectionError):
        Browser(site, Host="evil.example")


def test_a_foreign_origin_or_host_may_neither_act_nor_look(site):
    body = {"action": "pause"}
    assert site.post("/api/control", body, headers={"Origin": "http://evil.example"}).status_code == 403
    assert site.get("/api/state", headers={"Host": "evil.example"}).status_code == 403
    assert site.state()["gate"].get("paused", False) is False


def test_frames_are_not_compressed(site):
    """Compression for each of fifty viewers would take most of a core."""
    headers = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Extensions": "permessage-deflate",
    }  # fmt: skip
    with requests.get(site.base + "/socket.io/?EIO=4&transport=websocket", headers=headers, stream=True) as answer:
        assert answer.status_code == 101
        assert "Sec-WebSocket-Extensions" not in answer.headers


def test_requests_from_the_page_run_to_their_end_with_nobody_reading_them(site):
    answer = site.post("/api/requests", {"prompt": "copies", "max_tokens": 30, "copies": 5, "ignore_eos": True})
    ids = answer.json()["request_ids"]
    assert len(set(ids)) == 5
    until(lambda: all(site.finished(i) == "length" for i in ids))
    assert len(site.state()["requests"][ids[0]]["output_token_ids"]) == 30
    until(lambda: not site.server.services.live.ids())


def test_any_live_request_can_be_cancelled_by_id(site):
    long = {"max_tokens": 900, "ignore_eos": True}
    [mine] = site.post("/api/requests", {"prompt": "mine", **long}).json()["request_ids"]
    theirs = site.complete("theirs", stream=True, headers={"X-Request-Id": "group/theirs"}, **long)
    for req_id in (mine, "group/theirs"):
        assert site.get("/api/state").json()["requests"][req_id].get("finish_reason") is None
        assert requests.delete(f"{site.base}/api/requests/{req_id.replace('/', '%2F')}").status_code == 200
        assert until(lambda r=req_id: site.finished(r)) == "abort"
    assert events(theirs)[-2]["choices"][0]["finish_reason"] == "abort"
    assert requests.delete(f"{site.base}/api/requests/{mine}").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/api/requests", {"prompt": "a", "copies": 0}, "copies"),
        ("/api/requests", {"prompt": "a", "copies": 65}, "copies"),
        ("/api/requests", {"prompt": ["a"]}, "prompt"),
        ("/api/requests", {"prompt": ""}, "prompt"),
        ("/api/requests", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("/api/requests", {}, "prompt"),
        ("/api/control", {"action": "explode"}, "action"),
        ("/api/control", {"action": "step", "passes": 0}, "passes"),
    ],
)
def test_what_the_page_cannot_ask_is_refused_by_name(site, path, body, param):
    answer = site.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_pause_holds_the_engine_and_step_lets_just_so_many_passes_through(site):
    assert site.post("/api/control", {"action": "pause"}).json()["gate"]["paused"] is True
    try:
        site.post("/api/requests", {"prompt": "held", "max_tokens": 50, "ignore_eos": True})
        before = site.state()["pass_id"]
        site.post("/api/control", {"action": "step", "passes": 3})
        until(lambda: site.state()["pass_id"] == before + 3)
        assert site.state()["gate"]["paused"] is True
        assert site.state()["pass_id"] == before + 3
    finally:
        assert site.post("/api/control", {"action": "resume"}).json()["gate"]["paused"] is False
    until(lambda: site.rows() == [])


def test_a_pass_is_served_as_it_was_recorded(site):
    run_some(site, count=2)
    last = site.state()["pass_id"]
    record = site.get(f"/api/passes/{last}").json()
    assert record == msgspec.msgpack.decode(site.llm.log.pass_bytes(last))
    assert site.get(f"/api/passes/{last + 1000}").status_code == 404


def test_the_log_is_served_in_bounded_pieces_that_join_without_a_gap(site):
    run_some(site, count=6, max_tokens=64)
    last = site.state()["seq"]
    joined, at = b"", 0
    while at <= last:
        reply = site.get(f"/api/log?from={at}&to={last}")
        assert 0 < len(reply.content) <= 256_000
        joined += reply.content
        at = int(reply.headers["X-To-Seq"]) + 1
    assert joined == b"".join(site.llm.log.entries(0, last))
    assert site.get("/api/log?from=x").status_code == 400


def test_the_vocabulary_gives_the_bytes_of_every_token_and_is_sent_once(site):
    reply = site.get("/api/vocab")
    vocab = msgspec.msgpack.decode(reply.content)
    tokenizer = site.llm.tokenizer
    assert vocab["tokens"] == [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    assert vocab["special"] == [i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)]
    assert site.get("/api/vocab", headers={"If-None-Match": reply.headers["ETag"]}).status_code == 304


def test_the_page_learns_what_it_watches(site):
    config = site.get("/api/config").json()
    assert (config["model"], config["max_num_seqs"], config["block_size"]) == ("tiny", 8, 16)
    assert config["num_gpu_blocks"] == 200
    assert config["phases"] == [phase.value for phase in Phase]
    samples = site.get("/api/samples").json()["samples"]
    assert len(samples) == 24
    assert len({len(sample["prompt"]) for sample in samples}) > 12


def test_the_page_and_its_modules_are_served_and_kept_by_the_browser(site):
    page = site.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    for path in ("/", "/static/fold.js"):
        first = site.get(path)
        again = site.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (first.status_code, again.status_code) == (200, 304)
    assert site.get("/static/fold.js").headers["Content-Type"].startswith("text/javascript")

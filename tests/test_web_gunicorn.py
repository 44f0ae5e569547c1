"""The same API under gunicorn: one worker, threads."""

import os
import socket
import subprocess
import sys

import pytest
import requests
import socketio
from helpers.house import ROOT
from helpers.web import ONE_THREAD, parsed, until
from test_web_server import alive, children

SETTINGS = 'model="tiny", max_num_seqs=8, max_num_batched_tokens=64, num_gpu_blocks_override=200, api_key="sesame"'
KEY = {"Authorization": "Bearer sesame"}


class Gunicorn:
    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "gunicorn", "--workers", "1", "--threads", "40", "--bind", f"127.0.0.1:{port}"]
        self.popen = subprocess.Popen(
            [*command, f"webui.wsgi:app({SETTINGS})"], cwd=ROOT, env=os.environ | ONE_THREAD,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until(self._answers, timeout=60)

    def _answers(self):
        assert self.popen.poll() is None, self.popen.stderr.read()
        try:
            return requests.get(self.base + "/health", timeout=5).ok
        except requests.RequestException:  # not there yet, or still loading
            return False

    def post(self, path="/v1/completions", **body):
        return requests.post(self.base + path, json=body, headers=KEY, stream=bool(body.get("stream")), timeout=60)

    def state(self):
        return requests.get(self.base + "/api/state", timeout=10).json()


@pytest.fixture(scope="module")
def server():
    running = Gunicorn()
    yield running
    running.popen.kill()
    running.popen.communicate()


def test_whole_and_streamed_answers_are_the_same(server):
    fields = {"prompt": "Hello", "max_tokens": 12, "ignore_eos": True, "temperature": 0}
    whole = server.post(**fields).json()["choices"][0]["text"]
    stream = parsed(server.post(**fields, stream=True).iter_lines())
    assert stream[-1] == "[DONE]"
    assert "".join(item["choices"][0]["text"] for item in stream[:-1]) == whole


def test_chat_models_page_and_key(server):
    message = [{"role": "user", "content": "Hi"}]
    assert server.post("/v1/chat/completions", messages=message, max_tokens=2).ok
    assert requests.get(server.base + "/v1/models", timeout=10).status_code == 401
    assert "<html" in requests.get(server.base + "/", timeout=10).text


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_row(server, stream):
    name = f"leaves-{stream}"
    body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": stream, "request_id": name}
    if stream:
        answer = server.post(**body)
        next(answer.iter_lines())
        answer.close()
    else:
        with pytest.raises(requests.Timeout):
            requests.post(server.base + "/v1/completions", json=body, headers=KEY, timeout=0.3)
    assert until(lambda: server.state()["requests"].get(name, {}).get("finish_reason")) == "abort"


def test_a_browser_follows_over_a_websocket(server):
    seen = []
    browser = socketio.Client(reconnection=False)
    browser.on("frame", lambda head, data: seen.append(head))
    browser.connect(server.base, auth={"seq": server.state()["seq"]}, transports=["websocket"])
    try:
        server.post(prompt="watched", max_tokens=3)
        assert until(lambda: seen)
    finally:
        browser.disconnect()  # or the server would wait for it


def test_it_ends_and_leaves_no_engine_behind():
    running = Gunicorn()
    answer = running.post(prompt="x", max_tokens=900, ignore_eos=True, stream=True)
    next(answer.iter_lines())
    answer.close()
    family = children(running.popen.pid)
    running.popen.terminate()
    _, told = running.popen.communicate(timeout=40)
    assert running.popen.returncode == 0
    assert "Traceback" not in told
    assert until(lambda: not alive(family))

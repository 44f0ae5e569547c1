"""A server on a free port with the tiny model behind it, and the few calls that web tests make."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import requests

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from webui.security import Access
from webui.server import Server, listen

# Small enough that rows wait, chunk, preempt and move in tests.
TINY: dict[str, Any] = {
    "model": "tiny",
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "num_gpu_blocks_override": 200,
}
# Two threads that wait for each other are many times slower than one where other tests use the cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


class Site:
    """One running server."""

    def __init__(self, server: Server, llm: AsyncLLM, base: str) -> None:
        self.server = server
        self.llm = llm
        self.base = base

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.base + path, timeout=60, **options)

    def post(self, path: str, body: Any, **options: Any) -> requests.Response:
        return requests.post(self.base + path, json=body, timeout=60, **options)

    def complete(self, prompt: Any, headers: dict[str, str] | None = None, **fields: Any) -> requests.Response:
        body = {"prompt": prompt, "temperature": 0, **fields}
        return self.post("/v1/completions", body, headers=headers, stream=bool(fields.get("stream")))

    def state(self) -> dict[str, Any]:
        return self.get("/api/state").json()

    def rows(self) -> list[str]:
        """The ids of the requests in the batch."""
        return [row["req_id"] for row in self.state()["rows"] if row]

    def finished(self, req_id: str) -> str | None:
        """How a request ended, None while it is live."""
        return self.state()["requests"].get(req_id, {}).get("finish_reason")


@contextmanager
def running_site(access: dict[str, Any] | None = None, **flags: Any) -> Iterator[Site]:
    """`access`: fields of Access, such as api_key; `flags`: settings of the engine."""
    with mock.patch.dict(os.environ, ONE_THREAD):  # for the engine's process, which starts here
        llm = AsyncLLM(EngineConfig.make(**{**TINY, **flags}))
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        server = Server(llm, listener, Access("127.0.0.1", port, **(access or {})))
        server.start()
        try:
            yield Site(server, llm, f"http://127.0.0.1:{port}")
        finally:
            server.stop()


def events(response: requests.Response) -> list[Any]:
    """The events of a stream, read to its end: parsed JSON, and "[DONE]" as it stands."""
    return parsed(response.iter_lines())


def parsed(lines: Iterable[bytes]) -> list[Any]:
    """The events in the lines of a stream; comments are passed over."""
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    return [item.decode() if item == b"[DONE]" else json.loads(item) for item in data]


def text_of(stream: list[Any]) -> str:
    return "".join(choice["text"] for item in stream if item != "[DONE]" for choice in item.get("choices", ()))


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Make every call in a thread of its own and return what they returned."""
    results: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def until(holds: Callable[[], Any], timeout: float = 10.0) -> Any:
    """Wait until `holds` returns something true, and return it. Fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        assert time.monotonic() < deadline, f"still not so after {timeout} s"
        time.sleep(0.02)
    return found

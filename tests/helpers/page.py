"""`batchscope serve` on the tiny model as a process, and a page on it that notes what goes wrong."""

import atexit
import functools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from tracer.schema import EventRecord, PassRecord, decode

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

# 16 rows over few tokens a pass, so that prompts come in chunks and rows leave, move and swap.
FLAGS = ("--model", "tiny", "--max-num-seqs", "16", "--max-num-batched-tokens", "96", "--port", "0")

DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SIZE = {"viewport": {"width": 1280, "height": 720}}


class Served:
    """A `batchscope serve` process and its HTTP routes."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-c", "import sys; from batchscope.cli import main; sys.exit(main())", "serve"]
        self.process = subprocess.Popen([*command, *FLAGS, *flags], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found, "batchscope serve printed no address"
        self.base = found[0]

    def get(self, path: str) -> Any:
        reply = requests.get(self.base + path, timeout=30)
        reply.raise_for_status()
        return reply.json()

    def post(self, path: str, **body: Any) -> Any:
        reply = requests.post(self.base + path, json=body, timeout=30)
        reply.raise_for_status()
        return reply.json()

    def state(self) -> dict[str, Any]:
        return self.get("/api/state")

    def entries(self) -> list[PassRecord | EventRecord]:
        """The whole log, entry by entry."""
        last = self.state()["seq"]
        urls = (f"{self.base}/api/log?from={seq}&to={seq}" for seq in range(last + 1))
        return [decode(requests.get(url, timeout=30).content) for url in urls]

    def rest(self) -> None:
        """Let the passes run, end every request, and forget what the prefix cache knows."""
        self.post("/api/control", action="resume")
        for req_id in live(self.state()):
            requests.delete(f"{self.base}/api/requests/{req_id}", timeout=30)
        within(lambda: not live(self.state()) and not any(self.state()["rows"]))
        within(lambda: requests.post(f"{self.base}/reset_prefix_cache", timeout=30).ok)

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@functools.cache
def shared_server() -> Served:
    """One server for all page tests of a session."""
    served = Served()
    atexit.register(served.stop)
    return served


_resting: dict[str, list["BrowserContext"]] = {}  # contexts that no test uses now, by their options


@contextmanager
def open_page(browser: "Browser", served: Served, **options: Any) -> Iterator["Page"]:
    """A page that has loaded its state. Fails if it logged an error or asked another server for anything."""
    with _new_page(browser, served.base, **SIZE | options) as page:
        errors: list[str] = []
        foreign: list[str] = []
        expected: list[str] = []  # parts of error texts that a test provokes
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type in ("error", "warning") else None)
        page.on("request", lambda request: foreign.append(request.url) if _foreign(request, served) else None)
        page.expected_errors = expected  # type: ignore[attr-defined]
        page.goto(served.base)
        until(page, "window.__model !== undefined")
        until(page, "document.querySelector('#link').textContent === 'live'")
        yield page
        unexpected = [text for text in errors if not any(part in text for part in expected)]
        assert unexpected == [], unexpected
        assert foreign == [], foreign


@contextmanager
def _new_page(browser: "Browser", origin: str, **options: Any) -> Iterator["Page"]:
    """A page in a context that has kept the page's files from earlier tests, and of origin nothing else."""
    resting = _resting.setdefault(repr(sorted(options.items())), [])
    context = resting.pop() if resting else browser.new_context(**options)
    page = context.new_page()
    forget = {"origin": origin, "storageTypes": "cookies,local_storage,indexeddb"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", forget)
    try:
        yield page
    finally:
        for each in context.pages:
            each.close()
        resting.append(context)


def live(state: dict[str, Any]) -> list[str]:
    return [req_id for req_id, request in state["requests"].items() if "finish_reason" not in request]


def until(page: "Page", expression: str, timeout: float = 30) -> Any:
    """Wait until the expression is true in the page, and what it says of __model drawn. Returns its value.

    (Playwright's own wait needs eval, which the page forbids.)
    """
    value = within(lambda: page.evaluate(expression), timeout, expression)
    if "__model" in expression:
        page.evaluate("new Promise(requestAnimationFrame)")
    return value


def within(condition: Any, timeout: float = 30, what: str = "the condition") -> Any:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true in {timeout} s")


def pause(page: "Page", served: Served) -> dict[str, Any]:
    """Pause by the page's button; return /api/state once the page has caught up with it."""
    page.click("#pause")
    until(page, "__model.gate.paused")
    return settled(page, served)


def settled(page: "Page", served: Served) -> dict[str, Any]:
    """/api/state at a moment when the page shows all of it."""

    def same() -> dict[str, Any] | None:
        state = served.state()
        return state if state["seq"] == page.evaluate("__model.seq") and not state["gate"].get("permits") else None

    state = within(same, what="the page catching up with the engine")
    page.evaluate(DRAWN)
    return state


def table(page: "Page", selector: str) -> list[list[str]]:
    """The texts of a table's body as a screen reader gets them."""
    return page.evaluate(
        """async (selector) => {
             const table = document.querySelector(selector);
             while (table.ariaBusy === "true") await new Promise(requestAnimationFrame);
             const lines = Array.from(table.tBodies[0].rows);
             return lines.map((line) => Array.from(line.cells, (cell) => cell.textContent)); }""",
        selector,
    )


def _foreign(request: "Request", served: Served) -> bool:
    return urlsplit(request.url).netloc != urlsplit(served.base).netloc and not request.url.startswith("data:")

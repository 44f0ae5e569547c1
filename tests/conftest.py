"""What every test may ask for.

`smollm2`        path of the fetched default model (a GGUF file), as a string; session-scoped
`chromium_path`  path of a real Chromium, as a string; session-scoped
`browser`        a headless Playwright browser (sync API) on that Chromium; session-scoped
`site`           a running server (helpers.web.Site) with the default model and a key; session-scoped
`served`         `batchscope serve` on the tiny model as a process (helpers.page.Served), at rest again after the test
`page`           a page on `served` that has loaded its state

A page test is a plain function marked `browser`:

    pytestmark = pytest.mark.browser

    def test_a_step_is_one_pass(page, served):
        served.post("/api/control", action="pause")
        ...

Where there is no Chromium, tests that use `browser` are skipped and the summary says so in capitals; with CI set in the
environment, they fail.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import ADVICE, LAUNCH_ARGS, find_chromium
from hypothesis import HealthCheck, settings

from batchscope.environment import let_threads_give_way

if TYPE_CHECKING:
    from helpers.page import Served
    from helpers.web import Site
    from playwright.sync_api import Browser, Page

let_threads_give_way()  # before a test imports torch

for _name, _examples in (("dev", 50), ("ci", 100), ("long", 3000)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of a real Chromium. Skips where there is none, and fails instead with CI set."""
    if path := find_chromium():
        return path
    if os.environ.get("CI"):
        pytest.fail(f"no Chromium, and with CI set the browser tests must run: {ADVICE}")
    pytest.skip(f"no Chromium: {ADVICE}")


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator["Browser"]:
    """A headless browser for the whole session. Each test opens its own page or context and closes it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path, args=LAUNCH_ARGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def smollm2() -> str:
    """Path of the default model's GGUF file, which `make test` fetches first. Fails where it isn't there."""
    from engine.cache import cache_folder
    from engine.fetch import MEMBER

    path = cache_folder() / Path(MEMBER).name
    if not path.is_file():
        pytest.fail(f"there is no {path}: run `make model` (or `python -m engine.fetch`) once")
    return str(path)


@pytest.fixture(scope="session")
def site(smollm2: str) -> Iterator["Site"]:
    """A server with the default model behind it, for the tests of real clients. Its key is helpers.clients.KEY."""
    from helpers.clients import KEY, MODEL
    from helpers.web import running_site

    settings = {"model": MODEL, "max_num_batched_tokens": 256, "kv_cache_memory_bytes": 1 << 27}
    with running_site({"api_key": KEY}, num_gpu_blocks_override=None, **settings) as running:
        yield running


@pytest.fixture
def served() -> Iterator["Served"]:
    """The server that all page tests share. A module whose tests need other settings has a `served` of its own."""
    from helpers.page import shared_server

    server = shared_server()
    yield server
    server.rest()


@pytest.fixture
def page(browser: "Browser", served: "Served") -> Iterator["Page"]:
    """A page of 1280 by 720 on `served`. Fails the test if the page logs an error or asks another server."""
    from helpers.page import open_page

    with open_page(browser, served) as opened:
        yield opened


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(ADVICE in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.section("BROWSER TESTS DID NOT RUN", sep="!", red=True, bold=True)
        terminalreporter.write_line(f"There is no Chromium on this machine. To run them, {ADVICE}.")

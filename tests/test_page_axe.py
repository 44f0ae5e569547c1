"""axe-core finds nothing serious on the page: light and dark, running, paused, parked, replayed, and in its dialogs."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers.page import open_page, settled, until
from helpers.recorded import write

from batchscope.cli import main

pytestmark = pytest.mark.browser

GRAVE = ("serious", "critical")


def grave(page):
    """What axe-core holds against the page, as lines of text."""
    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {' '.join(node['target'])} ({node['failureSummary'][:200]})"
        for fault in found
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]


@pytest.fixture
def busy(served):
    """Rows in prefill, rows that decode, requests that wait, and one that has ended."""
    served.post("/api/control", action="pause")
    for words, tokens in ((2, 1), (3, 40), (30, 40), (60, 40)):
        served.post("/api/requests", prompt="word " * words, copies=5, max_tokens=tokens, ignore_eos=True)
    served.post("/api/control", action="step", passes=4)
    return served


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_on_a_paused_page_whatever_is_opened_or_chosen(browser, busy, scheme):
    with open_page(browser, busy, color_scheme=scheme) as page:
        settled(page, busy)
        page.click("#batch tr[data-row='1'] .state")
        page.click("[data-phase=add_requests]")
        page.click("#tab-code")
        for panel in ("kv", "presets", "charts"):
            page.click(f"#{panel}-open")
        for panel in ("axis", "kv", "timeline"):
            page.click(f"#{panel}-table-toggle")
        page.hover("#batch tr[data-row='2'] .state")
        assert grave(page) == []
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.click("#tab-changes")
        page.click("#type")
        page.keyboard.press("ArrowLeft")
        until(page, "!__model.shown.live")
        assert grave(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_in_the_dialogs(browser, served, scheme):
    with open_page(browser, served, color_scheme=scheme) as page:
        for key, dialog in (("?", "#keys"), ("b", "#breakpoints")):
            page.keyboard.press(key)
            page.locator(dialog).wait_for(state="visible")
            assert grave(page) == [], dialog
            page.keyboard.press("Escape")
            page.locator(dialog).wait_for(state="hidden")


def test_nothing_serious_in_a_recorded_run(browser, tmp_path):
    trace, out = write(tmp_path / "run.bscope"), tmp_path / "run.html"
    assert main(["export", str(trace), str(out)]) == 0
    page = browser.new_page(viewport={"width": 1280, "height": 720}, color_scheme="dark")
    page.goto(out.as_uri())
    until(page, "window.__model?.shown.passId > 0")
    page.keyboard.press("ArrowLeft")
    assert grave(page) == []
    page.close()

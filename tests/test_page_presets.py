"""Presets in a real Chromium: one click to the moment, a switch in the header, and two engines side by side."""

import pytest
import requests
from helpers.page import open_page, shared_server, table, until, within

pytestmark = pytest.mark.browser

SHOWN = "window.__model !== undefined && document.querySelector('#link').textContent === 'live'"


@pytest.fixture(scope="module")
def beside():
    """Steady decode and two alternating sets at their moments, by the names of their presets, steady decode the older.

    They end with the module."""
    served = shared_server()
    ids = [served.post(f"/api/presets/{name}")["engine"] for name in ("steady-decode", "alternating-sets")]
    within(lambda: [each["status"] for each in served.get("/api/engines")["engines"]] == ["ready"] * 3, 60)
    yield ids
    for engine in served.get("/api/engines")["engines"][1:]:
        requests.delete(f"{served.base}/api/engines/{engine['id']}", timeout=30)


def options(page):
    return page.locator("#engine-switch option").all_text_contents()


def shows(page, part):
    """Wait until the page is at an address with `part` in it, and shows its engine."""
    page.wait_for_url(lambda url: part in url)
    until(page, SHOWN)


def side(page, name):
    """One of the two frames, once it shows its engine."""
    until(page, f"document.querySelector('#{name}').src !== ''")
    frame = page.query_selector(f"#{name}").content_frame()
    until(frame, f"{SHOWN} && document.querySelector('#cost-pass td').textContent !== ''")
    return frame


def cost(frame):
    """kept, anew, left of the shown pass."""
    return [int(text) for text in frame.locator("#cost-pass td").all_text_contents()[:3]]


def test_every_preset_is_listed_with_its_paragraph(page, served):
    assert not page.is_visible("#presets-list")
    page.click("#presets-open")
    listed = served.get("/api/presets")["presets"]
    assert page.locator("#presets-list button").all_text_contents() == [each["title"] for each in listed]
    assert page.locator("#presets-list p").all_text_contents() == [each["paragraph"] for each in listed]
    assert page.is_visible("#presets-list p >> nth=0")


def test_steady_decode_and_alternating_sets_are_stepped_together_and_their_cost_is_seen(page, beside):
    steady, _ = beside
    until(page, "!document.querySelector('#engines').hidden")
    assert options(page) == ["main: tiny", "Steady decode", "Two alternating sets"]
    page.select_option("#engine-switch", steady)
    shows(page, f"engine={steady}")
    page.click("#engine-compare")
    left, right = side(page, "left"), side(page, "right")
    assert page.text_content("#left-title") == "Steady decode"
    assert page.text_content("#right-title") == "Two alternating sets"
    assert cost(left) == [8, 0, 0]
    assert cost(right) == [0, 8, 8]
    assert left.is_visible("#batch")
    assert not left.is_visible("#requests")

    before = [frame.evaluate("__model.shown.passId") for frame in (left, right)]
    for act, by in ((lambda: page.click("#both-step"), 1), (lambda: page.keyboard.press("ArrowLeft"), 0)):
        act()
        for frame, number in zip((left, right), before, strict=True):
            until(frame, f"__model.shown.passId === {number + by}")
    for act, paused in (("resume", "false"), ("pause", "true")):
        page.click(f"#both-{act}")
        for frame in (left, right):
            until(frame, f"__model.gate.paused === {paused}")


def test_a_third_preset_asks_and_one_click_brings_the_page_to_the_two_five_three_pass(page, served, beside):
    page.click("#presets-open")
    until(page, "document.querySelectorAll('#presets-engines [data-status=ready]').length === 2")
    page.click("[data-preset=two-five-three] button")
    assert "End “Steady decode”, the older one, and start “The [2, 5, 3] pass”?" in page.text_content("#replace-words")
    page.click("#replace button[value='']")
    assert [each["id"] for each in served.get("/api/engines")["engines"][1:]] == beside
    page.click("[data-preset=two-five-three] button")
    page.click("#replace button[value=yes]")
    shows(page, "engine=two-five-three")
    until(page, "__model.shown.phase === 'prepare_inputs'")
    assert page.text_content("#preset-title") == "The [2, 5, 3] pass"
    assert "100 in the prefix cache" in page.text_content("#preset-paragraph")
    assert [row["req_id"] for row in page.evaluate("__model.rows") if row] == ["R1", "R2", "R3"]
    logits = [cells for cells in table(page, "#axis-table table") if cells[6]]
    assert [cells[0] for cells in logits] == ["1", "6", "9"]
    assert options(page) == ["main: tiny", "Two alternating sets", "The [2, 5, 3] pass"]

    held = page.evaluate("__model.shown.passId")
    page.reload()
    until(page, f"{SHOWN} && __model.shown.phase === 'prepare_inputs' && __model.shown.passId === {held}")
    page.keyboard.press("n")
    until(page, f"__model.passId === {held + 1}")
    assert not any(served.state()["rows"]), "the served engine is not stepped"


def test_the_page_of_an_engine_that_has_ended_says_so_and_leads_on(browser, served, beside):
    alternating = beside[1]
    with open_page(browser, served) as page:
        page.expected_errors += ["410", "socket"]
        page.goto(f"{served.base}/?engine={alternating}")
        until(page, SHOWN)
        requests.delete(f"{served.base}/api/engines/{alternating}", timeout=30)
        until(page, "!document.querySelector('#presets-error').hidden")
        assert "has ended" in page.text_content("#presets-error")
        assert options(page)[-1] == "ended"
        page.reload()
        until(page, "!document.querySelector('#notice').hidden")
        assert f"engine '{alternating}' has ended" in page.text_content("#notice")
        page.click("#notice a")
        shows(page, f"{served.base}/")
        assert page.evaluate("location.search") == ""

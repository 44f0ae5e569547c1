"""The gate on the page: stops, pace and breakpoints of a real engine, and a line that says where it is held."""

from typing import Any

import pytest
from helpers.page import Served, open_page, until, within

pytestmark = pytest.mark.browser

LINE = "document.querySelector('#gate-line').textContent"
WHERE = "(({ passId, phase, live }) => [passId, phase, live])(__model.shown)"


@pytest.fixture
def served(served: Served) -> Any:
    """The shared server, with no breakpoint and no pace left behind."""
    yield served
    served.post("/api/control", action="breakpoints", breakpoints=[])
    served.post("/api/control", action="rate", rate=None)


def start(served: Served, *lengths: int) -> list[str]:
    """Let requests of so many tokens wait; return their ids."""
    answers = [
        served.post("/api/requests", prompt="The capital", max_tokens=n, ignore_eos=True) for n in lengths
    ]  # fmt: skip
    return [req_id for answer in answers for req_id in answer["request_ids"]]


def gate(served: Served) -> dict[str, Any]:
    return served.state()["gate"]


def ran(page: Any) -> list[str]:
    """The phases that have run in the shown pass, as the chips say."""
    return page.evaluate("Array.from(document.querySelectorAll('.chip[data-ran=true]'), chip => chip.dataset.phase)")


def add_breakpoint(page: Any, on: str, **fields: str) -> None:
    page.keyboard.press("b")
    page.select_option("#breakpoint-on", on)
    for name, text in fields.items():
        page.fill(f"#breakpoint-{name}", text)
    page.click("#breakpoint-form button")
    until(page, f"__model.gate.breakpoints?.some(({{ on }}) => on === '{on}')")
    page.keyboard.press("Escape")


def test_one_steps_from_stop_to_stop_and_sees_the_logits_parked(page, served):
    served.post("/api/control", action="pause")
    start(served, 8, 8)
    until(page, f"{LINE}.startsWith('held before pass')")
    first = served.state()["pass_id"] + 1
    page.keyboard.press("s")
    until(page, f"{LINE} === 'held at the hand-off of pass {first}: logits parked'")
    until(page, f"{WHERE}[0] === {first}")
    assert ran(page)[-2:] == ["park_logits", "grammar_bitmask"]
    assert page.inner_text("#handoff-state") == "parked"
    assert served.state()["pass_id"] == first - 1, "the pass has not ended"
    page.click("#step-stop")
    until(page, f"{LINE} === 'held before update_from_output of pass {first}'")
    until(page, "document.querySelector('#handoff-state').textContent === 'ready'")
    assert ran(page)[-1] == "bookkeeping"
    page.keyboard.press("s")
    until(page, f"{LINE} === 'held before pass {first + 1}'")
    until(page, f"__model.passId === {first} && {WHERE}[0] === {first}")
    assert ran(page)[-1] == "update_from_output"


def test_a_breakpoint_takes_the_page_to_the_phase_that_met_it_and_going_on_takes_it_back(page, served):
    served.post("/api/control", action="pause")  # or the first could end before the others are there
    add_breakpoint(page, "row_moved")
    start(served, 4, 40, 40)
    served.post("/api/control", action="resume")
    hit = within(lambda: gate(served)["hit"])
    assert (hit["on"], hit["phase"]) == ("row_moved", "condense")
    until(page, f"JSON.stringify({WHERE}) === JSON.stringify([{hit['pass_id']}, 'condense', true])")
    words = f"breakpoint: {hit['words']}, pass {hit['pass_id']} · held at the hand-off: logits parked"
    until(page, f"{LINE} === {words!r}")
    assert page.get_attribute('.chip[data-phase="condense"]', "aria-pressed") == "true"
    assert [state["kind"] for state in page.evaluate("__model.shown.states")].count("moved") == 1
    page.keyboard.press("n")
    until(page, f"{LINE} === 'held before pass {hit['pass_id'] + 1}'")
    until(page, f"{WHERE}[1] === null")


def test_a_parked_page_stays_where_it_is_and_is_offered_the_hit(page, served):
    [req_id] = start(served, 6)
    within(lambda: "finish_reason" in served.state()["requests"].get(req_id, {}) and not any(served.state()["rows"]))
    until(page, f"__model.passId === {served.state()['pass_id']}")
    page.keyboard.press("ArrowLeft")
    until(page, f"{WHERE}[2] === false")
    parked = page.evaluate(WHERE)
    served.post("/api/control", action="breakpoints", breakpoints=[{"on": "finished"}])
    start(served, 3)
    hit = within(lambda: gate(served)["hit"])
    until(page, f"{LINE}.includes('finished with reason \"length\"')")
    assert page.evaluate(WHERE) == parked
    page.click("#gate-show")
    until(page, f"JSON.stringify({WHERE}.slice(0, 2)) === JSON.stringify([{hit['pass_id']}, 'update_from_output'])")
    assert page.is_hidden("#gate-show")


def test_breakpoints_are_added_listed_and_removed_and_what_cannot_be_is_said(page, served):
    served.post("/api/control", action="pause")
    start(served, 5)
    add_breakpoint(page, "total_tokens_above", value="40")
    add_breakpoint(page, "request_in_batch", request="req-x")
    listed = "Array.from(document.querySelectorAll('#breakpoint-list span'), line => line.textContent)"
    assert page.evaluate(listed) == ["a pass has more tokens than 40", "req-x is in the batch"]
    assert page.inner_text("#breakpoints-open") == "breakpoints 2"
    page.click("#breakpoints-open")
    waiting = [req_id for req_id, known in served.state()["requests"].items() if "finish_reason" not in known]
    assert page.evaluate("Array.from(document.querySelector('#live-requests').options, one => one.value)") == waiting
    page.fill("#breakpoint-request", "")
    page.click("#breakpoint-form button")
    assert page.is_visible("#breakpoint-error")
    for _ in range(2):
        page.click("#breakpoint-list button >> nth=0")
        page.wait_for_timeout(100)
    within(lambda: gate(served)["breakpoints"] == [])
    until(page, "!document.querySelector('#breakpoint-none').hidden")


def test_the_pace_is_set_for_all_and_slows_the_engine(page, browser, served):
    page.fill("#pace", "5")
    page.keyboard.press("Enter")
    within(lambda: gate(served)["rate"] == 5)
    with open_page(browser, served) as other:
        until(other, "document.querySelector('#pace').value === '5'")
    before = served.state()["pass_id"]
    start(served, 50)
    within(lambda: served.state()["pass_id"] > before)
    page.wait_for_timeout(1000)
    assert 3 <= served.state()["pass_id"] - before <= 9
    page.fill("#pace", "")
    page.keyboard.press("Enter")
    within(lambda: gate(served)["rate"] is None)


def test_a_held_engine_stays_held_when_everyone_has_gone_and_a_new_page_says_so(browser, served):
    with open_page(browser, served) as page:
        page.keyboard.press("s")
        start(served, 8)
        until(page, f"{LINE}.startsWith('held at the hand-off')")
        line = page.evaluate(LINE)
        page.reload()
        until(page, f"window.__model !== undefined && {LINE} === {line!r}")
    held = gate(served)
    assert held["stop"] == "hand_off"
    with open_page(browser, served) as page:
        until(page, f"{LINE} === {line!r}")
        assert page.evaluate(WHERE)[0] == held["held"]["pass_id"]

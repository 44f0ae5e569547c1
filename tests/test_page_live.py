"""What one does with the page on a running engine, and what it then shows."""

import os
import signal
from pathlib import Path

import pytest
from helpers.page import Served, live, open_page, pause, settled, table, until, within

from tracer.explain import sentence

pytestmark = pytest.mark.browser

# How many requests have begun to answer and not ended.
STREAMING = """Array.from(document.querySelectorAll(".card:not([data-ended]) .output"))
  .filter((output) => output.textContent).length"""

# Notes, at every frame, what can be seen: states of rows, and lines that slide.
WATCH = """() => {
  globalThis.__seen = { kinds: [], sliding: 0, gone: [] };
  const look = () => {
    requestAnimationFrame(look);
    for (const line of document.querySelectorAll("#batch tbody tr[data-kind]")) {
      if (!__seen.kinds.includes(line.dataset.kind)) __seen.kinds.push(line.dataset.kind);
    }
    const animated = document.getAnimations().map((animation) => animation.effect.target);
    __seen.sliding = Math.max(__seen.sliding, animated.filter((target) => target.tagName === "TR").length);
    __seen.gone.push(...animated.filter((target) => target.className === "ghost").map((target) => target.textContent));
  };
  look();
}"""


def burst(page, size=16):
    page.fill("#burst-size", str(size))
    page.click("#burst")


def shown_batch(page):
    """The batch table as row -> (id, prompt, computed, output), empty lines left out."""
    lines = {int(cells[0]): cells for cells in table(page, "#batch")}
    return {row: (cells[2], *cells[3:5], cells[6]) for row, cells in lines.items() if cells[3]}


def expected_batch(state, record):
    scheduled = next(phase["facts"] for phase in record["phases"] if phase["phase"] == "schedule")[
        "num_scheduled_tokens"
    ]
    rows = {}
    for index, row in enumerate(state["rows"]):
        if row:
            decodes = scheduled[row["req_id"]] == 1 and row["num_computed_tokens"] >= row["num_prompt_tokens"]
            numbers = (row["num_prompt_tokens"], row["num_computed_tokens"])
            output = row["num_tokens_no_spec"] - row["num_prompt_tokens"]
            rows[index] = (("D" if decodes else "P") + row["req_id"], *map(str, numbers), str(output))
    return rows


def facts(record, name):
    return next(phase["facts"] for phase in record["phases"] if phase["phase"] == name)


def test_sixteen_prompts_stream_together_while_rows_move(page, served):
    page.evaluate(WATCH)
    served.post("/api/control", action="pause")
    burst(page, 16)
    until(page, "Object.values(__model.requests).filter((request) => request.status === 'WAITING').length === 16")
    most, seen = 0, {}
    while live(served.state()) and not (most > 8 and seen["sliding"] and "moved" in seen["kinds"] and seen["gone"]):
        served.post("/api/control", action="step", passes=1)  # pass by pass, each drawn: tiny outruns the screen
        settled(page, served)
        most, seen = max(most, page.evaluate(STREAMING)), page.evaluate("__seen")
    assert most > 8, "more than half of the 16 stream at the same time"
    assert {"new", "updated", "moved"} <= set(seen["kinds"])
    assert seen["sliding"] > 0, "a row that moves is seen to slide"
    assert any("left: finished" in text for text in seen["gone"]), "a row that leaves is seen to leave"
    served.post("/api/control", action="resume")
    until(page, "Object.values(__model.requests).every(request => request.finish_reason !== undefined)")
    state = settled(page, served)
    assert page.evaluate("__model.rows") == state["rows"]
    assert page.evaluate("__model.requests") == state["requests"]


def test_rows_and_tokens_on_the_page_equal_the_server_at_every_step(page, served):
    page.click("#pause")
    until(page, "__model.gate.paused")
    for words in (2, 30, 9, 50, 4):
        served.post("/api/requests", prompt="word " * words, copies=3, max_tokens=60, ignore_eos=True)
    served.post("/api/control", action="step", passes=4)
    state = settled(page, served)
    discards = []
    for key in ("n", "ArrowRight", None):
        record = served.get(f"/api/passes/{state['pass_id']}")
        assert page.evaluate("__model.rows") == state["rows"]
        assert shown_batch(page) == expected_batch(state, record)
        inputs = facts(record, "prepare_inputs")
        lines = table(page, "#axis-table table")
        assert [int(line[1]) for line in lines] == inputs["req_indices"]
        assert [int(line[4]) for line in lines] == inputs["positions"]
        assert [int(line[5]) for line in lines] == inputs["slot_mapping"]
        assert [int(line[0]) for line in lines if line[6]] == inputs["logits_indices"]
        discarded = [line[6].endswith("discarded") for line in lines if line[6]]
        assert discarded == inputs["discard_request_mask"]
        discards += discarded
        kept = [line[4] == "✓" for line in table(page, "#handoff")]
        assert kept == [bool(ids) for ids in facts(record, "bookkeeping")["sampled_token_ids"]]
        if key:
            page.keyboard.press(key)
            until(page, f"__model.passId === {state['pass_id'] + 1}")
            state = settled(page, served)
    assert set(discards) == {True, False}, "rows in prefill and rows that decode were both there"


def test_pause_step_and_resume_by_button_and_by_key(page, served):
    served.post("/api/requests", prompt="Once upon a time", max_tokens=900, ignore_eos=True)
    until(page, "__model.passId >= 0 && Object.values(__model.requests).some(r => r.status === 'RUNNING')")
    page.keyboard.press(" ")
    until(page, "__model.gate.paused && document.querySelector('#pause').textContent === 'resume'")
    before = settled(page, served)["pass_id"]
    page.click("#step")
    until(page, f"__model.passId === {before + 1}")
    page.keyboard.press("n")
    until(page, f"__model.passId === {before + 2}")
    page.keyboard.press("ArrowRight")
    until(page, f"__model.passId === {before + 3}")
    assert page.evaluate("document.querySelector('#pass').textContent") == str(before + 3)
    assert settled(page, served)["pass_id"] == before + 3
    page.keyboard.press(" ")
    until(page, f"!__model.gate.paused && __model.passId > {before + 3}")
    page.click("#pause")
    until(page, "__model.gate.paused")
    page.click("#pause")
    until(page, "!__model.gate.paused")


def test_typing_in_the_prompt_presses_no_keys_of_the_page(page):
    page.click("#prompt")
    page.keyboard.type("next to ? a lamp")
    assert page.input_value("#prompt") == "next to ? a lamp"
    assert page.evaluate("[__model.gate.paused ?? false, document.querySelector('#keys').open]") == [False, False]


def test_a_request_streams_its_text_and_can_be_cancelled(page, served):
    served.post("/api/control", action="pause")
    page.fill("#prompt", "Count: 1 2 3")
    page.fill("#max-tokens", "900")
    page.fill("#copies", "2")
    page.keyboard.press("Control+Enter")
    until(page, "document.querySelectorAll('.card:not([data-ended])').length === 2")
    card = page.locator(".card").first
    req_id = card.get_attribute("data-request")
    assert card.locator(".prompt").text_content() == "Count: 1 2 3"
    served.post("/api/control", action="step", passes=5)
    until(page, f"__model.requests['{req_id}'].output_token_ids.length > 3")
    card.locator(".cancel").click()
    until(page, f"__model.requests['{req_id}'].finish_reason === 'abort'")
    assert served.state()["requests"][req_id]["finish_reason"] == "abort"
    until(page, f"document.querySelector('[data-request={req_id}] .status').textContent === 'abort'")
    assert not card.locator(".cancel").is_visible()
    assert len(live(served.state())) == 1, "the other copy goes on"


def test_a_request_is_chosen_and_cancelled_by_key(page, served):
    served.post("/api/control", action="pause")
    ids = served.post("/api/requests", prompt="Count", max_tokens=900, copies=2, ignore_eos=True)["request_ids"]
    until(page, f"document.querySelector('[data-request={ids[1]}]') !== null")
    page.focus("#requests")
    page.keyboard.press("ArrowDown")  # the newest
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.get_attribute(f"[data-request={ids[0]}] .id", "aria-expanded") == "true"
    page.keyboard.press("Delete")
    until(page, f"__model.requests['{ids[0]}'].finish_reason === 'abort'")
    assert live(served.state()) == [ids[1]]


def test_text_on_the_page_is_the_text_of_the_api(page, served):
    prompt = "Hello, pâte à choux 🙂"
    wanted = served.post("/v1/completions", prompt=prompt, max_tokens=40, temperature=0, ignore_eos=True)
    until(page, "Object.values(__model.requests).at(-1)?.finish_reason === 'length'")
    settled(page, served)
    card = page.locator(".card").first
    assert card.locator(".prompt").text_content() == prompt
    assert card.locator(".output").text_content().rstrip("�") == wanted["choices"][0]["text"].rstrip("�")


def test_errors_are_told_in_place_and_others_go_on(page, served):
    page.expected_errors.append("400")
    served.post("/api/requests", prompt="Once upon a time", copies=40, max_tokens=900, ignore_eos=True)
    until(page, "Object.values(__model.requests).some(r => r.status === 'RUNNING')")
    page.fill("#prompt", "too long " * 400)
    page.click("#send")
    error = page.locator("#prompt-error")
    error.wait_for(state="visible")
    assert "1024" in error.text_content()
    page.fill("#prompt", "short")
    page.fill("#copies", "0")
    page.click("#send")
    within(lambda: "copies" in error.text_content())
    passes = page.evaluate("__model.passId")
    until(page, f"__model.passId > {passes}")
    page.fill("#copies", "1")
    page.click("#send")
    error.wait_for(state="hidden")


def test_waiting_requests_say_why(page, served):
    page.click("#pause")
    until(page, "__model.gate.paused")
    page.fill("#prompt", "One of many")
    page.fill("#copies", "20")
    page.click("#send")
    until(page, "Object.values(__model.requests).filter(r => r.status === 'WAITING').length === 20")
    for _ in range(4):
        passes = page.evaluate("__model.passId")
        page.click("#step")
        until(page, f"__model.passId === {passes + 1}")
    settled(page, served)
    why = facts(served.get(f"/api/passes/{served.state()['pass_id']}"), "schedule")["why"]
    waits = {req_id for req_id, (code, _) in why.items() if code == "no_rows"}
    assert len(waits) == 4
    for req_id in waits:
        assert page.text_content(f"[data-request={req_id}] .why") == sentence("no_rows", why[req_id][1])


def test_a_page_that_joins_late_or_loses_frames_shows_the_same(browser, served):
    with open_page(browser, served) as first:
        burst(first, 16)
        until(first, "__model.shown.passes > 5")
        with open_page(browser, served) as second:
            until(second, "__model.shown.passId !== null")
            second.evaluate("const end = performance.now() + 1500; while (performance.now() < end);")  # hears nothing
            state = pause(second, served)
            settled(first, served)
            for page in (first, second):
                assert page.evaluate("__model.rows") == state["rows"]
                assert page.evaluate("__model.requests") == state["requests"]
            assert shown_batch(first) == shown_batch(second)


def test_the_page_does_not_grow_while_passes_go_by(page, served):
    [req_id] = served.post("/api/requests", prompt="On and on", max_tokens=900, ignore_eos=True)["request_ids"]
    until(page, f"__model.requests['{req_id}']?.output_token_ids.length > 20")
    page.wait_for_timeout(300)  # the cards near those in sight are filled a moment later
    nodes = "document.querySelectorAll('*').length"
    before = page.evaluate(nodes)
    passes = page.evaluate("__model.passId")
    until(page, f"__model.passId > {passes + 100}", timeout=60)
    assert page.evaluate(nodes) < before + 60
    assert page.evaluate("__model.shown.passes") <= 240


def test_the_page_says_when_the_engine_has_died(browser):
    served = Served("--max-num-seqs", "4")
    try:
        with open_page(browser, served) as page:
            page.expected_errors += ["503", "WebSocket", "ERR_"]
            for child in Path(f"/proc/{served.process.pid}/task").glob("*/children"):
                for pid in map(int, child.read_text().split()):
                    if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)
            until(page, "!document.querySelector('#notice').hidden")
            assert "engine process has ended" in page.text_content("#notice")
            assert page.text_content("#link") == "engine stopped"
            page.click("#send")
            page.locator("#prompt-error").wait_for(state="visible")
    finally:
        served.stop()

"""The browser folds the log as tracer.fold does: after every entry, and at each phase of a pass that it shows."""

import copy
import json

import pytest
from helpers.page import Served, settled, until

from tracer.fold import KEPT_FINISHED, apply_change, fold, new_state
from tracer.schema import EventRecord, PassRecord, PhaseRecord, encode

pytestmark = pytest.mark.browser

FOLD_LOG = """async (maxNumSeqs) => {
  const { fold, newState } = await import("fold");
  const state = newState(maxNumSeqs);
  const after = [];
  for (let from = 0, last = __model.seq; from <= last;) {
    const reply = await fetch(`/api/log?from=${from}&to=${last}`);
    for (const entry of MessagePack.decodeMulti(new Uint8Array(await reply.arrayBuffer()))) {
      fold(state, entry);
      after.push(JSON.stringify([state.seq, state.pass_id, state.rows, state.finished, state.gate]));
    }
    from = Number(reply.headers.get("X-To-Seq")) + 1;
  }
  return { after, requests: Object.fromEntries(state.requests), blocks: Object.fromEntries(state.blocks) };
}"""

FOLD_BYTES = """async ([bytes, maxNumSeqs]) => {
  const { fold, newState } = await import("fold");
  const state = newState(maxNumSeqs);
  for (const entry of MessagePack.decodeMulti(new Uint8Array(bytes))) fold(state, entry);
  return { ...state, requests: Object.fromEntries(state.requests), blocks: Object.fromEntries(state.blocks) };
}"""


@pytest.fixture(scope="module")
def own():
    """A server whose log holds what these tests did alone: they read all of it."""
    server = Served()
    yield server
    server.stop()


@pytest.fixture
def served(own):
    yield own
    own.rest()


def burst_held(page, served, passes):
    """Send a burst while the engine is held, and let it run some passes. Returns /api/state after them."""
    served.post("/api/control", action="pause")
    page.fill("#burst-size", "16")
    page.click("#burst")
    until(page, "Object.values(__model.requests).filter(request => request.status === 'WAITING').length === 16")
    served.post("/api/control", action="step", passes=passes)
    return settled(page, served)


def as_json(blocks):
    """Block ids are numbers here and names in a JSON object."""
    return {str(block_id): list(block) for block_id, block in blocks.items()}


def rows_in(state):
    return copy.deepcopy(state["rows"])


def test_fold_in_the_page_equals_tracer_fold_after_every_entry(page, served):
    state = burst_held(page, served, 40)
    folded = page.evaluate(FOLD_LOG, len(state["rows"]))
    expected = new_state(len(state["rows"]))
    for entry, after in zip(served.entries(), folded["after"], strict=True):
        fold(expected, entry)
        keys = ("seq", "pass_id", "rows", "finished", "gate")
        assert json.loads(after) == [expected[key] for key in keys], f"after entry {entry.seq}"
    assert folded["requests"] == expected["requests"] == state["requests"]
    assert folded["blocks"] == as_json(expected["blocks"]) == state["blocks"]
    assert page.evaluate("__model.blocks") == state["blocks"]


def test_fold_in_the_page_equals_tracer_fold_on_every_kind_of_change(page):
    phase = PhaseRecord("update_cached", 0, 1)
    phase.changes = [
        ["set", "req_id", [0, 2], ["a", "c"]],
        ["set", "token_ids", [0, 2], [[1, 2], [3]]],
        ["put", "token_ids", [0, 2], [1, 1], [[7, 8], [9]]],
        ["put", "token_ids", [2], [9], [[5]]],
        ["swap", 0, 2],
        ["move", 2, 1],
        ["swap", 1, 3],
        ["clear", 0],
    ]
    again = [("a", {"prompt_token_ids": [4], "status": "WAITING"})]
    ended = [(f"r{i}", {"prompt_token_ids": [i], "finish_reason": "stop"}) for i in range(KEPT_FINISHED + 9)]
    entries = [
        EventRecord(0, "request", 0.0, {}, [("a", {"prompt_token_ids": [1]}), ("__proto__", {"status": "WAITING"})]),
        EventRecord(1, "request", 0.0, {}, [("a", {"finish_reason": "abort"})]),
        EventRecord(2, "request", 0.0, {}, again),
        PassRecord(
            3,
            "pass",
            0,
            0.0,
            0,
            [
                phase,
                PhaseRecord("update_from_output", 1, 2, output=[("a", 0, [6, 7])], blocks=[(3, 1, 0), (1, 2, 1)]),
            ],
        ),
        EventRecord(4, "request", 0.0, {}, ended),
        EventRecord(5, "gate", 0.0, {"paused": True, "permits": 0}, blocks=[(3, 0, 1)]),
    ]
    expected = new_state(4)
    for entry in entries:
        fold(expected, entry)
    folded = page.evaluate(FOLD_BYTES, [list(b"".join(map(encode, entries))), 4])
    del expected["requests"]["__proto__"]  # no key of a JSON object in every browser
    assert folded == expected | {"blocks": as_json(expected["blocks"])}


def test_an_unknown_change_is_an_error_that_says_what_to_do(page):
    message = page.evaluate(
        """async () => { const { applyChange } = await import("fold");
        try { applyChange([null], ["rotate", 0]); } catch (error) { return error.message; } }"""
    )
    assert "newer version" in message


def test_a_chosen_phase_shows_the_batch_as_it_was_at_its_end(page, served):
    paused_at = burst_held(page, served, 4)["pass_id"]
    page.keyboard.press("n")
    until(page, f"__model.passId === {paused_at + 1}")
    settled(page, served)
    *before, last = served.entries()
    while not isinstance(last, PassRecord):
        last = before.pop()
    state = new_state(16)
    for entry in before:
        if entry.seq < last.seq:
            fold(state, entry)
    rows = rows_in(state)
    for phase in last.phases:
        for change in phase.changes:
            apply_change(rows, change)
        page.click(f"[data-phase={phase.phase}]")
        assert page.evaluate("__model.shown.phase") == phase.phase
        assert page.evaluate("__model.shown.rows") == rows, phase.phase
    page.keyboard.press("Escape")
    assert page.evaluate("__model.shown.rows") == page.evaluate("__model.rows")


def test_an_earlier_pass_shows_its_own_rows_and_new_passes_do_not_move_it(page, served):
    burst_held(page, served, 9)
    latest = page.evaluate("__model.shown.passId")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate("__model.shown.passId") == latest - 3
    state = new_state(16)
    for entry in served.entries():
        if isinstance(entry, PassRecord) and entry.pass_id > latest - 3:
            break
        fold(state, entry)
    assert page.evaluate("__model.shown.rows") == state["rows"]
    page.keyboard.press(" ")
    until(page, f"__model.passId > {latest + 2}")
    assert page.evaluate("[__model.shown.passId, __model.shown.rows]") == [latest - 3, state["rows"]]
    page.keyboard.press("ArrowRight")
    assert page.evaluate("__model.shown.passId") == latest - 2
    page.keyboard.press("l")
    assert page.evaluate("__model.shown.live && __model.shown.passId === __model.passId")

"""One thing lights all that belongs to it, in every view: by pointer, by keyboard, and when it is chosen."""

import pytest
from helpers.page import open_page, settled, table, until

pytestmark = pytest.mark.browser

# What each view shows as lit (by "pointed" or "chosen"), read off the page itself.
LIT = """(how) => {
  const sign = { pointed: ".lit", chosen: "[data-chosen]" }[how];
  const all = (selector, of) => Array.from(document.querySelectorAll(selector + sign), of);
  return {
    rows: all("#batch tbody tr", (line) => Number(line.dataset.row)),
    cards: all(".card", (card) => card.dataset.request),
    handoff: all("#handoff tbody tr", (line) => Number(line.cells[0].textContent)),
  };
}"""
BLOCKS = "(document.querySelector('#kv').dataset.lit ?? '').split(' ').filter(Boolean).map(Number)"


@pytest.fixture
def busy(served):
    """Three rows that decode beside one in prefill, over a few blocks, held after a pass."""
    served.post("/api/control", action="pause")
    served.post("/api/requests", prompt="tell me a tale " * 2, copies=3, max_tokens=40, ignore_eos=True)
    served.post("/api/control", action="step", passes=2)
    served.post("/api/requests", prompt="word " * 40, max_tokens=9, ignore_eos=True)
    served.post("/api/control", action="step", passes=1)
    return served


@pytest.fixture
def page(browser, busy):
    with open_page(browser, busy, viewport={"width": 1280, "height": 900}) as opened:
        settled(opened, busy)
        yield opened


def facts(served, name="prepare_inputs"):
    record = served.get(f"/api/passes/{served.state()['pass_id']}")
    return next(phase["facts"] for phase in record["phases"] if phase["phase"] == name)


def held_by(served, row):
    return served.state()["requests"][served.state()["rows"][row]["req_id"]]["block_ids"]


def point_at_token(page, token):
    """Walk there by keyboard."""
    page.keyboard.press("Escape")
    page.focus("#axis-scroll")
    for _ in range(token + 1):
        page.keyboard.press("Shift+ArrowRight")


def point_at_block(page, block):
    """Walk there by keyboard, the last step of the way."""
    page.evaluate("block => import('hover').then(({ hover }) => hover.set({ block }))", block - 1)
    page.focus("#kv-scroll")
    page.keyboard.press("ArrowRight")


def assert_lit(page, served, rows, how="pointed"):
    ids = [served.state()["rows"][row]["req_id"] for row in rows]
    lit = page.evaluate(LIT, how)
    assert lit["rows"] == lit["handoff"] == rows
    assert sorted(lit["cards"]) == sorted(ids)


def test_a_token_lights_its_row_request_block_slot_and_logits(page, busy):
    inputs = facts(busy)
    token = inputs["logits_indices"][1]
    row, slot = inputs["req_indices"][token], inputs["slot_mapping"][token]
    point_at_token(page, token)
    assert_lit(page, busy, [row])
    assert page.evaluate(BLOCKS) == held_by(busy, row)
    assert page.text_content("#kv-readout").startswith(f"block {slot // 16} · slots {slot // 16 * 16}")
    assert page.text_content("#batch tr.lit mark") == str(slot // 16)
    words = page.text_content("#readout")
    assert f"token {token} " in words
    assert f"row {row} · position {inputs['positions'][token]} · slot {slot} = block {slot // 16}" in words
    assert words.endswith("logits 1")


def test_a_row_lights_its_request_and_its_line_in_the_hand_off(page, busy):
    page.hover("#batch tr[data-row='3']")
    assert_lit(page, busy, [3])
    assert page.evaluate(BLOCKS) == held_by(busy, 3)
    start, end = facts(busy)["query_start_loc"][3:5]
    assert f"tokens {start} to {end - 1}" in page.text_content("#readout")


def test_a_request_lights_the_same_by_pointer_and_by_keyboard(page, busy):
    req_id = busy.state()["rows"][2]["req_id"]
    page.hover(f".card[data-request={req_id}] .prompt")
    assert_lit(page, busy, [2])
    page.mouse.move(0, 0)
    assert page.evaluate(LIT, "pointed") == {"rows": [], "cards": [], "handoff": []}
    page.focus(f".card[data-request={req_id}] .id")
    assert_lit(page, busy, [2])


def test_a_block_lights_all_who_hold_it_and_the_tokens_in_it(page, busy):
    owners = {row: held_by(busy, row) for row in range(4)}
    shared = owners[0][0]
    rows = [row for row in owners if shared in owners[row]]
    assert len(rows) == 3, "the copies share the block of their common beginning"
    point_at_block(page, shared)
    assert_lit(page, busy, rows)
    last = owners[3][-1]
    point_at_block(page, last)
    assert_lit(page, busy, [3])
    inputs = facts(busy)
    inside = [slot for slot in inputs["slot_mapping"] if slot // 16 == last]
    assert inside, "this pass writes into the block"
    drawn = page.evaluate("import('links').then(({ links }) => [links.lit.block, links.axis.slots])")
    assert [slot for slot in drawn[1] if slot // 16 == drawn[0]] == inside


def test_a_line_of_the_hand_off_points_at_the_token_whose_logits_it_shows(page, busy):
    page.hover("#handoff tbody tr:nth-child(2) td:nth-child(4)")
    assert_lit(page, busy, [1])
    token = facts(busy)["logits_indices"][1]
    assert page.text_content("#readout").startswith(f"token {token} ")


def test_what_is_chosen_stays_until_escape_and_survives_a_reload(page, busy):
    inputs = facts(busy)
    token = inputs["logits_indices"][2]
    point_at_token(page, token)
    page.keyboard.press("w")
    page.mouse.move(0, 0)
    page.evaluate("import('hover').then(({ hover }) => hover.set())")
    assert_lit(page, busy, [2], "chosen")
    words = page.text_content("#readout")
    assert words.startswith(f"token {token} ")
    until(page, f"location.hash.includes('token={inputs['positions'][token]}')")
    page.reload()
    until(page, "window.__model !== undefined")
    until(page, "document.querySelectorAll('#batch tr[data-chosen]').length === 1")
    assert page.text_content("#readout") == words
    busy.post("/api/control", action="step", passes=1)
    settled(page, busy)
    assert page.text_content("#readout").startswith("not in this pass · row 2 · position ")
    page.keyboard.press("Escape")
    assert page.evaluate(LIT, "chosen") == {"rows": [], "cards": [], "handoff": []}
    assert page.text_content("#readout") == ""
    until(page, "!location.hash.includes('request=')")


def test_a_row_tells_which_rows_its_request_has_had(page, busy):
    for copies, tokens in ((6, 2), (3, 60)):  # short ones in the lower rows end first
        busy.post("/api/requests", prompt="Hi", copies=copies, max_tokens=tokens, ignore_eos=True)
    had, moved = {}, []
    while not moved:
        busy.post("/api/control", action="step", passes=1)
        state = settled(page, busy)
        for row, held in enumerate(state["rows"]):
            rows = had.setdefault(held["req_id"], []) if held else [row]
            if rows[-1:] != [row]:
                rows.append(row)
        moved = [held["req_id"] for held in state["rows"] if held and len(had[held["req_id"]]) > 1]
    req_id = moved[0]
    row, words = had[req_id][-1], "row " + " → ".join(map(str, had[req_id]))
    page.hover(f"#batch tr[data-row='{row}']")
    assert page.text_content("#readout").endswith(words)
    assert page.get_attribute(f"#batch tr[data-row='{row}']", "title") == words
    page.click(f"#batch tr[data-row='{row}'] .state")
    assert page.text_content(f".card[data-request={req_id}] .rows") == words
    page.keyboard.press("ArrowLeft")
    until(page, "!__model.shown.live")
    assert page.text_content(f".card[data-request={req_id}] .rows").startswith(words[:5])


def test_cells_that_a_phase_changed_are_marked_with_old_and_new(page, busy):
    page.click("[data-phase=update_cached]")
    until(page, "document.querySelectorAll('#batch td[data-changed]').length > 0")
    marked = page.evaluate(
        "Array.from(document.querySelectorAll('#batch td[data-changed]'), (cell) =>"
        " [Number(cell.parentElement.dataset.row), cell.cellIndex, cell.title])"
    )
    changes = next(
        phase["changes"]
        for phase in busy.get(f"/api/passes/{busy.state()['pass_id']}")["phases"]
        if phase["phase"] == "update_cached"
    )
    updated = next(change for change in changes if change[:2] == ["set", "num_computed_tokens"])
    computed = {row: title for row, column, title in marked if column == 4}
    assert sorted(computed) == sorted(updated[2])
    for row, value in zip(updated[2], updated[3], strict=True):
        assert computed[row].startswith("num_computed_tokens ")
        assert computed[row].endswith(f" → {value}")
    assert "values changed in this phase" in page.text_content("#batch-count")
    sign = "getComputedStyle(document.querySelector('#batch td[data-changed]'), '::before').content"
    assert page.evaluate(sign) == '"Δ"'
    page.keyboard.press("Escape")
    until(page, "document.querySelectorAll('#batch td[data-changed]').length === 0")


def test_the_list_of_keys_is_what_is_bound(page):
    listed = " ".join(page.evaluate("Array.from(document.querySelectorAll('#keys kbd'), key => key.textContent)"))
    shortcuts = page.evaluate(
        "Array.from(document.querySelectorAll('[aria-keyshortcuts]'), (control) =>"
        " control.getAttribute('aria-keyshortcuts').toLowerCase())"
    )
    shown = {"arrowleft": "←", "arrowright": "→", "control+enter": "ctrl enter"}
    for key in shortcuts:
        assert shown.get(key, key) in listed, key


def test_tables_stand_for_the_canvases_whatever_is_pointed_at(page, busy):
    inputs = facts(busy)
    lines = table(page, "#axis-table table")
    assert [int(line[4]) for line in lines] == inputs["positions"]
    assert [int(line[0]) for line in table(page, "#handoff")] == list(range(4))
    assert page.get_attribute("#axis-table table", "aria-rowcount") == str(len(lines) + 1)

"""The KV map shows every block as the engine has it and what a pass did to it; a click says why a request is in it."""

import re

import pytest
from helpers.page import Served, live, open_page, settled, table, until, within

from tracer.explain import SENTENCES, sentence
from tracer.fold import fold, new_state
from tracer.schema import PassRecord

pytestmark = pytest.mark.browser

# So few blocks that requests are preempted and come back, and cached contents are lost.
FEW = ("--num-gpu-blocks-override", "24", "--max-model-len", "160")
DASH = "\N{EN DASH}"
TELL = "You are patient. You answer in one sentence. "


@pytest.fixture(scope="module")
def few():
    served = Served(*FEW)
    yield served
    served.stop()


@pytest.fixture
def served(few):
    few.post("/api/control", action="pause")
    yield few
    few.rest()


@pytest.fixture
def page(browser, served):
    with open_page(browser, served, viewport={"width": 1280, "height": 800}) as opened:
        yield opened


def crowd(served, size=10):
    """More requests than the blocks can hold, every other one with the same beginning."""
    for i in range(size):
        prompt = (TELL if i % 2 else "") + f"Say {i}"
        served.post("/api/requests", prompt=prompt, max_tokens=60, ignore_eos=True)


def step(page, served, passes=1):
    served.post("/api/control", action="step", passes=passes)
    return settled(page, served)


def held(state):
    return {req_id: request["block_ids"] for req_id, request in state["requests"].items() if request.get("block_ids")}


def facts(served, pass_id, name="schedule"):
    record = served.get(f"/api/passes/{pass_id}")
    return next(phase.get("facts", {}) for phase in record["phases"] if phase["phase"] == name)


def folded(entries, upto):
    """The state at the end of pass `upto`."""
    state = new_state(16)
    for entry in entries:
        fold(state, entry)
        if isinstance(entry, PassRecord) and entry.pass_id == upto:
            return state
    raise AssertionError(f"no pass {upto}")


def as_json(blocks):
    return {str(block_id): list(block) for block_id, block in blocks.items()}


def test_the_map_and_its_table_equal_the_state_at_every_step(page, served):
    crowd(served)
    seen = set()
    for passes in (1, 1, 7, 8, 9, 1, 40):
        state = step(page, served, passes)
        shown = page.evaluate("__model.shown")
        assert shown["blocks"] == state["blocks"]
        assert shown["held"] == held(state)
        kept = {int(block): known for block, known in state["blocks"].items() if any(known)}
        lines = {int(line[0]): line for line in table(page, "#kv-table table")}
        assert {block for block in lines if lines[block][1] != "free"} == set(kept)
        for block, (ref_cnt, cached) in kept.items():
            _, words, rows, owners, refs, findable, *_ = lines[block]
            assert (refs, findable) == (str(ref_cnt), "yes" if cached else "no")
            assert words == ("held" if ref_cnt else "free, findable")
            assert owners.split() == [req_id for req_id, ids in held(state).items() if block in ids]
            ids = [row and row["req_id"] for row in state["rows"]]
            assert rows.split() == [str(ids.index(owner)) if owner in ids else "-" for owner in owners.split()]
            seen.add((words, min(ref_cnt, 2)))
        used = sum(ref_cnt > 0 for ref_cnt, _ in kept.values())
        free = 23 - len(kept)
        assert page.text_content("#kv-count") == f"{used} used · {len(kept) - used} cached · {free} free of 24"
    assert seen == {("held", 1), ("held", 2), ("free, findable", 0)}


def expected_moments(schedule, freed, before):
    """Sets of block ids by letter, from the facts of a pass."""
    new, cached = schedule["scheduled_new_reqs"], schedule["scheduled_cached_reqs"]
    tables = {request["req_id"]: request["block_ids"][0] for request in new}
    tables |= {req_id: ids[0] for req_id, ids in zip(cached["req_ids"], cached["new_block_ids"], strict=True) if ids}
    hits, resumed = schedule["hits"], cached["resumed_req_ids"]
    return {
        "E": set(schedule["evicted"]),
        "H": {block for ids in hits.values() for block in ids},
        "R": {block for req_id in resumed for block in tables[req_id]},
        "P": {block for req_id in schedule["preempted_req_ids"] for block in before[req_id]},
        "-": freed,
        "+": {block for req_id, ids in tables.items() for block in ids if block not in hits.get(req_id, ())},
    }


def test_hits_evictions_preemptions_and_resumptions_show_in_their_pass(page, served):
    crowd(served)
    seen = set()
    for _ in range(200):
        before = held(served.state())
        last = step(page, served)["pass_id"]
        shown = page.evaluate("__model.shown.moments")
        found = {letter: {int(block) for block in shown if letter in shown[block]} for letter in "EHRP-+"}
        freed = {
            block
            for phase in served.get(f"/api/passes/{last}")["phases"][1:]
            for block, ref_cnt, _ in phase.get("blocks", [])
            if not ref_cnt
        }
        wanted = expected_moments(facts(served, last), freed, before)
        wanted["+"] -= wanted["E"] | wanted["R"]
        wanted["-"] -= wanted["P"]
        assert found == wanted, f"pass {last}"
        for line in table(page, "#kv-table table"):
            letters = [words.split()[0] for words in line[7].split(", ") if words]
            assert "".join(letters) == shown.get(line[0], "")
        tally = page.evaluate(
            "Array.from(document.querySelectorAll('#kv-moments li'), li => li.textContent.split(' '))"
        )
        assert {letter: int(count or 0) for letter, _, count in tally} == {
            letter: len(blocks) for letter, blocks in found.items()
        }
        seen |= {letter for letter, blocks in found.items() if blocks}
        if seen == set("EHRP-+"):
            return
    raise AssertionError(f"only {sorted(seen)} were to be seen")


def test_moments_fade_while_passes_go_by(page, served):
    served.post("/api/requests", prompt="On", max_tokens=100, ignore_eos=True)
    page.evaluate(
        """() => { globalThis.__tallies = new Set(); const look = () => { requestAnimationFrame(look);
             __tallies.add(document.querySelector("#kv-moments li:last-child").textContent.trim()); }; look(); }"""
    )
    served.post("/api/control", action="resume")
    until(page, "Object.values(__model.requests).at(-1)?.finish_reason === 'length'")
    until(page, "Array.from(document.querySelectorAll('#kv-moments .number')).every(number => !number.textContent)")
    tallies = page.evaluate("[...__tallies]")
    assert "+ taken" in tallies
    assert any(re.fullmatch(r"\+ taken \d+", tally) for tally in tallies)


def test_pointing_links_blocks_rows_requests_and_slots_both_ways(page, served):
    crowd(served, 6)
    state = step(page, served, 3)
    owners = held(state)
    shared = next(first for first, *_ in owners.values() if sum(first in ids for ids in owners.values()) > 1)
    holders = [req_id for req_id, ids in owners.items() if shared in ids]
    page.focus("#kv-scroll")
    for _ in range(shared + 1):  # the first press points at block 0
        page.keyboard.press("ArrowRight")
    line = page.text_content("#kv-readout")
    assert line.startswith(f"block {shared} · slots {16 * shared}{DASH}{16 * shared + 15} · row ")
    assert f"ref_cnt {len(holders)}" in line
    assert f"positions 0{DASH}15" in line
    lit = "Array.from(document.querySelectorAll('#batch tr.lit'), tr => __model.rows[tr.dataset.row].req_id)"
    assert page.evaluate(lit) == [row["req_id"] for row in state["rows"] if row and row["req_id"] in holders]
    cards = "Array.from(document.querySelectorAll('.card.lit'), card => card.dataset.request)"
    assert sorted(page.evaluate(cards)) == sorted(holders)
    marks = page.evaluate("Array.from(document.querySelectorAll('#batch mark'), mark => mark.textContent)")
    assert marks == [str(shared)] * len(holders)

    page.hover("#batch tbody tr[data-row='2']")
    lit_blocks = page.get_attribute("#kv", "data-lit")
    assert [int(block) for block in lit_blocks.split()] == owners[state["rows"][2]["req_id"]]

    page.hover("#kv", position={"x": 70, "y": 12})
    block = int(re.match(r"block (\d+)", page.text_content("#kv-readout"))[1])
    assert page.evaluate(lit) == [row["req_id"] for row in state["rows"] if row and block in owners[row["req_id"]]]
    page.mouse.move(0, 0)
    assert page.get_attribute("#kv", "data-lit") is None
    page.keyboard.press("Shift+ArrowRight")  # a token of the axis: its block is among the lit ones
    slot = facts(served, state["pass_id"], "prepare_inputs")["slot_mapping"][0]
    assert str(slot // 16) in page.get_attribute("#kv", "data-lit").split()


def why_of(served, req_id, pass_id):
    return served.get(f"/api/why?request={req_id}&pass={pass_id}")


def test_a_click_on_a_request_or_a_row_says_why_as_the_server_does(page, served):
    crowd(served)
    for _ in range(40):
        state = step(page, served)
        if facts(served, state["pass_id"])["preempted_req_ids"]:
            break
    last = state["pass_id"]
    loser = facts(served, last)["preempted_req_ids"][0]
    page.click(f"[data-request={loser}] .id")
    for pass_id in (last, last - 1, last - 2):
        answer = why_of(served, loser, pass_id)
        until(page, f"document.querySelector('#why-about').textContent === '{loser} in pass {pass_id}'")
        assert page.text_content("#why-text") == answer["text"]
        assert page.text_content("#why-code").startswith(answer["code"])
        for name, value in answer["numbers"].items():
            assert f"{name} {value}" in page.text_content("#why-code")
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("l")
    page.click("#batch tbody tr[data-row='0']")
    chosen = state["rows"][0]["req_id"]
    until(page, f"document.querySelector('#why-about').textContent === '{chosen} in pass {last}'")
    assert page.get_attribute("#batch tr[data-chosen]", "data-row") == "0"
    page.mouse.move(0, 0)
    assert [int(block) for block in page.get_attribute("#kv", "data-lit").split()] == held(state)[chosen]
    page.click("#why-close")
    assert page.locator("#why-body").is_hidden()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("w")
    until(page, f"document.querySelector('#why-about').textContent === '{chosen} in pass {last}'")


def test_why_is_asked_a_few_times_a_second_at_most_and_its_errors_are_told(page, served):
    page.expected_errors.append("410")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/api/why" in request.url else None)
    served.post("/api/requests", prompt="On and on", max_tokens=140, ignore_eos=True, copies=60)
    step(page, served)
    page.click(".card .id")
    until(page, "document.querySelector('#why-text').textContent !== ''")
    served.post("/api/control", action="resume")
    within(lambda: page.evaluate("__model.passId") and len(asked) > 3)
    took = page.evaluate(
        "(() => { const at = performance.getEntriesByType('resource').filter(r => r.name.includes('/api/why'))"
        ".map(r => r.startTime); return (at.at(-1) - at[0]) / 1000; })()"
    )
    assert len(asked) <= 2 + took / 0.35
    served.post("/api/control", action="pause")
    state = settled(page, served)
    page.route(
        "**/api/why*", lambda route: route.fulfill(status=410, json={"error": {"message": "pass 3 is forgotten"}})
    )
    step(page, served)
    until(page, "document.querySelector('#why-text').textContent === 'pass 3 is forgotten'")
    assert page.text_content("#why-about").endswith(f"in pass {state['pass_id'] + 1}")


def test_sentences_in_the_page_are_those_of_tracer_explain(page):
    numbers = {name: 7 for name in re.findall(r"\{(\w+)\}", " ".join(SENTENCES.values())) if name != "needed"}
    cases = [(code, numbers | {"needed": 3}) for code in SENTENCES if code not in ("no_budget", "no_budget_whole")]
    cases += [("no_budget", {"token_budget": 4}), ("no_budget", {"token_budget": 4, "needed": 9})]
    told = page.evaluate(
        """async (cases) => { const { Why } = await import("why");
             const why = new Why((await (await fetch("/api/config")).json()).why);
             return cases.map((words) => why.sentence(...words)); }""",
        cases,
    )
    assert told == [sentence(code, values) for code, values in cases]


def test_an_earlier_pass_and_phase_show_the_blocks_of_then(page, served):
    crowd(served)
    state = step(page, served, 20)
    gone = live(state)[0]
    page.click(f"[data-request={gone}] .cancel")
    until(page, f"__model.requests['{gone}'].finish_reason === 'abort'")
    last = step(page, served, 5)["pass_id"]
    entries = served.entries()
    for pass_id in range(last - 1, last - 12, -1):
        page.keyboard.press("ArrowLeft")
        shown = page.evaluate("__model.shown")
        then = folded(entries, pass_id)
        assert shown["passId"] == pass_id
        assert shown["blocks"] == as_json(then["blocks"]), f"pass {pass_id}"
        assert shown["held"] == held(then), f"pass {pass_id}"
    record = served.get(f"/api/passes/{pass_id}")
    then = folded(entries, pass_id - 1)
    blocks = as_json(then["blocks"])
    for phase in record["phases"]:
        blocks |= {str(block): rest for block, *rest in phase.get("blocks", [])}
        page.click(f"[data-phase={phase['phase']}]")
        assert page.evaluate("__model.shown.blocks") == blocks, phase["phase"]
    page.keyboard.press("l")
    assert page.evaluate("__model.shown.blocks") == served.state()["blocks"]


def test_the_map_can_be_hidden_and_shown_as_a_table(page, served):
    crowd(served, 2)
    step(page, served)
    page.click("#kv-table-toggle")
    assert page.locator("#kv-table").bounding_box()["width"] > 300
    assert page.locator("#kv").is_hidden()
    page.keyboard.press("k")
    assert page.locator("#kv-body").is_hidden()
    assert "used" in page.text_content("#kv-count")
    until(page, "location.hash.includes('tables=kv')")
    page.reload()
    until(page, "window.__model !== undefined")
    until(page, "document.querySelector('#kv-table-toggle').ariaPressed === 'true'")
    assert page.locator("#kv-body").is_hidden()
    page.keyboard.press("k")
    until(page, "document.querySelector('#kv-table').getBoundingClientRect().width > 300")
    page.click("#kv-table-toggle")
    assert page.locator("#kv").is_visible()


@pytest.mark.parametrize("count", [11, 24, 256, 1456, 20_000])
@pytest.mark.parametrize("box", [(690, 108), (1060, 162)])
def test_every_block_has_its_own_cell_whatever_the_size_of_the_pool(page, count, box):
    found = page.evaluate(
        """async ([count, width, height]) => {
             const { blockAt, cornerOf, gridFor } = await import("kv_grid");
             const grid = gridFor(count, { width, height, widest: 32, left: 30 });
             const back = Array.from({ length: count }, (_, id) => {
               const { x, y } = cornerOf(id, grid);
               return x >= 30 && x + grid.size <= width ? blockAt(x + grid.size - 1, y + 1, grid, count) : null;
             });
             return { grid, same: back.every((id, i) => id === i), beside: blockAt(3, 3, grid, count) }; }""",
        [count, *box],
    )
    assert found["same"]
    assert found["beside"] is None
    size, lines = found["grid"]["size"], found["grid"]["lines"]
    assert size * lines <= box[1] or size == 4, "it scrolls only where the cells are as small as can be"
    assert size > 4 or count > 1456


def test_a_reorder_is_shown_as_swaps(browser):
    served = Served("--reorder-batch-threshold", "1")
    try:
        served.post("/api/control", action="pause")
        with open_page(browser, served) as page:
            for count in (3, 40):
                served.post("/api/requests", prompt="Hi", max_tokens=count, ignore_eos=True)
            step(page, served, 3)  # the first request ends, and its row will go to a prompt
            served.post("/api/requests", prompt="word " * 10, max_tokens=8, ignore_eos=True)
            last = step(page, served)["pass_id"]
            [[a, b, how]] = facts(served, last, "reorder")["moved"]
            assert how == "SWAP"
            assert f"reorder swaps {a}⇄{b}" in page.text_content("#batch-count")
            for row, other in ((a, b), (b, a)):
                words = page.text_content(f"#batch tr[data-row='{row}'] .state")
                assert words == (f"new ⇄{other}→{row}" if row == 1 else f"swap {other}→{row}")
    finally:
        served.stop()

"""Any moment of a run that goes on: it is shown exactly, stays where it is parked, and its address brings it back."""

import copy
import json

import pytest
import requests
from helpers.page import open_page, settled, until, within

from tracer.fold import apply_change, fold, new_state
from tracer.schema import PassRecord, decode, encode
from tracer.trace_format import BlockEntry, Span
from tracer.trace_reader import read_block

pytestmark = pytest.mark.browser

# A socket of the test's own in the place of Socket.IO: __feed(entries) hands log entries to the page as frames.
OWN_SOCKET = """() => {
  const handlers = {};
  const socket = { on: (name, handler) => { handlers[name] = handler; }, emit: () => {}, connected: true };
  const io = () => { setTimeout(() => handlers.connect(), 0); return socket; };
  Object.defineProperty(globalThis, "io", { get: () => io, set: () => {} });
  const bytes = (entries) => new Uint8Array(entries.flatMap((entry) => [...MessagePack.encode(entry)]));
  globalThis.__feed = (entries) => handlers.frame({ from: entries[0].seq, to: entries.at(-1).seq }, bytes(entries));
}"""

# Show what the log holds again and again, as so many passes of a run that goes on.
REPEAT = """async ({ from, to, passes }) => {
  const reply = await fetch(`/api/log?from=${from}&to=${to}`);
  const template = [...MessagePack.decodeMulti(new Uint8Array(await reply.arrayBuffer()))];
  const frame = () => new Promise(requestAnimationFrame);
  let [seq, passId] = [__model.seq, __model.passId];
  for (const end = passId + passes; passId < end; await frame()) {
    __feed(Array(10).fill(template).flat().map((entry) => {
      seq += 1;
      return entry.kind === "pass" ? { ...entry, seq, pass_id: (passId += 1) } : { ...entry, seq };
    }));
  }
  await new Promise((done) => setTimeout(done, 500));  // for what is drawn five times a second at most
  await frame();
  await frame();
}"""


def run_passes(served, passes, copies=16):
    """Hold the engine after so many passes of a burst. Returns /api/state."""
    served.post("/api/control", action="pause")
    served.post("/api/requests", prompt="On and on", copies=copies, max_tokens=900, ignore_eos=True)
    served.post("/api/control", action="step", passes=passes)
    return within(lambda: (state := served.state())["gate"]["permits"] == 0 and state, what="the engine being held")


def entries(served):
    """The whole log, from the blocks that the page reads."""
    for number, span in enumerate(served.get("/api/trace/index")["blocks"]):
        section = requests.get(f"{served.base}/api/trace/blocks/{number}", timeout=30).content
        yield from map(decode, read_block(section, BlockEntry(0, len(section), Span(*span))).entries)


def states_before(served, wanted):
    """{pass id: (the state before it, its record)} for the wanted passes; both are the caller's own."""
    state, found = new_state(16), {}
    for entry in entries(served):
        if isinstance(entry, PassRecord) and entry.pass_id in wanted:
            found[entry.pass_id] = plain(state), decode(encode(entry))
        fold(state, entry)
    return found


def state_after(before, record):
    return plain(fold(before, record))


def plain(state):
    return json.loads(json.dumps(state))


def shown(page):
    return page.evaluate("(({ passId, phase, live }) => [passId, phase, live])(__model.shown)")


def test_a_page_that_joined_late_shows_every_earlier_pass_as_it_was(browser, served):
    last = run_passes(served, 200)["pass_id"]
    wanted = [last - 199, last - 130, last - 65, last - 64, last - 1]
    states = states_before(served, wanted)
    with open_page(browser, served) as page:
        for pass_id in wanted:
            page.keyboard.press("g")
            page.keyboard.type(str(pass_id))
            page.keyboard.press("Enter")
            until(page, f"__model.shown.passId === {pass_id}")
            state = state_after(*states[pass_id])
            assert page.evaluate("__model.shown.rows") == state["rows"]
            assert page.evaluate("__model.shown.blocks") == state["blocks"]
            until(page, "Object.values(__model.shownRequests).every(request => 'arrival_pass' in request)")
            assert page.evaluate("__model.shownRequests") == state["requests"]
        page.keyboard.press("l")
        assert shown(page) == [last, None, True]


def test_the_phases_of_all_passes_are_one_walk(browser, served):
    last = run_passes(served, 4)["pass_id"]
    states = states_before(served, [last - 1, last])
    with open_page(browser, served) as page:
        moments = [(pass_id, phase.phase) for pass_id in (last - 1, last) for phase in states[pass_id][1].phases]
        for pass_id, name in moments[:-5:-1]:
            page.keyboard.press(",")
            assert shown(page)[:2] == [pass_id, name]
            assert page.evaluate("__model.shown.rows") == rows_at(*states[pass_id], name)
        page.click(f"[data-phase={states[last][1].phases[0].phase}]")
        border = moments.index((last, states[last][1].phases[0].phase))
        for pass_id, name in (moments[border - 1], moments[border - 2]):
            page.click("#phase-back")
            until(page, f"__model.shown.passId === {pass_id} && __model.shown.phase === '{name}'")
            assert page.evaluate("__model.shown.rows") == rows_at(*states[pass_id], name)
        for pass_id, name in moments[border - 1 : border + 2]:
            page.keyboard.press(".")
            until(page, f"__model.shown.passId === {pass_id} && __model.shown.phase === '{name}'")


def rows_at(before, record, name):
    """The rows at the end of a phase."""
    rows, record = copy.deepcopy(before["rows"]), decode(encode(record))
    for phase in record.phases:
        for change in phase.changes:
            apply_change(rows, change)
        if phase.phase == name:
            return rows
    raise AssertionError(f"no phase {name}")


def at_rest(page, expression):
    """What an expression gives once it has stayed the same for a while: cards out of sight are drawn a little later."""
    value, last = page.evaluate(expression), None
    while value != last:
        page.wait_for_timeout(150)
        value, last = page.evaluate(expression), value
    return value


def test_a_parked_page_stays_while_passes_and_whole_states_come(page, served):
    start = run_passes(served, 150)["pass_id"]
    settled(page, served)
    page.click("#first")
    until(page, "__model.shown.passId === 0")
    page.click("#forward")
    page.click("#forward")
    rows, known = page.evaluate("[__model.shown.rows, __model.shownRequests]")
    cards = "Array.from(document.querySelectorAll('.card'), card => card.textContent).join()"
    texts = at_rest(page, cards)
    served.post("/api/control", action="resume")
    until(page, f"__model.passId > {start + 250}", timeout=60)
    page.evaluate("const end = performance.now() + 1500; while (performance.now() < end);")  # hears nothing: resync
    until(page, f"__model.passId > {start + 280}", timeout=60)
    assert shown(page) == [2, None, False]
    assert page.evaluate("[__model.shown.rows, __model.shownRequests]") == [rows, known]
    assert page.evaluate(cards) == texts
    served.post("/api/control", action="pause")  # the last block grows no more
    assert state_after(*states_before(served, [2])[2])["rows"] == rows


def test_the_scrubber_goes_first_last_before_after_by_number_and_by_its_line(page, served):
    last = run_passes(served, 90)["pass_id"]
    settled(page, served)
    page.keyboard.press("Home")
    until(page, "__model.shown.passId === 0")
    assert page.is_disabled("#first")
    assert page.is_disabled("#back")
    page.click("#forward")
    until(page, "__model.shown.passId === 1")
    page.fill("#jump", str(last - 70))
    page.press("#jump", "Enter")
    until(page, f"__model.shown.passId === {last - 70}")
    page.click("#back")
    until(page, f"__model.shown.passId === {last - 71}")
    assert page.input_value("#passes") == page.input_value("#jump") == str(last - 71)
    page.evaluate(
        "value => { const line = document.querySelector('#passes'); line.value = value;"
        " line.dispatchEvent(new Event('input')); }",
        7,
    )
    until(page, "__model.shown.passId === 7")
    within(lambda: page.get_attribute("#passes", "aria-valuetext") == f"pass 7, the newest is {last}")
    page.fill("#jump", "999999")
    page.press("#jump", "Enter")
    until(page, f"__model.shown.passId === {last}")
    page.click("#live")
    assert shown(page) == [last, None, True]
    within(lambda: page.is_disabled("#forward"))


def test_a_run_is_played_at_the_chosen_speed_to_its_end_and_by_phases(page, served):
    last = run_passes(served, 40)["pass_id"]
    settled(page, served)
    page.evaluate("""() => { globalThis.__seen = []; const look = () => { requestAnimationFrame(look);
        const pass = document.querySelector("#pass").textContent; if (__seen.at(-1) !== pass) __seen.push(pass); };
        look(); }""")
    page.fill("#jump", str(last - 20))
    page.press("#jump", "Enter")
    page.select_option("#speed", label="20/s")
    page.keyboard.press("y")
    started = page.evaluate("performance.now()")
    until(page, f"__model.shown.live && __model.shown.passId === {last}")
    assert page.evaluate("performance.now()") - started > 900
    seen = [int(text) for text in page.evaluate("__seen")]
    played = seen[seen.index(last - 20) :]
    assert played == sorted(set(played))
    assert len(played) > 2
    page.fill("#jump", str(last - 2))
    page.press("#jump", "Enter")
    page.select_option("#speed", label="1/s by phase")
    page.click("#play")
    until(page, "__model.shown.phase !== null")
    first = page.evaluate("__model.shown.phase")
    until(page, f"__model.shown.phase !== '{first}'")
    assert page.get_attribute("#play", "aria-label") == "stop playing"
    page.click("#play")
    at = shown(page)
    page.wait_for_timeout(300)
    assert shown(page) == at


def test_the_address_brings_a_moment_back_also_to_somebody_else(browser, served):
    last = run_passes(served, 80)["pass_id"]
    with open_page(browser, served) as page:
        page.fill("#jump", str(last - 70))
        page.press("#jump", "Enter")
        until(page, f"__model.shown.passId === {last - 70}")
        page.click("[data-phase=prepare_inputs]")
        page.click("#batch tbody tr[data-row='1']")
        until(page, "location.hash.includes('request=')")
        address = page.evaluate("location.href")
        chosen = page.evaluate("document.querySelector('.card[data-chosen]').dataset.request")
        page.reload()
        until(page, f"window.__model?.shown.passId === {last - 70}")
        assert shown(page) == [last - 70, "prepare_inputs", False]
        until(page, f"document.querySelector('.card[data-chosen]').dataset.request === '{chosen}'")
        with open_page(browser, served) as other:
            other.goto("about:blank")
            other.goto(address)
            until(other, f"window.__model?.shown.passId === {last - 70}")
            assert shown(other) == [last - 70, "prepare_inputs", False]
        page.keyboard.press("Escape")
        page.keyboard.press("l")
        until(page, "location.hash === ''")


def test_the_address_of_another_run_is_said_to_be_one(page, served):
    last = run_passes(served, 5)["pass_id"]
    page.goto("about:blank")
    page.goto(f"{served.base}/#trace=abc&pass=0")
    until(page, "window.__model !== undefined")
    until(page, f"__model.shown.passId === {last}")
    assert "another run" in page.text_content("#notice")
    until(page, "location.hash === ''")


def test_a_forgotten_pass_is_told_and_the_page_stays_where_it_is(page, served):
    page.expected_errors.append("410")
    last = run_passes(served, 200)["pass_id"]
    settled(page, served)
    words = "these passes are forgotten: to keep all, serve with --record FILE"
    forgotten = {"status": 410, "json": {"error": {"message": words}}}
    page.route("**/api/trace/blocks/0", lambda route: route.fulfill(**forgotten))
    page.reload()  # or it would be at hand already
    until(page, "window.__model !== undefined")
    settled(page, served)
    page.keyboard.press("Home")
    until(page, "!document.querySelector('#notice').hidden")
    assert page.text_content("#notice") == f"Pass 0 cannot be shown: {words}"
    assert shown(page) == [last, None, True]
    page.keyboard.press("ArrowLeft")
    until(page, f"__model.shown.passId === {last - 1}")
    assert page.is_hidden("#notice")


def test_records_near_a_pass_are_those_up_to_it(page, served):
    last = run_passes(served, 150)["pass_id"]
    near = """async ([passId, count]) => {
      const { History } = await import("history");
      const { Store } = await import("store");
      const { stateFromJson } = await import("fold");
      const { getState } = await import("api");
      const store = new Store(16);
      store.reset(stateFromJson(await getState()), []);
      const history = new History(store);
      await history.refresh();
      return (await history.near(passId, count)).map((record) => record.pass_id);
    }"""
    assert page.evaluate(near, [last, 130]) == list(range(last - 129, last + 1))
    assert page.evaluate(near, [last - 100, 7]) == list(range(last - 106, last - 99))
    assert page.evaluate(near, [2, 50]) == [0, 1, 2]


def test_a_page_left_open_does_not_grow(browser, served):
    before = run_passes(served, 60)["seq"]
    served.post("/api/control", action="step", passes=20)
    within(lambda: served.state()["gate"]["permits"] == 0)
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(f"({OWN_SOCKET})()")
    page.goto(served.base)
    until(page, "window.__model !== undefined && document.querySelector('#link').textContent === 'live'")
    devtools = context.new_cdp_session(page)
    last = served.state()["seq"]

    def heap_after(passes):
        page.evaluate(REPEAT, {"from": before + 1, "to": last, "passes": passes})
        devtools.send("HeapProfiler.collectGarbage")
        return devtools.send("Runtime.getHeapUsage")["usedSize"], page.evaluate("document.querySelectorAll('*').length")

    (heap, nodes), first = heap_after(1_000), page.evaluate("__model.passId")
    grown, more_nodes = heap_after(8_000)
    assert page.evaluate("__model.passId") >= first + 8_000
    assert errors == []
    assert more_nodes < nodes + 50
    assert grown < heap + 1_500_000, f"8,000 passes took {grown - heap} bytes"
    context.close()

"""A recorded run in Chromium: replayed by a server, and as one exported page with the network off."""

import json
import re
import subprocess
import sys

import pytest
from helpers.page import Served, table, until, within
from helpers.recorded import decoded, run, write

from batchscope.cli import main
from tracer.explain import explain
from tracer.fold import fold, new_state
from tracer.schema import PassRecord
from tracer.trace_reader import TraceReader

pytestmark = pytest.mark.browser

# Fold every block of the trace from the first on, and each block's keyframe on its own.
FOLD_BLOCKS = """async () => {
  const { fold, newState } = await import("fold");
  const { getTraceBlock, getTraceIndex } = await import("api");
  const { readBlock, stateOf } = await import("trace_block");
  const plain = (state) => JSON.stringify({ ...state, requests: Object.fromEntries(state.requests),
                                            blocks: Object.fromEntries(state.blocks) });
  const { blocks } = await getTraceIndex();
  const [after, keyframes, ended] = [[], [], new Map()];
  const state = newState(__model.rows.length);
  for (const number of blocks.keys()) {
    const block = await readBlock(await getTraceBlock(number));
    keyframes.push(plain(stateOf(block.keyframe, (other) => ended.get(other))));
    ended.set(number, block.ended);
    for (const entry of block.entries) after.push(plain(fold(state, entry)));
  }
  return { after, keyframes };
}"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write(tmp_path_factory.mktemp("trace") / "run.bscope")


@pytest.fixture(scope="module")
def served(trace):
    command = [sys.executable, "-c", "import sys; from batchscope.cli import main; sys.exit(main())"]
    process = subprocess.Popen([*command, "replay", str(trace), "--port", "0"], stdout=subprocess.PIPE, text=True)
    server = Served.__new__(Served)
    server.process, server.base = process, re.search(r"http://\S+", process.stdout.readline())[0]
    yield server
    server.stop()


@pytest.fixture(scope="module")
def exported(trace):
    out = trace.with_name("run.html")
    assert main(["export", str(trace), str(out)]) == 0
    return out


@pytest.fixture(params=["replayed", "exported"])
def page(request, browser):
    """The page of a replay, and the exported page opened from the disk; neither may log an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page, errors, asked = context.new_page(), [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: asked.append(request.url))
    if request.param == "exported":
        context.set_offline(True)
        page.goto(request.getfixturevalue("exported").as_uri())
    else:
        page.goto(request.getfixturevalue("served").base)
    until(page, "window.__model !== undefined && __model.passId >= 0")
    yield page
    if request.param == "exported":
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [text for text in errors if "409 (CONFLICT)" not in text] == []
    context.close()


def states_after():
    """(entry, the state after it) of the whole run."""
    state = new_state(len(run_rows()))
    for entry in decoded(run()[0]):
        yield entry, fold(state, entry)


def run_rows():
    return [None] * run()[1].max_num_seqs


def plain(state):
    return json.loads(json.dumps(state))


def test_the_browser_folds_every_recorded_pass_as_python_does(page, trace):
    folded = page.evaluate(FOLD_BLOCKS)
    states = [plain(state) for _, state in states_after()]
    assert len(folded["after"]) == len(states)
    for got, expected in zip(folded["after"], states, strict=True):
        assert json.loads(got) == expected, f"after entry {expected['seq']}"
    reader = TraceReader(trace)
    assert len(folded["keyframes"]) == len(reader.index) > 2
    for number, got in enumerate(folded["keyframes"]):
        assert json.loads(got) == plain(reader.state_before(number)), f"the keyframe of block {number}"


def test_the_page_opens_at_the_last_pass_with_all_that_came_after_it(page):
    *_, (_, last) = states_after()
    until(page, "Object.values(__model.requests).every(request => request.prompt_token_ids.length)")
    assert page.evaluate("__model.rows") == last["rows"]
    assert page.evaluate("__model.requests") == plain(last["requests"])
    assert page.evaluate("__model.finished") == last["finished"]
    assert page.evaluate("__model.blocks") == plain(last["blocks"])
    assert page.text_content("#pass") == str(last["pass_id"])
    assert page.text_content("#link") == "recording"
    assert page.is_disabled("#forward")
    assert not page.is_visible("#pause")
    assert page.query_selector("#prompt-form") is None


def test_one_walks_back_and_forward_over_blocks_and_every_pass_is_exact(page):
    rows = {e.pass_id: plain(state["rows"]) for e, state in states_after() if isinstance(e, PassRecord)}
    last = max(rows)
    seen = 0
    for key, step, count in (("ArrowLeft", -1, 70), ("ArrowRight", 1, 40), ("ArrowLeft", -1, 3)):
        for _ in range(count):
            page.keyboard.press(key)
            seen += step
            until(page, f"__model.shown.passId === {last + seen}")
            assert page.evaluate("__model.shown.rows") == rows[last + seen]
    page.keyboard.press("l")
    until(page, f"__model.shown.passId === {last}")


def test_the_first_pass_can_be_reached_and_shown_phase_by_phase(page):
    for _ in range(run_passes()):
        page.keyboard.press("ArrowLeft")
    until(page, "__model.shown.passId === 0")
    assert page.is_disabled("#back")
    page.click("[data-phase=add_requests]")
    assert page.evaluate("__model.shown.phase") == "add_requests"
    first = next(entry for entry in decoded(run()[0]) if isinstance(entry, PassRecord))
    added = next(phase.facts["req_ids"] for phase in first.phases if phase.phase == "add_requests")
    assert page.evaluate("__model.shown.rows.filter(Boolean).map(row => row.req_id)") == added
    facts = next(phase.facts for phase in first.phases if phase.phase == "prepare_inputs")
    page.keyboard.press("Escape")
    within(lambda: [int(line[4]) for line in table(page, "#axis-table table")] == facts["positions"])


def test_the_address_brings_a_moment_back(page):
    page.fill("#jump", "3")
    page.press("#jump", "Enter")
    until(page, "__model.shown.passId === 3")
    page.click("[data-phase=prepare_inputs]")
    rows = page.evaluate("__model.shown.rows")
    until(page, "location.hash.endsWith('&pass=3&phase=prepare_inputs')")
    page.reload()
    until(page, "window.__model?.shown.passId === 3")
    assert page.evaluate("[__model.shown.phase, __model.shown.rows]") == ["prepare_inputs", rows]
    assert page.is_hidden("#notice")


def test_a_recording_is_played_again_from_its_beginning(page):
    last = run_passes() - 1
    page.select_option("#speed", label="60/s")
    page.keyboard.press("y")
    until(page, f"__model.shown.passId < {last}")
    until(page, f"__model.shown.passId === {last}")
    assert page.get_attribute("#play", "aria-label") == "play"


def test_the_first_pass_is_at_hand_before_its_key_is_pressed(page, request):
    if "exported" in request.node.name:
        return  # it has all at hand
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/trace/blocks/0')).length"
    until(page, f"{asked} === 1")
    page.keyboard.press("Home")
    until(page, "__model.shown.passId === 0")
    assert page.evaluate(asked) == 1


def test_a_damaged_block_is_told_and_the_others_are_shown(page, request):
    if "exported" in request.node.name:
        return  # a damaged trace is not exported
    last = page.evaluate("__model.shown.passId")
    page.route("**/api/trace/blocks/0", lambda route: route.fulfill(status=200, body=b"no block at all, " * 9))
    page.reload()  # or the charts could have read the block already
    until(page, "window.__model?.shown.passId !== undefined")
    page.keyboard.press("Home")
    until(page, "document.querySelector('#notice').textContent.startsWith('Pass 0 cannot be shown')")
    assert page.evaluate("__model.shown.passId") == last
    page.keyboard.press("ArrowLeft")
    until(page, f"__model.shown.passId === {last - 1}")


# The card of request a, then of b, and a card of b alone: what they say, in sight or not.
CARDS = """async (visible) => {
  const { getVocab } = await import("api");
  const { RequestCard } = await import("request_card");
  const { Vocab } = await import("vocab");
  const vocab = new Vocab(await getVocab());
  const a = { prompt_token_ids: [5, 6, 7], num_prompt_tokens: 3, output_token_ids: [8, 9], max_tokens: 4 };
  const b = { prompt_token_ids: [10], num_prompt_tokens: 1, output_token_ids: [11, 12, 13], finish_reason: "stop" };
  const [used, fresh] = [new RequestCard(vocab), new RequestCard(vocab)];
  used.visible = visible;
  used.name("a", a);
  used.update(a, 2, "no_rows");
  used.light(true, true, "row 2");
  used.error.hidden = false;
  used.id.click();
  for (const card of [used, fresh]) {
    card.name("b", b);
    card.update(b, null, "");
    card.light(false, false, "");
  }
  return [used, fresh].map(({ node }) => [node.textContent, node.className, node.title, node.dataset.request,
    Array.from(node.querySelectorAll("*"), (part) => [part.className, part.hidden, part.title, part.ariaLabel,
      part.ariaExpanded, part.dataset.tint, part.dataset.pattern])]);
}"""


@pytest.mark.parametrize("visible", [True, False])
def test_a_card_that_is_used_again_says_nothing_of_the_request_before(page, visible):
    used, fresh = page.evaluate(CARDS, visible)
    assert used == fresh
    assert used[0].startswith("b1+3/∞stop")


def test_what_has_happened_cannot_be_cancelled(page):
    page.fill("#jump", "3")
    page.press("#jump", "Enter")
    until(page, "__model.shown.passId === 3")
    assert page.locator(".card:not([data-ended]) .id:visible").count() > 0
    assert page.locator(".card .cancel:visible").count() == 0


def run_passes():
    return sum(isinstance(entry, PassRecord) for entry in decoded(run()[0]))


def test_why_is_answered_at_every_pass_as_the_engine_did(page, trace):
    reader = TraceReader(trace)
    ids = ["0", "7", "29", "extra-30", "extra-39", "nobody"]
    for pass_id in (0, 5, run_passes() // 2, run_passes() - 1, run_passes() + 3):
        for req_id in ids:
            asked = f"import('api').then(({{ getWhy }}) => getWhy({req_id!r}, {pass_id}))"
            assert page.evaluate(asked) == plain(explain(reader, req_id, pass_id)), (req_id, pass_id)


def test_what_would_need_an_engine_says_that_there_is_none(page):
    words = page.evaluate("import('api').then(({ cancelRequest }) => cancelRequest('0')).catch(error => error.message)")
    assert "no engine runs" in words

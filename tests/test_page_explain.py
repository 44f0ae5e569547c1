"""The panel of the shown phase: explanation, code, facts and changes, on a page from the disk with the network off."""

import copy
import re
import textwrap

import msgspec
import pytest
from helpers.page import open_page, settled, shared_server, until
from helpers.recorded import decoded, run, write

from batchscope.cli import main
from tracer.explanations import EXPLANATIONS, explain_phase, here
from tracer.fold import apply_change, fold, new_state
from tracer.phases import Phase
from tracer.schema import PassRecord
from tracer.template import words

pytestmark = pytest.mark.browser

LINES = """() => Array.from(document.querySelectorAll("#code-lines li"), (line) => ({
  number: Number(line.querySelector(".number").textContent), code: line.querySelector("code").textContent,
  values: line.querySelector(".values").textContent, part: line.hasAttribute("data-part") }))"""
TEXTS = "selector => Array.from(document.querySelectorAll(selector), (each) => each.textContent)"
ARROW = "\N{RIGHTWARDS ARROW}"


@pytest.fixture(scope="module")
def passes():
    return {entry.pass_id: entry for entry in decoded(run()[0]) if isinstance(entry, PassRecord)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(tmp_path_factory.mktemp("trace"), run()[1])


@pytest.fixture
def page(browser, exported):
    with opened(browser, exported) as page:
        yield page


def export(folder, header):
    trace, out = write(folder / "run.bscope", header=header), folder / "run.html"
    assert main(["export", str(trace), str(out)]) == 0
    return out


class opened:  # noqa: N801
    """A page from the disk without a network; it may not log an error."""

    def __init__(self, browser, path):
        self.context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
        self.page, self.errors = self.context.new_page(), []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        until(self.page, "window.__model !== undefined && __model.passId >= 0")

    def __enter__(self):
        return self.page

    def __exit__(self, *failure):
        self.context.close()
        assert failure[0] or self.errors == []


def show(page, pass_id, phase):
    """Go to a pass by its number and choose one of its phases."""
    if page.evaluate("__model.shown.passId") != pass_id:
        page.fill("#jump", str(pass_id))
        page.keyboard.press("Enter")
        until(page, f"__model.shown.passId === {pass_id}")
    if page.evaluate("__model.shown.phase") != phase:
        page.click(f"#chips [data-phase={phase}]")
    until(page, f"__model.shown.phase === '{phase}'")
    drawn(page)


def drawn(page):
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def texts(page, selector):
    return page.evaluate(TEXTS, selector)


def facts(record, name):
    return next(phase.facts for phase in record.phases if phase.phase == name)


def first_with(passes, phase, fact):
    return next(pass_id for pass_id, record in passes.items() if facts(record, phase)[fact])


def rows_around(pass_id, phase):
    """The rows before and after a phase of a pass."""
    state = new_state(run()[1].max_num_seqs)
    for entry in decoded(run()[0]):
        if isinstance(entry, PassRecord) and entry.pass_id == pass_id:
            for each in entry.phases:
                before = copy.deepcopy(state["rows"])
                for change in each.changes:
                    apply_change(state["rows"], change)
                if each.phase == phase:
                    return before, state["rows"]
        fold(state, entry)
    raise AssertionError(f"pass {pass_id} has no phase {phase}")


def test_the_explanation_is_what_python_says(page, passes):
    pass_id = first_with(passes, "condense", "moved")
    for phase in ("condense", "prepare_inputs", "bookkeeping"):
        show(page, pass_id, phase)
        shown = "\n\n".join(page.text_content(f"#detail-{part}") for part in ("does", "here", "why"))
        assert shown == explain_phase(passes[pass_id], phase)
    page.keyboard.press("Escape")
    until(page, "__model.shown.phase === null")
    drawn(page)
    story = texts(page, "#detail-story li")
    assert len(story) == len(passes[pass_id].phases)
    for line, phase in zip(story, passes[pass_id].phases, strict=True):
        name, _, sentence = line.partition(" ")
        assert name == phase.phase
        assert sentence
        assert here(passes[pass_id], name).startswith(sentence)
    page.click("#detail-story button >> nth=2")
    until(page, f"__model.shown.phase === '{passes[pass_id].phases[2].phase}'")


def test_tabs_are_reached_by_the_arrows_and_do_not_walk_over_passes(page, passes):
    before = page.evaluate("__model.shown.passId")
    names = ["explanation", "code", "facts", "changes"]
    assert texts(page, "#detail-tabs [role=tab]") == names
    page.focus("#tab-explanation")
    for key, wanted in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("End", 3),
        ("ArrowRight", 0),
        ("ArrowLeft", 3),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == f"tab-{names[wanted]}"
        assert texts(page, "#detail-tabs [aria-selected=true]") == [names[wanted]]
        for name in names:
            assert page.locator(f"#panel-{name}").is_visible() == (name == names[wanted])
    assert page.evaluate("__model.shown.passId") == before
    assert page.locator("#detail-tabs [tabindex='0']").count() == 1


def test_the_code_has_this_pass_s_values_beside_its_names(page, passes):
    source = run()[1].config["sources"]["prepare_inputs"]
    pass_id = first_with(passes, "condense", "moved")
    show(page, pass_id, "prepare_inputs")
    page.keyboard.press("c")
    lines = page.evaluate(LINES)
    assert "\n".join(line["code"] for line in lines) == textwrap.dedent("\n".join(source["lines"]))
    assert lines[0]["number"] == source["first_line"]
    assert page.text_content("#code-function") == "GPUModelRunner._prepare_inputs"
    assert page.text_content("#code-file") == f"runner/gpu_model_runner.py:{source['first_line']}"
    assert page.text_content("#code-vllm") == "GPUModelRunner._prepare_inputs (vllm/v1/worker/gpu_model_runner.py)"
    inputs = facts(passes[pass_id], "prepare_inputs")
    wanted = {"counts": "num_scheduled_tokens"} | {
        name: name for name in ("query_start_loc", "logits_indices", "req_indices", "discard_request_mask", "seq_lens")
    }
    for name, fact in wanted.items():
        with_name = [line for line in lines if re.search(rf"\b{name}\b", line["code"].split("#")[0].split('"""')[0])]
        assert with_name
        for line in with_name:
            assert f"{name} = {words(inputs[fact])}" in line["values"], line
    assert all(line["values"] == "" for line in lines if not re.search(r"[a-z]", line["code"]))
    assert "cumsum_and_arange" in page.text_content("#code-calls summary")


def test_the_code_of_a_part_of_a_function_is_marked_and_in_sight(page, passes):
    show(page, max(passes), "park_logits")
    page.keyboard.press("c")
    marked = [line for line in page.evaluate(LINES) if line["part"]]
    assert any("compute_logits" in line["code"] for line in marked)
    assert not any("_update_states" in line["code"] for line in marked)
    inside = """() => { const panel = document.querySelector("#code-scroll").getBoundingClientRect();
      const line = document.querySelector("#code-lines [data-part]").getBoundingClientRect();
      return line.top >= panel.top - 1 && line.bottom <= panel.bottom + 1; }"""
    assert page.evaluate(inside)


def test_what_changed_is_listed_and_marked_with_old_and_new_values(page, passes):
    pass_id = first_with(passes, "condense", "moved")
    page.click("#tab-changes")
    show(page, pass_id, "update_cached")
    before, after = rows_around(pass_id, "update_cached")
    lines = texts(page, "#changes li")
    for row in facts(passes[pass_id], "update_cached")["rows"]:
        old, new = (rows[row]["num_computed_tokens"] for rows in (before, after))
        text = f"num_computed_tokens {old} {ARROW} {new}"
        assert f"row {row} {text}" in lines
        assert text in page.get_attribute(f"#batch tr[data-row='{row}'] td:nth-child(5)", "title")
    changed = sum(
        before[row][field] != after[row][field] for row in range(len(after)) if after[row] for field in after[row]
    )
    assert page.text_content("#changes-count").startswith(f"{changed} cells in ")
    page.click("#chips [data-phase=condense]")
    moved = facts(passes[pass_id], "condense")["moved"]
    before, _ = rows_around(pass_id, "condense")
    until(page, f"document.querySelectorAll('#changes li').length === {len(moved)}")
    assert texts(page, "#changes li") == [
        f"row {src} {ARROW} row {dst}: {before[src]['req_id']} moved" for src, dst, _ in moved
    ]
    page.click("#chips [data-phase=prepare_inputs]")
    until(page, "document.querySelectorAll('#changes li').length === 0")
    assert "Nothing in the batch changed" in page.text_content("#changes-count")


def test_a_row_that_enters_is_one_line_with_all_its_values(page, passes):
    page.click("#tab-changes")
    show(page, 0, "add_requests")
    _, after = rows_around(0, "add_requests")
    lines = texts(page, "#changes li")
    assert len(lines) == len(facts(passes[0], "add_requests")["req_ids"])
    first = after[0]
    assert lines[0].startswith(f"row 0 empty {ARROW} {first['req_id']}: num_prompt_tokens {first['num_prompt_tokens']}")
    assert f"token_ids {words(first['token_ids'])[:30]}" in lines[0]


def test_facts_are_whole_when_one_asks(page, passes):
    page.click("#tab-facts")
    show(page, 0, "prepare_inputs")
    names = texts(page, "#facts .name")
    assert names == list(facts(passes[0], "prepare_inputs"))
    value = page.locator("#facts .value").nth(names.index("slot_mapping"))
    assert "in all" in value.text_content()
    value.click()
    assert value.text_content() == f"[{', '.join(map(str, facts(passes[0], 'prepare_inputs')['slot_mapping']))}]"


def test_a_recording_without_explanations_and_sources_opens_and_says_so(browser, tmp_path):
    header = run()[1]
    config = {name: value for name, value in header.config.items() if name not in ("explanations", "sources")}
    with opened(browser, export(tmp_path, msgspec.structs.replace(header, config=config))) as page:
        page.click("#chips [data-phase=forward]")
        until(page, "__model.shown.phase === 'forward'")
        assert "not recorded" in page.text_content("#detail-does")
        page.click("#tab-code")
        assert "not recorded" in page.text_content("#code-note")
        assert not page.locator("#code-body").is_visible()


def test_a_phase_that_a_held_pass_has_not_come_to_says_so(browser):
    served = shared_server()
    with open_page(browser, served) as page:
        served.post("/api/control", action="pause")
        served.post("/api/requests", prompt="Hold it", max_tokens=5, ignore_eos=True)
        served.post("/api/control", action="step_stop")
        until(page, "__model.gate.held !== undefined")
        page.click("#chips [data-phase=forward]")
        drawn(page)
        assert "went through the model together" in page.text_content("#detail-here")
        page.click("#chips [data-phase=bookkeeping]")
        drawn(page)
        assert page.text_content("#detail-here") == "It has not run yet: the engine is held in this pass."
    served.rest()


def test_a_double_click_opens_the_code_and_the_address_keeps_the_tab(browser):
    served = shared_server()
    with open_page(browser, served) as page:
        served.post("/api/requests", prompt="Where is the code?", max_tokens=3, ignore_eos=True)
        until(page, "__model.passId >= 0")
        settled(page, served)
        page.dblclick("#chips [data-phase=forward]")
        until(page, "__model.shown.phase === 'forward'")
        assert page.locator("#panel-code").is_visible()
        until(page, "location.hash.includes('tab=code')")
        page.reload()
        until(page, "window.__model !== undefined")
        until(page, "document.querySelector('#tab-code').getAttribute('aria-selected') === 'true'")
        assert {*EXPLANATIONS} == {phase.value for phase in Phase}
    served.rest()

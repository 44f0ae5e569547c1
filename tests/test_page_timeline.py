"""The timeline of a pass, the charts over passes and the images of views, against what the engine recorded."""

import base64
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.page import open_page, settled, shared_server, table, until, within
from helpers.recorded import decoded, run, write

from batchscope.cli import main
from tracer.fold import fold, new_state
from tracer.schema import PassRecord

PLOT = "document.querySelector('#charts-plot')"
NUMBERS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}

# How far a picture is from a screenshot and from an empty panel, all seen from afar, and how many colours it has.
COMPARE = """async ([saved, kind, screenshot]) => {
  const image = async (data, kind) => {
    const node = Object.assign(new Image(), { src: `data:${kind};base64,${data}` });
    await node.decode();
    return node;
  };
  const [one, other] = [await image(saved, kind), await image(screenshot, "image/png")];
  const [width, height] = [other.naturalWidth, other.naturalHeight].map((length) => Math.round(length / 4));
  const pixels = (node) => {
    const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(node, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  };
  const [a, b] = [pixels(one), pixels(other)];
  const differ = (i, k) => [0, 1, 2].some((part) => Math.abs(a[i + part] - b[k + part]) > 40);
  const ground = 4 * (2 * width + 2); // a pixel within the frame, where nothing is
  let [far, ink, colours] = [0, 0, new Set()];
  for (let i = 0; i < a.length; i += 4) {
    colours.add((a[i] << 16) | (a[i + 1] << 8) | a[i + 2]);
    far += differ(i, i);
    ink += differ(i, ground);
  }
  return { size: [one.naturalWidth, one.naturalHeight], shown: [other.naturalWidth, other.naturalHeight],
           colours: colours.size, far: (4 * far) / a.length, ink: (4 * ink) / a.length };
}"""


@pytest.fixture
def served():
    server = shared_server()
    server.rest()
    server.post("/api/control", action="pause")
    yield server
    server.rest()


@pytest.fixture(scope="module")
def opened(browser):
    with open_page(browser, shared_server()) as page:
        yield page


@pytest.fixture
def page(opened, served):
    opened.keyboard.press("Escape")
    opened.keyboard.press("l")
    return opened


def step(page, served, passes, **request):
    """Run passes over some requests; return the record of the last one, once the page shows it."""
    if request:
        served.post("/api/requests", **{"max_tokens": 40, "ignore_eos": True} | request)
    served.post("/api/control", action="step", passes=passes)
    within(lambda: served.state()["gate"]["permits"] == 0)
    state = settled(page, served)
    return served.get(f"/api/passes/{state['pass_id']}")


def open_charts(page, last):
    """Open the charts and wait until they are drawn up to a pass."""
    if page.get_attribute("#charts-open", "aria-expanded") == "false":
        page.click("#charts-open")
    until(page, f"{PLOT}.data?.at(0)?.x.at(-1) === {last}")


def phases_of(record):
    return {phase["phase"]: phase for phase in record["phases"]}


def bars(page):
    """The timeline's table as (lane, name) -> (start, end) in ns."""
    lines = table(page, "#timeline-table table")
    return {(lane, name): (ns(start), ns(end)) for lane, name, start, end, _ in lines}


def ns(micro):
    return round(float(micro) * 1e3)


@pytest.mark.browser
def test_bars_have_the_times_that_the_pass_recorded_each_in_its_lane(page, served):
    record = step(page, served, 3, prompt="Four lanes", copies=5)
    phases, shown = phases_of(record), bars(page)
    core = ("schedule", "grammar_bitmask", "process_aborts", "update_from_output")
    for name, phase in phases.items():
        times = (phase["start"], phase["end"])
        if name == "execute_model":
            assert shown[("executor", "execute_model, the call")] == times
        elif name == "forward":
            assert shown[("device", "forward")] == shown[("runner", "forward, the call")] == times
        else:
            assert shown[("engine core" if name in core else "runner", name)] == times
    call = tuple(phases["sample_tokens"]["facts"]["call_ns"])
    assert shown[("executor", "sample_tokens, the call")] == call
    assert phases["grammar_bitmask"]["end"] <= call[0] <= phases["sample_tokens"]["start"]
    assert phases["bookkeeping"]["end"] <= call[1] <= phases["process_aborts"]["start"]
    assert page.locator("#timeline-links i.down").count() == page.locator("#timeline-links i.up").count() == 2


@pytest.mark.browser
def test_the_park_lasts_from_park_logits_to_sample_tokens_and_no_overlap_is_claimed(page, served):
    record = step(page, served, 2, prompt="Parked", copies=3)
    phases, words = phases_of(record), page.text_content("#timeline-words")
    parked = (phases["park_logits"]["end"], phases["sample_tokens"]["start"])
    assert bars(page)[("runner", "parked")] == parked
    shape = ", ".join(map(str, phases["park_logits"]["facts"]["logits_shape"]))
    told = re.search(rf"logits \[{shape}\] parked ([\d.]+) (µs|ms|s)", words)
    assert float(told[1]) * NUMBERS[told[2]] == pytest.approx(parked[1] - parked[0], rel=0.02, abs=600)
    assert phases["forward"]["end"] <= phases["grammar_bitmask"]["start"]
    assert "0 µs of it during forward: on the CPU it had ended when the call came back" in words


@pytest.mark.browser
def test_overlap_is_the_time_that_both_ran_and_unknown_where_the_device_was_not_timed(page):
    words = page.evaluate(
        """async () => {
          const { lanesOf, wordsOf } = await import("lanes");
          const of = (device, start, end) => {
            const phase = (phase, start, end, facts = {}) => ({ phase, start, end, facts });
            const record = { phases: [phase("forward", 100_000, 200_000, { device }),
                                      phase("grammar_bitmask", start, end)] };
            return wordsOf(record, lanesOf(record), 0);
          };
          return [of("cpu", 150_000, 260_000), of("cpu", 200_000, 260_000), of("cuda:0", 150_000, 260_000)];
        }"""
    )
    assert "grammar_bitmask 110 µs, 50 µs of it during forward" in words[0]
    assert "grammar_bitmask 60 µs, 0 µs of it during forward" in words[1]
    assert "the times of cuda:0 are not recorded, so no overlap is claimed" in words[2]


@pytest.mark.browser
def test_while_the_engine_is_held_at_the_hand_off_what_is_parked_says_since_when(page, served):
    served.post("/api/requests", prompt="Held", copies=2, max_tokens=9, ignore_eos=True)
    served.post("/api/control", action="step_stop")
    until(page, "__model.gate.stop === 'hand_off'")
    since = "Number(/parked since ([\\d.]+) s/.exec(document.querySelector('#timeline-words').textContent)?.[1] ?? 0)"
    first = until(page, since)
    until(page, f"{since} > {first}")
    assert page.locator("#timeline-bars [data-look=park]").get_attribute("data-open") == ""
    assert table(page, "#timeline-table table")[-1][3:] == ["", "still"]


@pytest.mark.browser
def test_a_bar_chooses_its_phase_and_zoom_makes_short_ones_wide_on_a_true_scale(page, served):
    record = step(page, served, 2, prompt="Zoom", copies=4)
    page.click("#timeline-scale")
    width = "name => document.querySelector(`#timeline-bars [data-name=${name}]`).getBoundingClientRect().width"
    phases = phases_of(record)
    end = max(phase["end"] for phase in record["phases"])
    track = page.evaluate("document.querySelector('#timeline-track').clientWidth")
    for name in ("execute_model", "forward", "update_from_output"):
        true = (phases[name]["end"] - phases[name]["start"]) / end * track
        assert page.evaluate(width, name) == pytest.approx(max(2, true), abs=0.6)
    page.locator("#timeline-bars [data-name=park_logits]").dispatch_event("click")
    until(page, "__model.shown.phase === 'park_logits'")
    assert page.get_attribute("#timeline-bars [data-name=park_logits]", "aria-pressed") == "true"
    assert page.locator("#timeline-bars [data-name=schedule][data-later]").count() == 0
    assert page.locator("#timeline-bars [data-name=update_from_output][data-later]").count() == 1
    before = page.evaluate(width, "park_logits")
    for _ in range(4):
        page.click("#timeline-in")
    assert page.evaluate(width, "park_logits") > min(4 * before, 0.9 * track)  # as far as it is in sight
    page.locator("#timeline-bars [data-name=park_logits]").click()
    until(page, "__model.shown.phase === null")
    page.click("#timeline-scale")
    wide = page.evaluate(
        """() => Array.from(document.querySelectorAll("#timeline-bars [data-look=work]"), (bar) =>
             [bar.dataset.name, bar.getBoundingClientRect().width])"""
    )
    took = sorted((phases[name]["end"] - phases[name]["start"], drawn) for name, drawn in wide)
    assert [drawn for _, drawn in took] == sorted(drawn for _, drawn in took), "longer is wider"
    assert sum(drawn < 3 for _, drawn in took) < 4, "short phases can be seen"


@pytest.mark.browser
def test_charts_show_what_the_passes_recorded(page, served):
    first = served.state()["pass_id"] + 1
    served.post("/api/requests", prompt="long " * 40, copies=2, max_tokens=6, ignore_eos=True)
    served.post("/api/requests", prompt="short", copies=9, max_tokens=5, ignore_eos=True)
    last = step(page, served, 14, prompt="and more", copies=8)["pass_id"]
    open_charts(page, last)
    page.click("#charts-large")
    until(page, f"{PLOT}.data.length === 20")
    records = [served.get(f"/api/passes/{pass_id}") for pass_id in range(first, last + 1)]
    requests = served.state()["requests"]
    drawn = page.evaluate(f"{PLOT}.data.map(({{ name, x, y }}) => [name, x, y])")
    drawn = {name: dict(zip(x, y, strict=True)) for name, x, y in drawn}
    ids: list[str] = []
    for record in records:
        pass_id, phases = record["pass_id"], phases_of(record)
        for name, value in expected(phases, ids, requests).items():
            assert drawn[name][pass_id] == pytest.approx(value), f"{name} in pass {pass_id}"
        ids = phases["refresh_metadata"]["facts"]["req_ids"]
    for name in ("prefill", "decode", "kept", "moved", "entered", "left", "condensed"):
        assert any(drawn[name][record["pass_id"]] for record in records), f"{name} is put to the test"
    assert page.evaluate(f"{PLOT}.layout.shapes[0].x0") == last
    head = page.evaluate("Array.from(document.querySelectorAll('#charts-table thead td'), (cell) => cell.textContent)")
    for line in table(page, "#charts-table table")[: len(records)]:
        cells = dict(zip(head, line, strict=True))
        assert all(float(cells[name]) == pytest.approx(drawn[name][int(line[0])], abs=6e-4) for name in drawn)
    page.click("#charts-large")


def expected(phases, ids_before, requests):
    """What the charts should say of a pass, worked out in another way: by its rows and those of the pass before."""
    facts = {name: phase["facts"] for name, phase in phases.items()}
    ids, inputs = facts["refresh_metadata"]["req_ids"], facts.get("prepare_inputs", {})
    decode = 0
    for row, count in enumerate(inputs.get("num_scheduled_tokens", [])):
        position = inputs["positions"][inputs["query_start_loc"][row]]
        decode += count == 1 and position >= requests[ids[row]]["num_prompt_tokens"]
    schedule = facts["schedule"]
    before = {req_id: row for row, req_id in enumerate(ids_before)}
    stayed = [req_id for req_id in ids if req_id in before]
    return {
        "prefill": schedule["total_num_scheduled_tokens"] - decode,
        "decode": decode,
        "used": schedule["num_gpu_blocks"] - 1 - schedule["num_free_blocks"],
        "cached": schedule["num_cached_blocks"],
        "free": schedule["num_free_blocks"] - schedule["num_cached_blocks"],
        "forward": (phases["forward"]["end"] - phases["forward"]["start"]) / 1e6 if "forward" in phases else 0,
        "kept": sum(ids.index(req_id) == before[req_id] for req_id in stayed),
        "moved": sum(ids.index(req_id) != before[req_id] for req_id in stayed),
        "entered": len(ids) - len(stayed),
        "left": len(before) - len(stayed),
        "condensed": len(facts["condense"]["moved"]),
    }


def test_cached_blocks_are_those_that_are_free_and_can_be_found():
    entries, header, _ = run()
    state, seen = new_state(header.max_num_seqs), set()
    for entry in decoded(entries):
        if isinstance(entry, PassRecord):
            schedule = entry.phases[0]
            after = dict(state["blocks"]) | {str(block_id): [refs, found] for block_id, refs, found in schedule.blocks}
            cached = sum(1 for refs, found in after.values() if found and not refs)
            assert schedule.facts["num_cached_blocks"] == cached, f"pass {entry.pass_id}"
            seen.add(cached)
        fold(state, entry)
    assert len(seen) > 3


@pytest.mark.browser
def test_a_click_on_a_chart_goes_to_that_pass_and_live_charts_are_drawn_five_times_a_second_at_most(page, served):
    last = step(page, served, 30, prompt="Click", copies=3, max_tokens=900)["pass_id"]
    open_charts(page, last)
    wanted = last - 7
    box = page.locator("#charts-plot").bounding_box()
    x = page.evaluate(f"{PLOT}._fullLayout.xaxis._offset + {PLOT}._fullLayout.xaxis.l2p({wanted})")
    page.mouse.move(box["x"] + x, box["y"] + 40)
    until(page, f"document.querySelector('#charts-words').textContent.startsWith('pass {wanted} of')")
    page.mouse.click(box["x"] + x, box["y"] + 40)
    until(page, f"__model.shown.passId === {wanted} && !__model.shown.live")
    until(page, f"{PLOT}.layout.shapes[0].x0 === {wanted}")
    page.mouse.move(5, 5)
    page.keyboard.press("l")
    page.evaluate(f"() => {{ globalThis.__drawn = 0; {PLOT}.on('plotly_afterplot', () => {{ __drawn += 1; }}); }}")
    served.post("/api/control", action="resume")
    started = time.monotonic()
    until(page, "__drawn >= 2")
    page.wait_for_timeout(1000)
    served.post("/api/control", action="pause")
    drawn, took = page.evaluate("__drawn"), time.monotonic() - started
    assert drawn <= 5 * took + 2


@pytest.mark.browser
@pytest.mark.parametrize(
    ("scheme", "views"),
    [("light", {"#kv-panel": "kv-map", "#timeline-panel": "timeline"}), ("dark", {"#charts-panel": "charts"})],
    ids=["light", "dark"],
)
def test_any_panel_is_saved_as_it_is_shown_as_png_and_as_svg(browser, served, scheme, views):
    with open_page(browser, served, color_scheme=scheme) as page:
        record = step(page, served, 4, prompt="Picture", copies=6)
        open_charts(page, record["pass_id"])
        page.click("#chips [data-phase=forward]")
        if page.get_attribute("#kv-open", "aria-expanded") == "false":
            page.click("#kv-open")
        settled(page, served)
        for panel, view in views.items():
            for kind in ("png", "svg"):
                saved, name = save(page, panel, kind)
                assert name == f"batchscope-{view}-pass-{record['pass_id']}-forward.{kind}"
                check_picture(page, panel, saved, kind)
        panels = page.locator("section.panel[aria-labelledby]")
        assert page.locator("section.panel > .save-view").count() == panels.count() > 8


def save(page, panel, kind):
    page.click(f"{panel} > .save-view")
    with page.expect_download() as download:
        page.click(f"#save-menu [data-kind={kind}]")
    return Path(download.value.path()).read_bytes(), download.value.suggested_filename


def check_picture(page, panel, saved, kind):
    """Hold a saved picture against a screenshot of the panel."""
    if kind == "svg":
        root = ElementTree.fromstring(saved)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root.iter())) > 20
    page.mouse.move(2, 2)
    page.evaluate("document.querySelectorAll('.save-view').forEach((button) => (button.style.opacity = 0))")
    screenshot = page.locator(panel).screenshot()
    mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    found = page.evaluate(COMPARE, [*(base64.b64encode(saved).decode(), mime), base64.b64encode(screenshot).decode()])
    scale = 2 if kind == "png" else 1
    assert found["size"] == pytest.approx([scale * length for length in found["shown"]], abs=6)
    assert found["colours"] > 20
    assert found["far"] < found["ink"] / 4, found


@pytest.mark.browser
def test_an_exported_page_has_timeline_charts_and_images_without_a_network(browser, tmp_path):
    out = tmp_path / "run.html"
    assert main(["export", str(write(tmp_path / "run.bscope")), str(out)]) == 0
    records = [entry for entry in decoded(run()[0]) if isinstance(entry, PassRecord)]
    context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(out.as_uri())
    until(page, f"globalThis.__model?.passId === {len(records) - 1}")
    assert page.evaluate("globalThis.Plotly === undefined"), "it is read only when charts are opened"
    within(lambda: ("engine core", "schedule") in bars(page), 5, "the timeline")
    open_charts(page, len(records) - 1)
    totals = page.evaluate(f"{PLOT}.data[0].y.map((prefill, i) => prefill + {PLOT}.data[1].y[i])")
    assert totals == [record.phases[0].facts["total_num_scheduled_tokens"] for record in records]
    page.mouse.move(2, 2)
    page.keyboard.press("ArrowLeft")
    until(page, f"{PLOT}.layout.shapes[0].x0 === {len(records) - 2}")
    saved, name = save(page, "#charts-panel", "png")
    assert name == f"batchscope-charts-pass-{len(records) - 2}.png"
    check_picture(page, "#charts-panel", saved, "png")
    assert errors == []
    context.close()

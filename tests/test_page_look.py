"""The page's frame: sizes, themes, keys, tables behind canvases, and files that need no network."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from helpers.page import open_page, settled, table, until

STATIC = Path(__file__).parent.parent / "webui" / "static"
SIZES = [(1280, 720), (1920, 1080)]

OVERFLOW = """() => {
  const wide = [document.documentElement, ...document.querySelectorAll("header, nav, main, .panel")];
  const over = wide.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.id || box.className);
  const outside = Array.from(document.querySelectorAll("button, input, textarea, .panel, .chip")).filter((box) => {
    const { left, right, top, bottom, width } = box.getBoundingClientRect();
    const inScroll = box.closest(".scroll") || box.closest("dialog");
    return width && !inScroll && (left < 0 || top < 0 || right > innerWidth + 1 || bottom > innerHeight + 1);
  }).map((box) => box.id || box.textContent);
  const page = document.documentElement.scrollHeight > innerHeight || document.body.scrollHeight > innerHeight;
  return { over, outside, page };
}"""


@pytest.mark.browser
@pytest.mark.parametrize("large", [False, True], ids=["normal", "large"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["1280x720", "1920x1080"])
def test_everything_fits_the_screen(browser, served, size, scheme, large):
    viewport = {"width": size[0], "height": size[1]}
    served.post("/api/control", action="pause")
    served.post("/api/requests", prompt="Full rows", copies=16, max_tokens=50, ignore_eos=True)
    served.post("/api/control", action="step", passes=3)
    with open_page(browser, served, viewport=viewport, color_scheme=scheme) as page:
        if large:
            page.click("#type")
        until(page, "__model.rows.filter(Boolean).length === 16")
        settled(page, served)
        assert page.evaluate(OVERFLOW) == {"over": [], "outside": [], "page": False}
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate("document.querySelector('#batch tbody canvas').clientWidth") > 60


@pytest.mark.browser
def test_the_theme_can_be_chosen_and_is_kept(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.text_content("#theme") == "theme: dark"
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    until(page, "window.__model !== undefined")
    assert page.evaluate(colour) == dark


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, served, scheme):
    with open_page(browser, served, color_scheme=scheme) as page:
        colours = page.evaluate(
            """() => Object.fromEntries(["--panel", "--page", "--ink", "--quiet", "--accent", "--on-accent"].map(
                 (name) => [name, getComputedStyle(document.documentElement).getPropertyValue(name).trim()]))"""
        )
    for ground in ("--panel", "--page"):
        assert contrast(colours["--ink"], colours[ground]) >= 7
        assert contrast(colours["--quiet"], colours[ground]) >= 4.5
    assert contrast(colours["--on-accent"], colours["--accent"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG for two #rrggbb colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.browser
def test_question_mark_shows_the_keys(page):
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    assert "pause or resume" in page.text_content("#keys")
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()


@pytest.mark.browser
def test_all_controls_have_names_and_are_reached_by_tab(page):
    names = page.evaluate(
        """() => Array.from(document.querySelectorAll("button, input, textarea, .scroll[tabindex='0']"), (control) => {
             const label = control.closest("label")?.textContent.trim();
             return control.ariaLabel || control.getAttribute("aria-labelledby") || control.textContent.trim() || label;
           })"""
    )
    assert all(names)
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    wanted = {"pause", "step", "theme", "help", "prompt", "send", "burst", "batch-scroll", "axis-scroll"}
    assert wanted <= reached


@pytest.mark.browser
def test_pointing_at_a_row_lights_its_tokens_and_its_request(page, served):
    served.post("/api/control", action="pause")
    page.fill("#copies", "3")
    page.fill("#prompt", "Say something about rows")
    page.click("#send")
    until(page, "Object.values(__model.requests).filter(request => request.status === 'WAITING').length === 3")
    served.post("/api/control", action="step", passes=2)
    settled(page, served)
    page.hover("#batch tbody tr[data-row='1']")
    req_id = page.evaluate("__model.rows[1].req_id")
    assert page.get_attribute(".card.lit", "data-request") == req_id
    assert page.text_content("#readout").startswith(f"row 1 {req_id}")
    page.mouse.move(0, 0)
    page.keyboard.press("Shift+ArrowRight")
    assert re.match(r"token 0 “.+” id \d+ · row 0 · position \d+ · slot \d+ = block", page.text_content("#readout"))
    page.keyboard.press("ArrowDown")
    assert page.locator("#batch tr.lit").get_attribute("data-row") == "1"


@pytest.mark.browser
def test_reduced_motion_names_the_move_and_slides_nothing(browser, served):
    with open_page(browser, served, reduced_motion="reduce") as page:
        page.evaluate(
            """() => { globalThis.__slid = 0; globalThis.__arrows = new Set(); const look = () => {
                 requestAnimationFrame(look); __slid += document.getAnimations().length;
                 for (const state of document.querySelectorAll("tr[data-kind=moved] .state")) {
                   __arrows.add(state.textContent); } }; look(); }"""
        )
        served.post("/api/control", action="pause")
        served.post("/api/requests", prompt="Leaves first", max_tokens=2, ignore_eos=True)
        served.post("/api/requests", prompt="Stays", copies=3, max_tokens=8, ignore_eos=True)
        for _ in range(4):  # pass by pass: a page that is behind need not draw every pass
            served.post("/api/control", action="step", passes=1)
            settled(page, served)
        assert page.evaluate("__arrows.size") > 0
        assert page.evaluate("__slid") == 0
        assert all(re.fullmatch(r"moved \d+→\d+", text) for text in page.evaluate("[...__arrows]"))


@pytest.mark.browser
def test_each_canvas_has_a_table_or_is_marked_as_decoration(page, served):
    served.post("/api/control", action="pause")
    page.click("#send")
    until(page, "Object.values(__model.requests).some(request => request.status === 'WAITING')")
    served.post("/api/control", action="step", passes=2)
    settled(page, served)
    hidden = "Array.from(document.querySelectorAll('canvas'), (c) => c.getAttribute('aria-hidden'))"
    assert set(page.evaluate(hidden)) == {"true"}
    assert table(page, "#axis-table table")
    assert not page.locator("#axis-table").is_visible() or page.evaluate(
        "document.querySelector('#axis-table').getBoundingClientRect().width <= 1"
    )
    page.click("#axis-table-toggle")
    assert page.evaluate("document.querySelector('#axis-table').getBoundingClientRect().width") > 300
    settled(page, served)


def test_modules_are_in_the_import_map_and_short():
    html = (STATIC / "index.html").read_text()
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', html, re.DOTALL)[1])["imports"]
    modules = {path.stem: path for path in STATIC.glob("*.js")}
    assert set(imports) == set(modules) - {"main"}
    for name, path in modules.items():
        text = path.read_text()
        assert len(text.splitlines()) < 300, name
        for used in re.findall(r'^(?:import|export|}).* from "(.*?)";', text, re.MULTILINE):
            assert imports[used] == f"/static/{used}.js"


def test_the_page_asks_nobody_else_and_carries_no_inline_code():
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"\sstyle=|\son\w+=", html)
    assert re.findall(r"<script(?![^>]*src=)[^>]*>", html) == ['<script type="importmap">']
    for path in STATIC.glob("*.*"):
        for url in re.findall(r"https?://[^\s\"')]+", path.read_text()):
            assert url == "http://www.w3.org/2000/svg", f"{path.name} names {url}"


def test_vendored_files_are_the_ones_that_their_readme_names():
    readme = (STATIC / "vendor" / "README.md").read_text()
    bundles = [path for path in (STATIC / "vendor").glob("*.js") if not path.name.startswith("LICENSE")]
    assert len(bundles) >= 2
    for bundle in bundles:
        assert hashlib.sha256(bundle.read_bytes()).hexdigest() in readme
        assert (STATIC / "vendor" / re.search(rf"{bundle.name}.*?(LICENSE[\w.-]+)\)", readme)[1]).is_file()

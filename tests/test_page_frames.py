"""256 rows by 8,192 tokens scroll, light up and step, and the page stays at hand. For numbers, run it alone with -s."""

import pytest
from helpers.frames import measure, scroll
from helpers.page import Served, open_page, settled

pytestmark = pytest.mark.browser

SIZES = ("--max-num-seqs", "256", "--max-num-batched-tokens", "8192", "--num-gpu-blocks-override", "20000")
# What even a busy machine keeps: the numbers to reach (20 ms a frame, 100 ms to the paint) are no test's matter.
STEADY_MS = 200  # of a frame, in the middle
PROMPT_MS = 1000  # from an event to its paint


@pytest.fixture(scope="module")
def served():
    """One pass over 256 prompts of 32 tokens each, and the next one, in which all rows decode."""
    served = Served(*SIZES, "--no-enable-prefix-caching")
    served.post("/api/control", action="pause")
    for first in "abcd":
        prompt = f"{first} the quick brown fox jumps over"[:32]
        served.post("/api/requests", prompt=prompt, copies=64, max_tokens=20, ignore_eos=True)
    served.post("/api/control", action="step", passes=2)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def page(browser, served):
    with open_page(browser, served) as page:
        settled(page, served)
        page.keyboard.press("k")
        page.keyboard.press("ArrowLeft")
        assert page.text_content("#axis-count") == "8192 tokens of 256 rows"
        page.wait_for_timeout(500)
        yield page


def across(page, selector, right, down, moves=40):
    """Move the pointer over a view, a few px at a time."""
    box = page.locator(selector).bounding_box()
    for i in range(moves):
        page.mouse.move(box["x"] + 160 + right * i, box["y"] + 30 + down * i)


def press(page, *keys, every=50):
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(every)


ACTS = {
    "scroll the batch": lambda page: scroll(page, "#batch-scroll", down=30),
    "scroll the token axis": lambda page: scroll(page, "#axis-scroll", across=80),
    "scroll the KV map": lambda page: scroll(page, "#kv-scroll", down=4),
    "scroll the requests": lambda page: scroll(page, "#requests", down=40),
    "point at rows": lambda page: measure(page, lambda: across(page, "#batch-scroll", 0, 2)),
    "point at tokens": lambda page: measure(page, lambda: across(page, "#axis-scroll", 9, 0)),
    "point at blocks": lambda page: measure(page, lambda: across(page, "#kv-scroll", 9, 1)),
    "walk over rows by key": lambda page: measure(page, lambda: press(page, *["ArrowDown"] * 30, every=20)),
    "step through the phases": lambda page: measure(page, lambda: press(page, *"]" * 19, "Escape", "Escape")),
    "go to the next pass and back": lambda page: measure(page, lambda: press(page, *["ArrowRight", "ArrowLeft"] * 5)),
}


@pytest.mark.parametrize("act", ACTS)
def test_the_page_keeps_up(page, act):
    measured = ACTS[act](page)
    print(f"\n{act:30}{measured}")
    assert measured.median < STEADY_MS, str(measured)
    assert measured.events == [] or measured.events[len(measured.events) // 2] <= PROMPT_MS, str(measured)

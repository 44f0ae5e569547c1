"""The hand-off panel shows what a grammar's mask allows."""

import threading

import pytest
from helpers.page import live, open_page, pause, settled, table, within

pytestmark = pytest.mark.browser


def test_masked_rows_show_how_many_tokens_are_allowed_and_the_likeliest_before_and_after(browser, served):
    with open_page(browser, served) as page:
        pause(page, served)
        body = {"prompt": "x", "max_tokens": 4, "temperature": 0, "structured_outputs": {"regex": "[0-9]{9}"}}
        served.post("/api/requests", prompt="free", max_tokens=9, ignore_eos=True)
        asked = threading.Thread(target=served.post, args=("/v1/completions",), kwargs=body)
        asked.start()
        within(lambda: len(live(served.state())) == 2)
        masks = None
        while not masks:  # its grammar may take a pass or two
            served.post("/api/control", action="step", passes=1)
            state = settled(page, served)
            record = served.get(f"/api/passes/{state['pass_id']}")
            masks = facts(record, "grammar_bitmask")["structured_output_request_ids"]
        ((row, allowed, before, after),) = table(page, "#handoff-masks")
        assert int(row) == facts(record, "park_logits")["req_ids"].index(masks[0])
        assert allowed == "10 of 320"
        assert [text.split()[0].isdigit() for text in after.split("  ")] == [True] * 5
        assert len(before.split("  ")) == 5
        assert before != after
        served.post("/api/control", action="resume")
        asked.join()
        settled(page, served)
        assert page.evaluate("document.querySelector('#handoff-masks').hidden")


def facts(record, phase):
    return next(each["facts"] for each in record["phases"] if each["phase"] == phase)

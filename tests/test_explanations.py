"""What a phase did, in words: sentences kept as data, with the recorded numbers, the same in Python and the page."""

import base64
import json
import re
from importlib.resources import files

import msgspec
import pytest
from helpers.page import open_page, shared_server
from helpers.recorded import decoded, run
from helpers.tiny_engine import Engine

from tracer.explanations import EXPLANATIONS, NOT_RUN, explain_phase, here
from tracer.phases import Phase
from tracer.schema import PassRecord, PhaseRecord
from tracer.template import Scope, duration, paragraph, words

ANSWER = {"regex": "[0-9]{8}"}
TIMES = "\N{MULTIPLICATION SIGN}"

TEXTS_IN_THE_PAGE = """async ([base64, explanations]) => {
  const { Explanations } = await import("explanation");
  const told = new Explanations(explanations);
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const records = Array.from(MessagePack.decodeMulti(bytes));
  return records.map((record) => Object.keys(explanations).map((phase) => told.text(record, phase)));
}"""


@pytest.fixture(scope="module")
def records():
    """Passes of many kinds: chunks, moves, preemption, swaps, grammars, aborts, a reset, and one without tokens."""
    recorded = [entry for entry in decoded(run()[0]) if isinstance(entry, PassRecord)]
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=24, reorder_batch_threshold=1, dtype="float32")
    manager = engine.core.scheduler.structured_output_manager
    for i in range(6):
        grammar = {"structured_outputs": ANSWER} if i % 3 == 1 else {}
        engine.add(f"r{i}", [1, 2, 3, 4, *range(10, 10 + 7 * i)], 3 + i, **grammar)
    while manager.blocked and any(each.structured_output_request.seconds_left for each in manager.blocked):
        pass
    engine.run(4)
    engine.core.reset_prefix_cache(reset_running_requests=True)
    engine.run()
    engine.add("late", [5, 6], 9)
    engine.run(2)
    engine.add("never", [7], 2)
    engine.core.abort_requests(["never"])
    engine.run(1)
    engine.core.abort_requests(["late"])
    engine.run(1)
    return recorded + engine.passes


def two_five_three():
    """The first pass over prompts of 2, 9 and 8 tokens with a budget of 10 and at most 5 for a long prompt."""
    engine = Engine(max_num_seqs=8, max_num_batched_tokens=10, long_prefill_token_threshold=5)
    for req_id, prompt in (("A", range(20, 22)), ("B", range(30, 39)), ("C", range(40, 48))):
        engine.add(req_id, list(prompt))
    engine.run(1)
    return engine.passes[0]


def facts(record, name):
    return next((phase.facts for phase in record.phases if phase.phase == name), None)


def test_every_phase_has_its_file_and_every_file_its_phase():
    names = {path.name for path in files("tracer").joinpath("explanations").iterdir()}
    assert names == {f"{phase}.json" for phase in Phase}
    for explanation in EXPLANATIONS.values():
        assert explanation.keys() - {"absent"} == {"who", "does", "here", "why"}


def test_every_pass_is_told_without_a_gap(records):
    for record in records:
        for phase in Phase:
            text = explain_phase(record, phase)
            assert not re.search(r"[{}]|\bnull\b|undefined", text), text
            assert here(record, phase), f"pass {record.pass_id} says nothing of {phase}"
            ran = any(each.phase == phase for each in record.phases)
            assert here(record, phase).startswith(NOT_RUN) != ran


def test_every_placeholder_and_condition_can_be_looked_up(records):
    """Those of cases that are seldom chosen as well: nothing is misspelt."""

    def look(group, scope):
        if isinstance(group, list):
            return [look(case, scope) for case in group]
        if "each" in group:
            items = scope.value(group["each"]) or []
            inside = [Scope(scope.record, scope.phase, it) for it in items]
            return [look(group["say"], one) for one in inside], look({"text": group["more"]}, Scope(*at, 3))
        scope.holds(group.get("when", []))
        return [scope.value(name) for name in re.findall(r"\{([^{}]+)\}", group["text"])]

    for record in records:
        for phase, explanation in EXPLANATIONS.items():
            at = record, phase
            look(explanation["here"] + explanation.get("absent", []), Scope(*at))


def test_every_case_is_met_in_some_pass_or_needs_what_this_machine_has_not(records):
    said = " ".join(here(record, phase) for record in records for phase in Phase)
    for part in (
        "is new:", "were found in the prefix cache", "is preempted:", "when the prefix cache was reset", "given up",
        "None of them had a row", "leaves because it was preempted", "Only here does the resumed term matter",
        "Blocks were appended", "is back after its preemption", "moved down to row", "the batch is empty",
        "changed places", "still holds", "without a row", "will still be short", "is all F", "numbers that never fall",
        "rows of one share the same pass", "Each row brings one token", "execute_model returned after the diff",
        "may go on with", "on a CPU in one process nothing overlaps", "Grammar masks were put on",
        "none dropped", "dropped for row", 'ends, with reason "length"', "sample_tokens is not called",
    ):  # fmt: skip
        missing = "" if part in said else part
        assert not missing


def test_the_numbers_of_the_two_five_three_pass():
    record = two_five_three()
    inputs = here(record, "prepare_inputs")
    assert inputs.startswith(
        "[2, 5, 3] tokens of 3 rows lie end to end: query_start_loc is [0, 2, 7, 10], so 10 tokens"
    )
    assert "logits_indices is [1, 6, 9], the last token of each row" in inputs
    assert "only these 3 of 10 tokens" in inputs
    assert "discard_request_mask is [F, T, T]: after this pass rows 1 and 2 will still be short" in inputs
    width, slot = facts(record, "prepare_inputs")["row_width"], facts(record, "prepare_inputs")["slot_mapping"][7]
    assert (
        f"Take token 7, the first of row 2: its position is 0, so it stands at 0 + 2 {TIMES} {width} = {2 * width}"
        in inputs
    )
    assert f"Its slot is {slot} = block {slot // 4} {TIMES} 4 + {slot % 4}." in inputs
    assert "5 places, holds 10" in inputs
    assert "kept for row 0, dropped for rows 1 and 2" in here(record, "bookkeeping")
    assert here(record, "schedule").startswith("10 tokens for 3 requests. A is new: 2 of its 2 prompt tokens")


def test_condense_says_which_row_went_where_and_why(records):
    moved = [record for record in records if facts(record, "condense")["moved"]]
    assert moved
    for record in moved:
        text, num_reqs = here(record, "condense"), facts(record, "refresh_metadata")["num_reqs"]
        for src, dst, _ in facts(record, "condense")["moved"][:4]:
            assert f"Row {src} moved down to row {dst}." in text
        rows = "1 row" if num_reqs == 1 else f"{num_reqs} rows"
        assert text.endswith(f"Rows 0..{num_reqs - 1} must have no holes: {rows} in use.")


def test_who_left_and_who_stayed_add_up(records):
    for record in records:
        left, stayed = (
            facts(record, "remove_unscheduled")["unscheduled_req_ids"],
            facts(record, "update_cached")["rows"],
        )
        if left or stayed:
            held = len(left) + len(stayed)
            assert f"held by {held} request" in here(record, "remove_unscheduled")
        settled = re.search(r"(\d+) stayed from the last pass and (\d+) came", here(record, "refresh_metadata"))
        if settled:
            assert sum(map(int, settled.groups())) == facts(record, "refresh_metadata")["num_reqs"]


def test_what_was_not_recorded_leaves_its_sentence_out():
    record = PassRecord(0, "pass", 0, 0.0, 0, [PhaseRecord("condense", 0, 1200, {"moved": [[5, 1, "U"]]})])
    scope = Scope(record, "condense")
    groups = [
        {"text": "{moved.0.1} and {nothing|count:row}"},
        {"when": "not nothing", "text": "an unrecorded list is not an empty one"},
        {"when": "schedule.total == 0", "text": "no such phase"},
        [{"when": "not moved", "text": "no"}, {"when": "moved.length == 1", "text": "{moved|count:row}"}],
        {"text": "{@took|time}"},
    ]
    assert paragraph(groups, scope) == "1 row 1.2 µs"


def test_each_item_gets_a_sentence_and_many_are_cut_short():
    record = PassRecord(
        0, "pass", 0, 0.0, 0, [PhaseRecord("condense", 0, 1, {"moved": [[9 - i, i] for i in range(6)]})]
    )
    group = {"each": "moved", "say": [{"text": "{it.0}→{it.1}"}], "more": "and {it|count:row}"}
    assert paragraph([group], Scope(record, "condense")) == "9→0 8→1 7→2 6→3 and 2 rows"


def test_values_and_times_in_few_characters():
    assert words([True, False]) == "[T, F]"
    assert words(list(range(10))) == "[0, 1, 2, 3, 4, 5, 6, 7, … 10 in all]"
    assert [duration(ns) for ns in (0, 250, 9_960, 12_500, 1_000_000, 12_345_678, 1_500_000_000)] == [
        "0.0 µs", "0.3 µs", "10.0 µs", "13 µs", "1.00 ms", "12.3 ms", "1.50 s",
    ]  # fmt: skip


@pytest.mark.browser
def test_python_and_the_page_say_the_same_of_every_recorded_pass(browser, records):
    data = b"".join(map(msgspec.msgpack.encode, records))
    with open_page(browser, shared_server()) as page:
        texts = page.evaluate(TEXTS_IN_THE_PAGE, [base64.b64encode(data).decode(), EXPLANATIONS])
        config = shared_server().get("/api/config")
    assert config["explanations"] == json.loads(json.dumps(EXPLANATIONS))
    for record, in_the_page in zip(records, texts, strict=True):
        assert in_the_page == [explain_phase(record, phase) for phase in EXPLANATIONS]

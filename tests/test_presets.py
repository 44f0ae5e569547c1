"""Each preset, played on a real engine core in check mode, comes to the moment that its paragraph is about."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.threads import one_thread

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from engine.inproc_client import InprocClient
from engine.model_source import resolve
from tracer.phases import Phase
from tracer.schema import decode
from webui.broadcaster import Broadcaster
from webui.page_facts import EngineFacts
from webui.preset_engine import preset_config
from webui.preset_player import HOLDS, PresetError, PresetPlayer
from webui.presets import ORDER, Until, presets
from webui.security import Access
from webui.services import Services

DIFF = ("remove_finished", "remove_unscheduled", "update_cached", "add_requests", "condense", "reorder")


class Played:
    """A preset at its moment, and what can be done from there."""

    def __init__(self, name: str) -> None:
        main = EngineConfig.make(model="tiny", dtype="float32")
        main.model_config = resolve(main.model_config)
        config = preset_config(main, presets()[name])
        config.trace_config.check = True
        self.llm = AsyncLLM(config, InprocClient)
        facts = EngineFacts(self.llm.config, self.llm.tokenizer, self.llm.sources)
        self.services = Services(self.llm, facts, Access(), Broadcaster(self.llm.log, lambda *_, **__: None))
        self.services.start_beside()
        self.told: list[str] = []
        self.player = PresetPlayer(presets()[name], self.services, self.told.append, lambda: False)
        self.last = self.player.play()

    def facts(self, phase: str, pass_id: int | None = None) -> dict[str, Any]:
        """What a phase recorded, by default in the pass that the preset is about."""
        record = self._record(pass_id)
        return next(each.facts for each in record.phases if each.phase == phase)

    def touched(self, pass_id: int) -> set[int]:
        """The rows of the batch that the diff cleared, wrote anew or moved, but for the two writes of an update."""
        touched: set[int] = set()
        for phase in self._record(pass_id).phases:
            for change in phase.changes if phase.phase in DIFF and phase.phase != "update_cached" else []:
                touched |= set(change[2]) if change[0] in ("set", "put") else set(change[1:])
        return touched

    def rows(self) -> list[str]:
        return [row["req_id"] for row in self.llm.log.state()["rows"] if row]

    def step(self) -> int:
        """Let one more pass through and return its number."""
        self.player._pass()
        return self.player.passes - 1

    def close(self) -> None:
        self.services.stop_beside()
        self.llm.shutdown()

    def _record(self, pass_id: int | None) -> Any:
        return decode(self.llm.log.pass_bytes(self.last if pass_id is None else pass_id))


@pytest.fixture
def play() -> Iterator[Callable[[str], Played]]:
    played: list[Played] = []

    def start(name: str) -> Played:
        played.append(Played(name))
        return played[-1]

    with one_thread():
        yield start
        for each in played:
            each.close()


@pytest.mark.parametrize("name", ORDER)
def test_a_preset_ends_with_the_engine_held_at_the_pass_that_it_is_about(
    name: str, play: Callable[[str], Played]
) -> None:
    each = play(name)
    gate = each.llm.call("gate_state")
    assert (gate["paused"], gate["permits"]) == (True, 0)
    assert each.llm.log.newest()[0] == each.last > 0
    assert each.told, "the page has something to tell meanwhile"
    PROMISES[name](each)


def the_two_five_three_pass(each: Played) -> None:
    assert each.facts("schedule")["num_scheduled_tokens"] == {"R1": 2, "R2": 5, "R3": 3}
    new = each.facts("schedule")["scheduled_new_reqs"]
    assert [(one["num_prompt_tokens"], one["num_computed_tokens"]) for one in new] == [(102, 100), (600, 0), (60, 40)]
    inputs = each.facts("prepare_inputs")
    assert inputs["req_indices"] == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    assert inputs["positions"] == [100, 101, 0, 1, 2, 3, 4, 40, 41, 42]
    assert inputs["query_start_loc"] == [0, 2, 7, 10]
    assert inputs["logits_indices"] == [1, 6, 9]
    assert inputs["discard_request_mask"] == [False, True, True]
    assert each.rows() == ["R1", "R2", "R3"]
    assert list(each.facts("update_from_output")["new_token_ids"]) == ["R1"]


def steady_decode(each: Played) -> None:
    for pass_id in range(each.last - 20, each.last + 1):
        assert set(each.facts("schedule", pass_id)["num_scheduled_tokens"].values()) == {1}
        assert each.touched(pass_id) == set(), "each row stays where it is"
    assert len(each.rows()) == 8


def alternating_sets(each: Played) -> None:
    sets = [set(each.facts("schedule", each.last - i)["num_scheduled_tokens"]) for i in range(4)]
    assert sets[0] == sets[2]
    assert sets[1] == sets[3]
    assert not sets[0] & sets[1]
    assert [len(one) for one in sets[:2]] == [8, 8]
    for pass_id in range(each.last - 20, each.last + 1):
        assert each.touched(pass_id) == set(range(8)), "as many rows as in steady decode, and none is kept"
        assert not each.facts("schedule", pass_id)["scheduled_new_reqs"], "nobody is re-created"
    assert set(each.facts("remove_unscheduled")["unscheduled_req_ids"]) == sets[1]


def chunked_prefill(each: Played) -> None:
    chunks = []
    for pass_id in (each.last - 1, each.last):
        scheduled = each.facts("schedule", pass_id)["num_scheduled_tokens"]
        assert [scheduled[f"d{i}"] for i in range(4)] == [1, 1, 1, 1], "the decodes never wait"
        chunks.append(scheduled["long"])
        assert each.facts("prepare_inputs", pass_id)["discard_request_mask"] == [False] * 4 + [True]
    while not each.facts("update_from_output", each.player.passes - 1)["new_token_ids"].get("long"):
        chunks.append(each.facts("schedule", each.step())["num_scheduled_tokens"]["long"])
    assert chunks == [44] * 6 + [36]


def condense_storm(each: Played) -> None:
    assert sorted(each.facts("remove_finished")["finished_req_ids"]) == ["c00", "c02", "c04", "c06", "c08"]
    assert each.facts("add_requests")["rows"] == [0, 2], "the lowest holes are filled first"
    assert [move[:2] for move in each.facts("condense")["moved"]] == [[11, 4], [10, 6], [9, 8]]
    assert each.rows() == ["new-1", "c01", "new-2", "c03", "c11", "c05", "c10", "c07", "c09"]


def preemption(each: Played) -> None:
    before = next(
        one["block_ids"][0] for one in each.facts("schedule", 0)["scheduled_new_reqs"] if one["req_id"] == "B"
    )
    assert each.facts("schedule")["preempted_req_ids"] == ["B"]
    assert each.rows() == ["A"]
    each.step()
    each.step()
    cached = each.facts("schedule", each.step())["scheduled_cached_reqs"]
    assert cached["resumed_req_ids"] == ["B"]
    assert cached["num_computed_tokens"] == [8], "what the prefix cache still had"
    assert cached["new_block_ids"][0][0][: len(before)] == before, "its whole allocation, not an addition"
    assert each.rows() == ["B"]


def prefix_cache(each: Played) -> None:
    facts = each.facts("schedule")
    assert {name: len(blocks) for name, blocks in facts["hits"].items()} == {f"hit-{i}": 6 for i in range(1, 5)}
    assert facts["num_scheduled_tokens"] == {"first": 1, "hit-1": 8, "hit-2": 11, "hit-3": 14, "hit-4": 17}
    shared = {tuple(blocks) for blocks in facts["hits"].values()}
    assert len(shared) == 1, "all hold the same blocks"
    blocks = each.llm.log.state()["blocks"]
    assert {blocks[str(block_id)][0] for block_id in shared.pop()} == {5}


def reset_running(each: Played) -> None:
    facts = each.facts("schedule")
    ids = [f"r{i}" for i in range(4)]
    assert facts["preempted_req_ids"] == facts["scheduled_cached_reqs"]["resumed_req_ids"] == ids
    assert not facts["hits"]
    removed = each.facts("remove_unscheduled")
    assert sorted(removed["unscheduled_req_ids"]) == ids, "held, scheduled, and removed all the same"
    known = [18 + 4 * i + 8 for i in range(4)]
    assert list(facts["num_scheduled_tokens"].values()) == known, "prompt and outputs, all computed again"
    assert each.rows() == ids


def resubmit(each: Played) -> None:
    facts = each.facts("schedule")
    assert facts["finished_req_ids"] == ["X"]
    assert [new["req_id"] for new in facts["scheduled_new_reqs"]] == ["X"]
    assert each.facts("remove_finished")["finished_req_ids"] == ["X"]
    assert each.rows() == ["X", "Y", "Z"]
    lives = each.llm.log.newest()[2]
    assert [[life.finish_reason for life in lives.of(name)] for name in "XY"] == [["abort", None], ["length", None]]
    state = each.llm.log.state()["requests"]
    assert (state["X"]["num_prompt_tokens"], state["Y"]["num_prompt_tokens"]) == (20, 16)


PROMISES: dict[str, Callable[[Played], None]] = {
    "two-five-three": the_two_five_three_pass,
    "steady-decode": steady_decode,
    "alternating-sets": alternating_sets,
    "chunked-prefill": chunked_prefill,
    "condense-storm": condense_storm,
    "preemption": preemption,
    "prefix-cache": prefix_cache,
    "reset-running": reset_running,
    "resubmit": resubmit,
}


def test_every_preset_is_told_in_a_paragraph_and_names_phases_and_conditions_that_there_are() -> None:
    assert list(presets()) == list(PROMISES)
    for preset in presets().values():
        assert preset.title
        assert 150 < len(preset.paragraph) < 700
        assert preset.phase is None or preset.phase in set(Phase)
        assert {action.holds for action in preset.script if isinstance(action, Until)} <= set(HOLDS)


def test_a_script_that_waits_for_what_does_not_come_says_so(
    play: Callable[[str], Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    each = play("two-five-three")
    monkeypatch.setattr("webui.preset_player.MOST_PASSES", 3)
    with pytest.raises(PresetError, match="after 3 passes it still was not 'preempted'"):
        each.player._until("preempted")

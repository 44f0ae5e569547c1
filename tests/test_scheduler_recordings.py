"""Our scheduler decides as vLLM 0.32's did, pass by pass."""

from typing import Any

import pytest
from helpers import recordings
from helpers.invariants import check_scheduler

from engine.outputs import SchedulerOutput
from engine.scheduler import Scheduler
from tracer.compare import first_difference


@pytest.mark.parametrize("name", recordings.NAMES)
def test_every_pass_of_the_recording_is_decided_alike(name: str) -> None:
    recording = recordings.load(name)

    def check(pass_id: int, scheduler: Scheduler, output: SchedulerOutput, recorded: dict[str, Any]) -> None:
        ours = recordings.scheduler_output_as_recorded(output)
        difference = first_difference(recorded["scheduler_output"], ours)
        assert difference is None, f"{name}, pass {pass_id}{difference}"
        assert list(ours["num_scheduled_tokens"]) == list(recorded["scheduler_output"]["num_scheduled_tokens"])
        check_scheduler(scheduler)

    scheduler = recordings.play(recording, check)

    assert not scheduler.requests, "the recording ends with its last output"
    check_scheduler(scheduler)


def test_every_recording_is_played_or_listed_as_not_yet() -> None:
    assert len(recordings.NAMES) == 11
    assert {path.stem for path in recordings.VECTORS.glob("*.json")} == {*recordings.NAMES, *recordings.NOT_YET}

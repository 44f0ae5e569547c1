"""The page says where a pass goes: by phase over the last passes, by kernel over passes that it asks for."""

import pytest
import requests
from helpers.page import pause, table, until

from tracer.pass_times import BETWEEN_PHASES, pass_ns, phase_ns, sum_phase_ns
from tracer.schema import PassRecord, PhaseRecord
from webui.profiling import Profile

pytestmark = pytest.mark.browser


def record(*phases: tuple[str, int, int]) -> PassRecord:
    return PassRecord(0, "pass", 0, 0.0, 0, [PhaseRecord(*phase) for phase in phases])


def test_phases_and_what_lies_between_them_add_up_to_the_pass() -> None:
    one = record(
        ("schedule", 0, 10), ("execute_model", 12, 90), ("forward", 20, 80), ("sample_tokens", 85, 95),
        ("grammar_bitmask", 75, 85), ("update_from_output", 100, 130),
    )  # fmt: skip
    assert phase_ns(one) == {
        "schedule": 10, "forward": 60, "grammar_bitmask": 5, "sample_tokens": 10, "update_from_output": 30,
        BETWEEN_PHASES: 15,
    }  # fmt: skip
    assert sum(phase_ns(one).values()) == pass_ns(one) == 130
    assert sum(sum_phase_ns([one, one]).values()) == 260


def test_kernels_are_timed_while_asked_for_and_fit_into_the_pass(served) -> None:
    served.post("/api/requests", prompt="a b c", copies=4, max_tokens=400, ignore_eos=True)
    answer = Profile(**served.post("/api/profile", passes=8))
    assert answer.passes >= 8
    assert sum(answer.phases.values()) == answer.pass_ns
    calls = {kernel["name"]: kernel["calls"] for kernel in answer.kernels}
    layers = 2
    assert calls["paged_attention"] == calls["store_kv"] == layers * answer.passes
    assert calls["linear 64 → 320"] == answer.passes  # the head
    inside = sum(kernel["ns"] for kernel in answer.kernels)
    model = sum(answer.phases[phase] for phase in ("forward", "park_logits", "sample_tokens", "prepare_inputs"))
    assert 0 < inside <= model


def test_a_profile_of_no_passes_is_refused(served) -> None:
    reply = requests.post(f"{served.base}/api/profile", json={"passes": 0}, timeout=30)
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "passes must be from 1 to 1000, got 0")


def test_the_page_shows_the_phases_of_the_last_passes(page, served) -> None:
    served.post("/api/requests", prompt="a b c", copies=3, max_tokens=60, ignore_eos=True)
    until(page, "__model.passId >= 20")
    last = pause(page, served)["pass_id"]
    page.click("#profile-open")
    until(page, "document.querySelectorAll('#profile-phases tbody tr').length > 0")
    records = [served.get(f"/api/passes/{number}") for number in range(max(0, last - 63), last + 1)]
    spent = sum_phase_ns(
        record(*((phase["phase"], phase["start"], phase["end"]) for phase in each["phases"])) for each in records
    )
    whole = sum(spent.values())
    expected = [
        [name, f"{ns / len(records) / 1e6:.3f}", f"{100 * ns / whole:.1f}%", ""]
        for name, ns in spent.items()
        if ns >= whole * 0.0005
    ]
    assert table(page, "#profile-phases") == expected
    page.keyboard.press("Escape")


def test_the_page_times_the_kernels_of_the_next_passes(page, served) -> None:
    pause(page, served)
    served.post("/api/requests", prompt="a b c", copies=3, max_tokens=60, ignore_eos=True)
    page.click("#profile-open")
    page.fill("#profile-passes", "5")
    page.click("#profile-time")
    until(page, "document.getElementById('profile-words').textContent === 'timing …'")
    served.post("/api/control", action="resume")
    until(page, "!document.getElementById('profile-kernels').hidden")
    names = [name for name, *_ in table(page, "#profile-kernels")]
    assert {"paged_attention", "linear 64 → 320", "outside kernels"} <= set(names)
    page.keyboard.press("Escape")

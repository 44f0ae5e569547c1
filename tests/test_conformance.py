"""Our passes are a real vLLM's passes, and a difference is found and named."""

import json
from pathlib import Path

import pytest

from batchscope.cli import main
from batchscope.conformance import engine_level, runner_level
from batchscope.conformance.recording import NOT_YET, Recording, load_all

VECTORS = Path(__file__).parent / "vectors"
RECORDINGS = {recording.name: recording for recording in load_all(VECTORS)}
PLAYED = sorted(set(RECORDINGS) - set(NOT_YET))
KEYS = ("config", "requests", "reset_prefix_cache_at", "passes", "outputs")
LEVELS = {"runner": runner_level.play, "engine": engine_level.play}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PLAYED)
def test_rows_blocks_slots_indices_and_masks_are_those_of_the_recording(name, level):
    assert LEVELS[level](RECORDINGS[name], "tiny-49152", "float32", layout=True) is None


@pytest.mark.parametrize("name", ["chunked_prefill", "condense_storm", "prefix_cache", "reset_running"])
def test_the_real_model_samples_the_recorded_tokens(name, smollm2):
    assert engine_level.play(RECORDINGS[name], "smollm2", "float32", layout=False) is None


@pytest.mark.parametrize("level", LEVELS)
def test_a_difference_is_named_by_pass_and_field(level):
    data = json.loads((VECTORS / "condense_storm.json").read_text())
    data["passes"][3]["inputs"]["slot_mapping"][2] += 1
    slot = data["passes"][3]["inputs"]["slot_mapping"][2]
    broken = Recording("x", *(data[key] for key in KEYS))
    difference = LEVELS[level](broken, "tiny-49152", "float32", layout=True)
    assert difference == f"pass 3.inputs.slot_mapping[2]: expected {slot}, got {slot - 1}"


def test_a_wrong_token_is_a_difference_unless_only_the_layout_is_compared():
    difference = runner_level.play(RECORDINGS["condense_storm"], "tiny-49152", "float32", layout=False)
    assert difference is not None
    assert "sampled_token_ids" in difference


def test_a_decision_that_differs_is_found_at_engine_level():
    data = json.loads((VECTORS / "churn.json").read_text())
    data["passes"][4]["scheduler_output"]["num_scheduled_tokens"] = {"r0": 1}
    broken = Recording("x", *(data[key] for key in KEYS))
    difference = engine_level.play(broken, "tiny-49152", "float32", layout=True)
    assert difference is not None
    assert difference.startswith("pass 4 scheduler_output.num_scheduled_tokens")


def test_the_command_prints_a_table_and_lists_what_is_not_yet_as_such(tmp_path, capsys):
    for name in ("condense_storm", "async", "ngram_spec"):
        (tmp_path / f"{name}.json").write_bytes((VECTORS / f"{name}.json").read_bytes())
    assert main(["conformance", str(tmp_path), "--model", "tiny-49152", "--layout"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1] for line in lines[1:]] == [
        "not yet: async scheduling", "identical", "not yet: speculative decoding",
    ]  # fmt: skip


def test_the_command_fails_on_a_difference_and_on_a_folder_without_recordings(tmp_path, capsys):
    assert main(["conformance", str(tmp_path)]) == 2
    assert "holds no .json recordings" in capsys.readouterr().err
    (tmp_path / "x.json").write_text("{}")
    assert main(["conformance", str(tmp_path)]) == 2
    assert "it lacks 'scenario'" in capsys.readouterr().err
    data = json.loads((VECTORS / "condense_storm.json").read_text())
    data["passes"][1]["batch"]["num_reqs"] = 99
    (tmp_path / "x.json").write_text(json.dumps(data))
    assert main(["conformance", str(tmp_path), "--model", "tiny-49152", "--layout"]) == 1
    assert "first difference in condense_storm: pass 1.batch.num_reqs: expected 99" in capsys.readouterr().out

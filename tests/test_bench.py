"""The bench: the same work for every engine, one at a time, and arithmetic that can be checked by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from helpers.page import within

from batchscope.bench import floor, pass_profile, report, results, throughput, trace_cost
from batchscope.bench.peer import SCRIPTS, Peer, model_for, python_of
from batchscope.bench.protocol import CHURN_NEW, CHURN_PROMPT, arrivals_of, prompts_of
from batchscope.bench.turns import ratios, take_turns
from batchscope.bench.workloads import Workload, churn_tokens, workloads
from batchscope.cli import main
from engine.config import ConfigError, ModelConfig
from engine.inproc_client import InprocClient
from engine.model_source import resolve

CHURN = {"kind": "churn", "seed": 3, "requests": 40, "vocab_size": 320}
BENCH = Path(throughput.__file__).parent

# An engine that takes 20 ms for any job, made of the same protocol as the real ones.
FAKE = f"""
import sys, time
sys.path.insert(0, {str(BENCH)!r})
from protocol import Engine, serve

class Fake(Engine):
    name, version, max_rows, takes_arrivals = "fake", "1", 4, False
    def generate(self, prompts, new_tokens):
        print("an engine's own words")
        if new_tokens == 13:
            raise SystemExit("no thirteens")
        time.sleep(0.02 * new_tokens)

serve(Fake())
"""


@pytest.fixture
def fake():
    peer = Peer("fake", [sys.executable, "-c", FAKE])
    yield peer
    peer.close()


def state_of(peer: Peer) -> str:
    return Path(f"/proc/{peer._process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_every_engine_gets_the_same_prompts_and_the_same_arrivals() -> None:
    job = {"seed": 1, "rows": 3, "prompt_tokens": 7, "vocab_size": 320}
    assert prompts_of(job) == prompts_of(dict(job))
    assert prompts_of(job) != prompts_of(job | {"seed": 2})
    assert arrivals_of(CHURN) == arrivals_of(dict(CHURN))
    script = f"""
import sys, json
sys.path.insert(0, {str(BENCH)!r})
from protocol import arrivals_of
print(json.dumps(arrivals_of({CHURN})))
"""
    bare = [sys.executable, "-S", "-c", script]  # without any package, as in another engine's environment
    told = json.loads(subprocess.run(bare, capture_output=True, text=True, check=True).stdout)
    assert told == [list(arrival) for arrival in arrivals_of(CHURN)]


def test_requests_of_mixed_lengths_arrive_one_after_the_other() -> None:
    arrivals = arrivals_of(CHURN)
    assert len(arrivals) == 40
    assert [each.at for each in arrivals] == sorted(each.at for each in arrivals)
    assert all(CHURN_PROMPT[0] <= len(each.prompt) <= CHURN_PROMPT[1] for each in arrivals)
    assert all(CHURN_NEW[0] <= each.new_tokens <= CHURN_NEW[1] for each in arrivals)
    assert len({(len(each.prompt), each.new_tokens) for each in arrivals}) > 30
    assert churn_tokens(CHURN) == sum(len(each.prompt) + each.new_tokens for each in arrivals)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states of processes are read from /proc")
def test_an_engine_stands_still_while_others_are_measured(fake) -> None:
    within(lambda: state_of(fake) == "T")
    assert 0.02 <= fake.seconds(kind="generate", rows=1, prompt_tokens=2, new_tokens=1, vocab_size=320, seed=0) < 1
    within(lambda: state_of(fake) == "T")


def test_an_engine_that_ends_says_why(fake) -> None:
    with pytest.raises(RuntimeError, match=r"fake ended with code 1 before it answered:\nno thirteens"):
        fake.seconds(kind="generate", rows=1, prompt_tokens=2, new_tokens=13, vocab_size=320, seed=0)


def test_engines_take_turns_and_each_second_turn_goes_backwards(fake) -> None:
    order: list[tuple[str, int]] = []

    def measure(peer: Peer, seed: int) -> float:
        order.append((peer.name, seed))
        return 2.0

    other = type("Other", (), {"name": "other", "facts": fake.facts | {"max_rows": None}})()
    workload = Workload("any", "decode", "tok/s", 4, measure, lambda peer: order.append((peer.name, 0)))
    assert take_turns([fake, other], workload, 2) == {"fake": [2.0, 2.0], "other": [2.0, 2.0]}
    assert order == [("fake", 0), ("other", 0), ("fake", 1), ("other", 1), ("other", 2), ("fake", 2)]


def test_an_engine_is_spared_what_it_does_not_take(fake) -> None:
    able = {each.name: each.can(fake) for each in workloads([4, 8], 64, 128, 320)}
    assert able == {
        "decode, 4 rows": True, "decode, 8 rows": False, "prefill of 512 tokens": True, "first token after 64": True,
        "churn of 64 requests": False,
    }  # fmt: skip


def test_decode_is_what_comes_after_the_first_token(fake) -> None:
    (decode, *_) = workloads([2], 4, 5, 320)
    assert decode.measure(fake, 1) == pytest.approx(2 * 4 / 0.08, rel=0.3)


def test_ratios_say_how_many_times_as_good_ours_is() -> None:
    values = {"batchscope gguf": [8.0, 9.0, 100.0], "batchscope bfloat16": [1.0], "vllm": [3.0, 1.0, 2.0]}
    faster = Workload("rate", "decode", "tok/s", 1, lambda peer, seed: 0.0, lambda peer: None)
    sooner = Workload("time", "first token", "ms", 1, lambda peer, seed: 0.0, lambda peer: None)
    assert ratios(faster, values, "batchscope gguf") == {"vllm": 4.5}
    assert ratios(sooner, values, "batchscope bfloat16") == {"vllm": 2.0}


def test_each_engine_gets_a_file_that_it_can_read(smollm2, tmp_path) -> None:
    assert model_for("llama.cpp", "smollm2", None) == smollm2
    assert model_for("vllm", "smollm2", "some/folder") == "some/folder"
    with pytest.raises(ConfigError, match=r"vllm reads no GGUF file: name a Hugging Face folder .* by --peer-model"):
        model_for("vllm", "smollm2", None)
    with pytest.raises(ConfigError, match=r"llama\.cpp reads GGUF files and tiny is none"):
        model_for("llama.cpp", "tiny", None)
    with pytest.raises(ConfigError, match=r"there is no .*none: name a virtual environment's folder or its python"):
        python_of(tmp_path / "none")
    assert all((BENCH / script).is_file() for script in SCRIPTS.values())


def test_the_floor_is_the_weights_and_the_kv_read_once() -> None:
    model = resolve(ModelConfig(model="tiny"))
    layer = 64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 128  # attention's four products and the MLP's three
    assert floor.num_weights(model.hf_config) == 2 * layer + 64 * 320
    kv = 2 * 2 * 2 * 16 * 5 * 10  # K and V of 2 layers, 2 heads of 16, 5 rows of 10 tokens
    limits = {"bytes_per_second": 1e6, "flops_per_second": 1e9}
    least = floor.decode_floor("tiny", "bfloat16", 5, 10, limits)
    assert least.memory_s == pytest.approx(2 * (2 * layer + 64 * 320 + kv) / 1e6)
    assert least.arithmetic_s == pytest.approx((2 * (2 * layer + 64 * 320) * 5 + 4 * 2 * 4 * 16 * 5 * 10) / 1e9)
    assert least.bound_by == "memory"
    assert least.tokens_per_second(5) == pytest.approx(5 / least.memory_s)


def test_the_cost_of_tracing_is_the_mean_over_pairs_with_an_interval() -> None:
    assert trace_cost.cost([(1.0, 1.0)] * 5) == pytest.approx((0, 0, 0))
    assert trace_cost.cost([(0.9, 1.0)] * 5) == pytest.approx((0.1, 0.1, 0.1))
    mean, low, high = trace_cost.cost([(0.98, 1.0), (0.96, 1.0), (0.99, 1.0), (0.97, 1.0)])
    assert mean == pytest.approx(1 - fmean([0.98, 0.96, 0.99, 0.97]), abs=1e-3)
    assert 0.01 < low < mean < high < 0.04


def test_what_grows_over_a_round_costs_nothing() -> None:
    stretches = [(recorded, 1.0 + 0.1 * at) for at, recorded in enumerate((False, True, True, False))]
    stretches += [(recorded, 1.0 + 0.1 * at) for at, recorded in enumerate((True, False, False, True))]
    pairs = trace_cost._pairs(stretches)
    assert len(pairs) == 2
    assert trace_cost.cost(pairs) == pytest.approx((0, 0, 0))


def test_one_engine_process_records_every_other_stretch_and_is_compared_with_itself() -> None:
    told: list[str] = []
    measured = trace_cost.measure(4, 1, told.append, modes=["recording"], model="tiny")["recording"]
    assert len(measured["pairs"]) == trace_cost.PATIENT.patterns
    assert all(0 < seconds < 30 for pair in measured["pairs"] for seconds in pair)
    assert measured["low"] <= measured["mean"] <= measured["high"]
    assert told[0].split()[0] == "recording"


def test_a_profile_adds_up_to_all_the_time_from_pass_to_pass() -> None:
    measured = {"variant": "bfloat16"} | pass_profile.measure(3, 8, model="tiny", make_client=InprocClient)
    assert measured["passes"] >= 8
    assert measured["tokens"] == 3 * measured["passes"]
    whole = (measured["pass_ns"] + measured["between_ns"]) / measured["passes"] / 1e6
    for part in pass_profile.parts(measured):
        assert sum(part.values()) == pytest.approx(whole)
        assert all(ms >= 0 for ms in part.values())
    assert 0 < pass_profile.bookkeeping_share(measured) < 1
    assert "| paged_attention |" in pass_profile.told(measured)


def test_throughput_writes_its_numbers_and_draws_them(tmp_path, capsys) -> None:
    written, drawn = tmp_path / "t.json", tmp_path / "t.svg"
    flags = ["--model", "tiny", "--rows", "2", "--new-tokens", "4", "--turns", "1"]
    assert main(["bench", "throughput", *flags, "--json", str(written), "--chart", str(drawn)]) == 0
    measured = json.loads(written.read_text())
    assert measured["settings"]["rows"] == [2]
    assert measured["machine"]["cores"] == os.cpu_count()
    assert list(measured["engines"]) == ["batchscope bfloat16"]
    assert [each["kind"] for each in measured["workloads"]] == ["decode", "prefill", "first token", "churn"]
    assert all(min(each["values"]["batchscope bfloat16"]) > 0 for each in measured["workloads"])
    assert "decode, 2 rows, tok/s: batchscope bfloat16" in capsys.readouterr().out
    assert drawn.read_text().startswith("<?xml")


def test_an_unknown_engine_is_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "throughput", "--peers", "ollama=/tmp"])
    assert "unknown engine ollama: there are vllm=ENV,transformers=ENV,llama.cpp=ENV" in capsys.readouterr().err


def test_the_report_holds_what_was_measured() -> None:
    values = {"batchscope bfloat16": [50.0, 60.0, 55.0], "vllm": [44.0, 40.0, 42.0]}
    workload = {"name": "decode, 1 rows", "kind": "decode", "rows": 1, "unit": "tok/s", "values": values}
    cost = {"pairs": [(0.99, 1.0)] * 3, "mean": 0.01, "low": 0.005, "high": 0.015}
    one_pass = {
        "variant": "bfloat16", "rows": 16, "passes": 2, "pass_ns": 18_000_000, "between_ns": 2_000_000,
        "phases": {"schedule": 1_000_000, "forward": 16_000_000, "sample_tokens": 1_000_000},
        "kernels": [{"name": "paged_attention", "calls": 60, "ns": 8_000_000}],
    }  # fmt: skip
    measured = {
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"processor": "A Processor", "cores": 2, "memory_bytes": 2**34, "system": "Linux", "versions": {}},
        "limits": {"bytes_per_second": 30e9, "flops_per_second": 2e12},
        "settings": {"model": "tiny", "rows": [1, 64], "turns": 3, "prompt_tokens": 64, "new_tokens": 128},
        "engines": {"batchscope bfloat16": "0.1.0", "vllm": "0.32.0"},
        "workloads": [workload | {"ratios": {"batchscope bfloat16": {"vllm": 55 / 42}}}],
        "profiles": [one_pass],
        "traces": [{"variant": "bfloat16", "rows": 32} | dict.fromkeys(trace_cost.MODES, cost)],
        "starts": [
            {"variant": "bfloat16", "rows": 64, "seconds_to_first_token": [3.0, 2.0, 4.0], "engine_bytes": 12 * 10**8}
        ],
    }
    text = " ".join(report.write(measured, "chart.svg", "profile.svg").split())
    for part in (
        "| processor | A Processor, 2 cores |",
        "![medians by workload](chart.svg)",
        "| decode, 1 rows | tok/s | 55 (50 to 60) | 42 (40 to 44) |",
        "| decode, 1 rows | 1.31x |",
        "Bookkeeping, all but the forward pass, the head and sampling, takes 15.0%.",
        "| paged_attention | 4.000 | 40.0% |",
        "| recording | +1.00% (+0.50 to +1.50) | 3 |",
        "first token 3.0 s after `batchscope serve` (2.0 to 4.0); the engine took 1.20 GB for 64 rows",
        "each once more in the opposite order, 3 times in all",
    ):
        assert part in text


def test_settings_are_plain_in_the_json_and_name_no_folder_of_this_machine(tmp_path) -> None:
    args = type("Args", (), {})()
    args.__dict__ = {"peers": {"vllm": Path("/env")}, "rows": [1], "model": Path("m"), "json": tmp_path, "run": print}
    assert results.headed(args, {})["settings"] == {"rows": [1], "model": "m"}

"""`batchscope serve --record`, `trace`, `replay` and `export` as one uses them."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest
import requests
from helpers.page import Served, within
from helpers.recorded import MAX_NUM_SEQS, decoded, header_of, run, write

from batchscope.cli import main
from batchscope.recorded import check
from tracer.schema import PassRecord, encode
from tracer.trace_format import BlockEntry
from tracer.trace_reader import TraceReader, read_block
from webui.app import create_app
from webui.replay import ReplayLLM


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write(tmp_path_factory.mktemp("trace") / "run.bscope")


@pytest.fixture(scope="module")
def passes():
    return [entry for entry in decoded(run()[0]) if isinstance(entry, PassRecord)]


def test_info_tells_what_was_recorded(trace, passes, capsys):
    assert main(["trace", "info", str(trace)]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["model"] == "tiny"
    assert told["passes"] == str(len(passes))
    assert told["complete"] == "True"
    assert main(["trace", "info", "--json", str(trace)]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == len(run()[0])


def test_check_passes_a_whole_file_and_fails_a_cut_one(trace, tmp_path, capsys):
    assert main(["trace", "check", str(trace)]) == 0
    assert "passes in" in capsys.readouterr().out
    cut = tmp_path / "cut.bscope"
    cut.write_bytes(trace.read_bytes()[:-3000])
    assert main(["trace", "check", str(cut)]) == 1
    assert "up to its last whole block" in capsys.readouterr().out


def test_jsonl_is_the_log_line_by_line(trace, capsysbinary, tmp_path):
    assert main(["trace", "jsonl", str(trace)]) == 0
    lines = capsysbinary.readouterr().out.splitlines()
    assert [msgspec.msgpack.encode(json.loads(line)) for line in lines] == run()[0]
    out = tmp_path / "out.jsonl"
    assert main(["trace", "jsonl", str(trace), "-o", str(out)]) == 0
    assert out.read_bytes().splitlines() == lines


def test_perfetto_has_every_phase_at_its_own_time_and_the_counters(trace, passes, tmp_path):
    out = tmp_path / "run.json"
    assert main(["trace", "perfetto", str(trace), "-o", str(out)]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X" and not e["name"].startswith("pass ")]
    expected = [(p.phase, r.pass_id, r.start_ns + p.start - passes[0].start_ns) for r in passes for p in r.phases]
    assert [(e["name"], e["args"]["pass"], round(e["ts"] * 1000)) for e in spans] == expected
    assert {lanes[e["tid"]] for e in spans if e["name"] in ("schedule", "update_from_output")} == {"engine core"}
    assert {lanes[e["tid"]] for e in spans if e["name"] in ("forward", "condense", "sample_tokens")} == {"runner"}
    counters = [e["args"]["running"] for e in events if e["ph"] == "C" and e["name"] == "running"]
    assert counters == [len(record.phases[0].facts["running"]) for record in passes]
    assert {e["name"] for e in events if e["ph"] == "C"} == {"tokens a pass", "running", "waiting", "free blocks"}


@pytest.mark.parametrize("command", [["trace", "info"], ["trace", "jsonl"], ["replay", "--port", "0"], ["export"]])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_2(command, tmp_path, capsys):
    bad = tmp_path / "bad.bscope"
    bad.write_bytes(b"nothing of ours")
    extra = [str(tmp_path / "out.html")] if command == ["export"] else []
    assert main([*command, str(bad), *extra]) == 2
    told = capsys.readouterr().err
    assert "this is no Batchscope trace" in told
    assert told.count("\n") == 1
    assert os.listdir(tmp_path) == ["bad.bscope"]


@pytest.mark.parametrize("command", [["replay", "--port", "0"], ["export"]])
def test_a_file_that_the_page_could_not_show_is_refused(command, tmp_path, capsys):
    bare = write(tmp_path / "bare.bscope", header=header_of(MAX_NUM_SEQS))
    extra = [str(tmp_path / "out.html")] if command == ["export"] else []
    assert main([*command, str(bare), *extra]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "missing required field `block_size`" in told
    assert told.endswith("record it with `batchscope serve --record`")
    assert os.listdir(tmp_path) == ["bare.bscope"]


def test_an_export_to_a_folder_that_is_not_there_says_what_to_do(tmp_path, capsys):
    out = tmp_path / "none" / "run.html"
    assert main(["export", str(tmp_path / "run.bscope"), str(out)]) == 2
    assert capsys.readouterr().err == f"batchscope export: there is no folder {out.parent}: make it first\n"


@pytest.mark.parametrize(
    ("place", "told"),
    [("taken", "exists already"), ("no/such/folder/run", "cannot be written: No such file"), (".", "exists already")],
)
def test_a_place_that_cannot_be_recorded_to_is_told_before_anything_is_loaded(place, told, tmp_path, capsys):
    (tmp_path / "taken").touch()
    assert main(["serve", "--model", "tiny", "--port", "0", "--record", str(tmp_path / place)]) == 2
    stderr = capsys.readouterr().err
    assert told in stderr
    assert stderr.count("\n") == 1


def test_recording_without_a_trace_and_a_model_that_fails_leave_no_file(tmp_path, capsys):
    path = tmp_path / "run.bscope"
    assert main(["serve", "--model", "tiny", "--port", "0", "--no-trace", "--record", str(path)]) == 2
    assert "--record needs the trace" in capsys.readouterr().err
    assert main(["serve", "--model", str(tmp_path / "none"), "--port", "0", "--record", str(path)]) == 2
    assert not path.exists()


def wait_for_end(served, count):
    """Wait until so many requests are known and all have finished."""

    def ended():
        known = served.state()["requests"].values()
        return len(known) == count and all("finish_reason" in request for request in known)

    within(ended, 60)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_served_run_is_recorded_whole_and_a_killed_one_to_its_last_block(tmp_path, how):
    path = tmp_path / "run.bscope"
    served = Served("--record", str(path))
    try:
        served.post("/api/requests", prompt="one two three", copies=20, max_tokens=40, ignore_eos=True)
        wait_for_end(served, 20)
        within(lambda: TraceReader(path).last_seq == served.state()["seq"])
        state = served.state()
        assert served.get("/api/trace/recording")["stopped"] is None
        block = requests.get(f"{served.base}/api/trace/blocks/0", timeout=30)
        served.process.send_signal(how)
        served.process.wait(20)
    finally:
        served.stop()
    reader = TraceReader(path)
    assert reader.complete is (how == signal.SIGINT)
    assert reader.state() == state
    served_block = read_block(block.content, BlockEntry(0, len(block.content), reader.index[0].span))
    assert served_block == reader.block(0)
    assert requests_known(reader) == 20
    if reader.complete:
        assert check(reader) == reader.num_passes == state["pass_id"] + 1


def requests_known(reader):
    return len(reader.state()["requests"])


@pytest.fixture(scope="module")
def replayed(trace):
    command = [sys.executable, "-c", "import sys; from batchscope.cli import main; sys.exit(main())"]
    process = subprocess.Popen([*command, "replay", str(trace), "--port", "0"], stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().split()[-1]
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0


def test_a_replay_answers_what_looks_back(replayed, trace, passes):
    reader = TraceReader(trace)
    for record in (passes[0], passes[-1], passes[len(passes) // 2]):
        got = requests.get(f"{replayed}/api/passes/{record.pass_id}", timeout=30).json()
        assert msgspec.msgpack.encode(got) == encode(record)
    assert requests.get(f"{replayed}/api/passes/{len(passes)}", timeout=30).status_code == 404
    assert requests.get(f"{replayed}/api/state", timeout=30).json() == json.loads(json.dumps(reader.state()))
    assert requests.get(f"{replayed}/api/config", timeout=30).json()["replay"]["complete"] is True
    assert requests.get(f"{replayed}/api/vocab", timeout=30).content == run()[2]
    assert requests.get(f"{replayed}/api/log?from=3&to=3", timeout=30).content == run()[0][3]
    assert requests.get(f"{replayed}/health", timeout=30).status_code == 200
    index = requests.get(f"{replayed}/api/trace/index", timeout=30).json()
    assert index["blocks"] == [list(entry.span) for entry in reader.index]
    first = requests.get(f"{replayed}/api/trace/blocks/0", timeout=30)
    assert first.content == reader.section(0)
    again = {"If-None-Match": first.headers["ETag"]}
    assert requests.get(f"{replayed}/api/trace/blocks/0", headers=again, timeout=30).status_code == 304
    assert requests.get(f"{replayed}/api/trace/blocks/99", timeout=30).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/requests"), ("POST", "/api/control"), ("DELETE", "/api/requests/0"), ("POST", "/v1/completions"),
        ("POST", "/v1/chat/completions"), ("GET", "/v1/models"),
    ],
)  # fmt: skip
def test_a_replay_says_that_no_engine_runs_where_one_would_be_needed(replayed, method, path):
    reply = requests.request(method, replayed + path, json={"prompt": "a", "model": "b"}, timeout=30)
    assert reply.status_code == 409
    assert "this is a replay of run.bscope: no engine runs here" in reply.json()["error"]["message"]


def test_a_damaged_block_is_told_for_its_passes_alone(trace, tmp_path):
    reader = TraceReader(trace)
    data = bytearray(trace.read_bytes())
    data[reader.index[1].offset + 99] ^= 1
    bad = tmp_path / "bad.bscope"
    bad.write_bytes(data)
    client = create_app(ReplayLLM(TraceReader(bad)))[0].test_client()
    assert client.get("/api/passes/0", base_url="http://127.0.0.1").status_code == 200
    reply = client.get(f"/api/passes/{reader.index[1].span.first_pass}", base_url="http://127.0.0.1")
    assert reply.status_code == 410
    assert "block 1" in reply.json["error"]["message"]

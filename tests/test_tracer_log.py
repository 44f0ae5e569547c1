"""The log is numbered without gaps, bounded in memory and on disk, and honest about what it forgot."""

import threading

import pytest

from tracer.fold import fold, new_state
from tracer.gate import Gate
from tracer.log import FOLD_EVERY, Gone, Log
from tracer.schema import EventRecord, PassRecord, PhaseRecord, decode, encode


def pass_entry(seq, pass_id, size=0):
    changes = [["set", "num_computed_tokens", [0], [pass_id]]]
    return encode(PassRecord(seq, "pass", pass_id, 0.0, 0, [PhaseRecord("forward", 0, 1, {"x": "." * size}, changes)]))


def test_entries_and_passes_are_found_by_number():
    log = Log(1)
    log.append(encode(EventRecord(0, "gate", 0.0, {"paused": True})))
    log.append(pass_entry(1, 0))
    log.append(pass_entry(2, 1))
    assert log.last_seq == 2
    assert decode(log.pass_bytes(1)).seq == 2
    assert [decode(data).seq for data in log.entries(1, 99)] == [1, 2]
    with pytest.raises(KeyError):
        log.pass_bytes(2)


def test_a_gap_is_refused():
    log = Log(1)
    log.append(pass_entry(1, 0))
    with pytest.raises(ValueError, match="expected entry 0 and got 1"):
        log.state()
    for seq in range(2, FOLD_EVERY + 1):
        log.append(pass_entry(seq, seq))
    with pytest.raises(ValueError, match="expected entry 0 and got 1"):
        log.append(pass_entry(FOLD_EVERY + 1, FOLD_EVERY + 1))


def test_old_entries_go_to_disk_and_stay_readable():
    log = Log(1, memory_bytes=10_000)
    for i in range(2_000):
        log.append(pass_entry(i, i, size=100))
    assert log._recent_size < 200_000
    assert [decode(data).pass_id for data in log.entries(0, 1_999)] == list(range(2_000))
    log.close()


def test_past_the_disk_cap_the_oldest_are_gone_and_counted():
    log = Log(1, memory_bytes=1_000, spill_bytes=100_000)
    for i in range(2_000):
        log.append(pass_entry(i, i, size=100))
    assert log.dropped > 0
    with pytest.raises(Gone):
        log.pass_bytes(0)
    assert decode(log.pass_bytes(log.dropped)).pass_id == log.dropped
    assert log.state()["pass_id"] == 1_999
    log.close()


def test_a_full_disk_costs_history_and_nothing_else(monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    log = Log(1, memory_bytes=1_000)
    for i in range(1_000):
        log.append(pass_entry(i, i, size=100))
    with pytest.raises(Gone):
        log.pass_bytes(0)
    assert log.state()["rows"] == [{"num_computed_tokens": 999}]
    assert log.dropped + len(log._recent) == 1_000


def test_state_is_the_fold_of_all_entries_and_the_callers_own():
    log, expected = Log(1), new_state(1)
    for i in range(600):
        data = pass_entry(i, i)
        log.append(data)
        fold(expected, decode(data))
    state = log.state()
    assert state == expected
    state["rows"][0]["num_computed_tokens"] = -1
    assert log.state() == expected


def test_waiting_ends_when_an_entry_comes():
    log = Log(1)
    assert not log.wait(-1, timeout=0.01)
    timer = threading.Timer(0.05, log.append, [pass_entry(0, 0)])
    timer.start()
    assert log.wait(-1, timeout=5)


def test_the_gate_counts_the_passes_it_lets_through():
    gate = Gate()
    assert gate.open
    gate.pause()
    assert not gate.open
    gate.step_passes(2)
    for _ in range(2):
        assert gate.open
        gate.enter()
    assert not gate.open
    gate.resume()
    assert gate.open
    with pytest.raises(ValueError, match="1 pass or more"):
        gate.step_passes(0)

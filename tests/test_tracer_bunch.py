"""Passes that are sent together are the entries that they would have been: in the log, its blocks and /metrics."""

import functools
import time

import pytest
from helpers.threads import one_thread
from helpers.tiny_engine import ask, tiny
from hypothesis import given
from hypothesis import strategies as st
from test_trace_delay import spelled_out

from engine.core import EngineCore
from tracer.bunch import Bunch, num_entries, pack
from tracer.fold import fold, new_state
from tracer.log import Gone, Log
from tracer.schema import PassRecord, decode, decode_changes, encode
from tracer.trace_format import BLOCK_PASSES
from webui.metrics import Metrics

ROWS = 4


@functools.cache
def run(most_unsent: int = 32) -> list[bytes]:
    """What an engine sends of three requests that come and go."""
    sent: list[bytes] = []
    with one_thread():
        core = EngineCore(tiny(check=False, max_num_seqs=ROWS), sent.append)
        assert core.trace is not None
        core.trace.delay_s = 60.0
        for req_id, max_tokens in (("A", 150), ("B", 40)):
            core.add_request(ask(req_id, [5, 6, 7], max_tokens))
        while core.scheduler.has_requests():
            core.step()
            if len(core.trace._unsent) >= most_unsent:
                core.trace.flush()
            if core.trace.num_passes == 20:
                core.add_request(ask("C", [8] * 30, 60))
        core.trace.flush()
    return sent


def logged(messages: list[bytes], **sizes: int) -> Log:
    log = Log(ROWS, **sizes)
    for message in messages:
        log.append(message)
    return log


def passes_of(log: Log) -> list[int]:
    """The numbers of all passes in the blocks that the run is cut into."""
    return [number for span in log.spans() for number in range(span.first_pass, span.next_pass)]


def test_an_engine_sends_most_passes_together_and_they_are_shorter() -> None:
    messages = run()
    assert max(map(num_entries, messages)) == 32
    assert sum(map(len, messages)) < sum(map(len, spelled_out(messages))) / 2


def test_a_bunch_folds_into_what_its_entries_fold_into() -> None:
    state, each = new_state(ROWS), new_state(ROWS)
    for message in run():
        if num_entries(message) == 1:
            fold(state, decode(message))
        else:
            fold(state, Bunch(message).merged())
        for entry in spelled_out([message]):
            fold(each, decode(entry))
        assert state == each


def test_a_log_of_bunches_is_that_of_their_entries() -> None:
    together, apart = logged(run()), logged(spelled_out(run()))
    assert together.state() == apart.state()
    assert together.newest()[2].all() == apart.newest()[2].all()
    last = together.last_seq
    assert last == apart.last_seq
    assert together.entries(0, last) == apart.entries(0, last)
    assert together.entries(17, 31) == apart.entries(17, 31)
    assert [together.pass_bytes(number) for number in range(100)] == [apart.pass_bytes(number) for number in range(100)]
    assert passes_of(together) == passes_of(apart)
    assert max(span.num_passes for span in together.spans()) <= BLOCK_PASSES


def test_the_parts_of_a_log_are_its_bunches_where_the_range_has_their_beginning() -> None:
    log = logged(run())
    parts = log.parts(0, log.last_seq)
    assert any(isinstance(part, Bunch) for part in parts)
    assert sum(part.count if isinstance(part, Bunch) else 1 for part in parts) == log.last_seq + 1
    bunch = next(part for part in parts if isinstance(part, Bunch))
    inside = bunch.first_seq + 1
    assert log.parts(inside, inside + 1) == log.entries(inside, inside + 1)


def test_bunches_go_to_disk_and_are_forgotten_whole() -> None:
    entries = spelled_out(run(3))
    kept, log = logged(run(3), memory_bytes=1_000), logged(run(3), memory_bytes=1_000, spill_bytes=40_000)
    assert kept.entries(0, kept.last_seq) == entries
    assert 0 < log.dropped < log.last_seq
    assert log.entries(log.dropped, log.last_seq) == entries[log.dropped :]
    with pytest.raises(Gone):
        log.entries(log.dropped - 1, log.dropped)
    for each in (kept, log):
        each.close()


def test_a_lost_bunch_is_noticed() -> None:
    first = next(number for number, message in enumerate(run()) if num_entries(message) > 1)
    with pytest.raises(ValueError, match="an entry was lost"):
        logged(run()[:first] + run()[first + 1 :]).state()


def test_metrics_count_a_bunch_as_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # when the counters were made
    together, apart = (Metrics(logged(each), "tiny").render() for each in (run(), spelled_out(run())))
    sums = [line for line in together.splitlines() if b"_sum" in line]
    others = [line for line in apart.splitlines() if b"_sum" in line]
    assert [line.split(b" ")[0] for line in sums] == [line.split(b" ")[0] for line in others]
    assert [float(line.split(b" ")[1]) for line in sums] == pytest.approx(
        [float(line.split(b" ")[1]) for line in others]
    )
    assert sorted(set(together.splitlines()) - set(sums)) == sorted(set(apart.splitlines()) - set(others))


@given(cuts=st.sets(st.integers(1, 20)))
def test_passes_are_the_same_however_they_are_bunched(cuts: set[int]) -> None:
    with one_thread():
        core = EngineCore(tiny(check=False, max_num_seqs=ROWS), lambda data: None)
        assert core.trace is not None
        core.trace.delay_s = 60.0
        core.trace.flush = lambda: None  # type: ignore[method-assign]
        for req_id in "AB":
            core.add_request(ask(req_id, [5, 6, 7], 22))
        for _ in range(21):
            core.step()
        ended = core.trace._unsent
    ends = [*sorted(cuts), len(ended)]
    messages = [message for start, end in zip([0, *ends], ends, strict=False) for message in pack(ended[start:end])]
    expected = [encode(each.record()) for each in ended]
    assert spelled_out(messages) == expected
    assert all(isinstance(decode_changes(entry), PassRecord) for entry in expected)

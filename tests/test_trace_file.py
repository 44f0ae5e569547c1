"""The file of a recorded run gives back exactly the log, its states and its answers, and stays small."""

import copy
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from helpers.recorded import MAX_NUM_SEQS, decoded, header_of, run, write

from batchscope import LLM, SamplingParams
from batchscope.recorded import check
from tracer.explain import explain
from tracer.fold import fold, new_state
from tracer.lifetimes import Lifetimes
from tracer.log import Gone, Log
from tracer.planes import join, pack_planes, take
from tracer.schema import EventRecord, PassRecord, PhaseRecord, encode
from tracer.trace_format import BLOCK_BYTES, BLOCK_PASSES, TraceError
from tracer.trace_reader import TraceReader


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    opened = TraceReader(write(tmp_path_factory.mktemp("trace") / "run.bscope"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def log():
    """The log that was recorded."""
    log = Log(MAX_NUM_SEQS)
    for data in run()[0]:
        log.append(data)
    return log


def test_entries_and_passes_are_byte_for_byte_those_of_the_log(reader, log):
    assert reader.complete
    assert reader.damage is None
    assert reader.last_seq == log.last_seq
    assert reader.entries(0, reader.last_seq) == log.entries(0, log.last_seq)
    assert reader.entries(60, 140) == log.entries(60, 140)
    assert reader.entries(log.last_seq - 1, log.last_seq + 9) == log.entries(log.last_seq - 1, log.last_seq)
    for pass_id in range(reader.num_passes):
        assert reader.pass_bytes(pass_id) == log.pass_bytes(pass_id)
    for missing in (-1, reader.num_passes):
        with pytest.raises(KeyError):
            reader.pass_bytes(missing)


def test_the_run_has_what_makes_states_hard(log):
    entries = decoded(log.entries(0, log.last_seq))
    changes = [c[0] for e in entries if isinstance(e, PassRecord) for p in e.phases for c in p.changes]
    assert {"set", "put", "clear", "move"} <= set(changes)
    facts = [e.phases[0].facts for e in entries if isinstance(e, PassRecord)]
    assert any(each["preempted_req_ids"] for each in facts)
    assert any(e.facts.get("event") == "aborted" for e in entries if isinstance(e, EventRecord))


def test_each_block_begins_with_the_state_that_the_entries_before_it_give(reader):
    state, firsts = new_state(MAX_NUM_SEQS), [entry.span.first_seq for entry in reader.index]
    for entry in decoded(run()[0]):
        if entry.seq in firsts:
            keyframe = reader.state_before(firsts.index(entry.seq))
            assert keyframe == state
            assert list(keyframe["requests"]) == list(state["requests"])
        fold(state, entry)
    assert reader.state() == state
    assert check(reader) == reader.num_passes


def test_a_state_is_the_callers_own(reader):
    reader.state()["rows"].clear()
    before = reader.state_before(1)
    fold_all(before, reader.block(1).entries)
    assert reader.state_before(2) == before
    assert reader.state()["rows"]


def fold_all(state, entries):
    for entry in decoded(entries):
        fold(state, entry)


def test_blocks_hold_64_passes_at_most_and_follow_each_other(reader):
    assert max(entry.span.num_passes for entry in reader.index) == BLOCK_PASSES
    for before, after in zip(reader.index, reader.index[1:], strict=False):
        assert after.offset == before.offset + before.length
        assert (after.span.first_seq, after.span.first_pass) == (before.span.next_seq, before.span.next_pass)


def test_why_is_answered_as_by_the_log_also_without_an_index(reader, log, tmp_path):
    unended = write(tmp_path / "unended.bscope")
    unended.write_bytes(unended.read_bytes()[:-1])
    scanned = TraceReader(unended)
    assert not scanned.complete
    for each in (reader, scanned):
        for req_id in ("0", "17", "extra-30", "extra-39", "nobody"):
            for pass_id in range(0, reader.num_passes + 9, 9):
                assert explain(each, req_id, pass_id) == explain(log, req_id, pass_id)


def test_blocks_are_read_while_another_thread_reads_the_lifetimes(tmp_path, monkeypatch):
    """Without an index that takes a while: the page's next block must not wait for somebody's why."""
    cut = write(tmp_path / "cut.bscope")
    cut.write_bytes(cut.read_bytes()[:-1])
    reader = TraceReader(cut)
    reading, go_on = threading.Event(), threading.Event()

    def observe(self, entry):
        reading.set()
        assert go_on.wait(30)

    monkeypatch.setattr(Lifetimes, "observe", observe)
    asking = threading.Thread(target=reader.newest)
    asking.start()
    try:
        assert reading.wait(30)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(reader.section, 1).result(timeout=10)
    finally:
        go_on.set()
        asking.join()


def test_a_block_ends_early_where_its_entries_are_long(tmp_path):
    facts = {"positions": list(range(BLOCK_BYTES // 8))}
    entries = [encode(PassRecord(i, "pass", i, 0.0, 0, [PhaseRecord("schedule", 0, 1, facts)])) for i in range(9)]
    reader = TraceReader(write(tmp_path / "long.bscope", entries))
    assert len(reader.index) > 2
    assert reader.entries(0, 8) == entries


def test_what_no_log_of_ours_holds_is_kept_too(tmp_path):
    odd = [
        msgspec.msgpack.encode({"seq": 0, "kind": "gate", "time": 0.0, "facts": {"7": 0, "b": 0.0, "c": False}}),
        msgspec.msgpack.encode({"seq": 1, "kind": "gate", "time": 0.0, "facts": {"n": [1 << 40, -1, 0], "d": {0: 1}}}),
        msgspec.msgpack.encode({"seq": 2, "kind": "gate", "time": 0.0, "facts": {"big": [2**31, -(2**31), 2**63]}}),
    ]
    assert TraceReader(write(tmp_path / "odd.bscope", odd)).entries(0, 2) == odd


def test_numbers_are_taken_out_and_put_back():
    values = [
        0,
        1,
        -1,
        2**31 - 1,
        -(2**31),
        2**31,
        2**63,
        0.0,
        True,
        False,
        None,
        "0",
        b"\0",
        [],
        {},
        [[0, [3]], {"a": 0}],
    ]
    numbers = []
    taken = copy.deepcopy(values)
    take(taken, numbers)
    joined = join(pack_planes(taken, numbers))
    assert joined == values
    assert list(map(type, joined)) == list(map(type, values))


def test_an_id_that_comes_again_after_it_finished_is_told_apart(tmp_path):
    def event(seq, partial):
        return encode(EventRecord(seq, "request", 0.0, {}, [("a", partial)]))

    def empty_pass(seq, pass_id):
        return encode(PassRecord(seq, "pass", pass_id, 0.0, 0, [PhaseRecord("schedule", 0, 1)]))

    entries, state = [], new_state(1)
    for again in range(3):
        entries.append(event(len(entries), {"prompt_token_ids": [again], "arrival_pass": again * 70}))
        entries += [empty_pass(len(entries) + i, again * 70 + i) for i in range(70)]
        entries.append(event(len(entries), {"finish_reason": "stop"}))
        entries.append(event(len(entries), {"block_ids": [again]}))
    reader = TraceReader(write(tmp_path / "again.bscope", entries, header_of(1)))
    fold_all(state, entries)
    assert check(reader) == 210
    assert reader.state() == state
    assert [life.end_pass for life in reader.newest()[2].of("a")] == [69, 139, 209]


def test_a_file_that_exists_is_not_written_over(tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(TraceError, match="exists already"):
        write(path)
    assert path.read_text() == "mine"


def test_a_trace_that_begins_later_says_that_the_rest_is_gone(tmp_path):
    entries = [encode(EventRecord(seq, "gate", 0.0, {"paused": False, "permits": 0})) for seq in range(5, 9)]
    reader = TraceReader(write(tmp_path / "late.bscope", entries))
    assert reader.entries(5, 8) == entries
    with pytest.raises(Gone):
        reader.entries(4, 8)


def test_10000_passes_at_32_rows_stay_under_15_megabytes(tmp_path):
    """Random tokens of a vocabulary of 49,152: nothing compresses worse. Measured on 300 passes and more."""
    llm = LLM("tiny-49152", max_num_seqs=32, max_num_batched_tokens=512)
    random.seed(2)
    try:
        prompts = [[random.randrange(49152) for _ in range(random.randrange(5, 120))] for _ in range(96)]
        params = [
            SamplingParams(max_tokens=random.randrange(60, 180), temperature=1.0, ignore_eos=True) for _ in prompts
        ]
        llm.generate(prompts, params, use_tqdm=False)
        entries = llm.log.entries(0, llm.log.last_seq)
    finally:
        llm.shutdown()
    cut = next(e.seq for e in reversed(decoded(entries)) if isinstance(e, PassRecord) and rows_of(e) == 32)
    reader = TraceReader(write(tmp_path / "run.bscope", entries[: cut + 1], header_of(32)))
    assert reader.num_passes > 200
    assert reader.size / reader.num_passes * 10_000 < 13e6


def rows_of(record):
    return len(record.phases[0].facts["num_scheduled_tokens"])

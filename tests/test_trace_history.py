"""A run that goes on can be read block by block, as a file of it could be, and says what it has forgotten."""

import json

import msgspec
import pytest
from helpers.recorded import MAX_NUM_SEQS, decoded, run, write
from helpers.web import running_site, until
from hypothesis import given
from hypothesis import strategies as st

from tracer import history
from tracer.block_states import BlockStates, unpack_blocks
from tracer.fold import fold, new_state
from tracer.log import Gone, Log
from tracer.schema import EventRecord, PassRecord, PhaseRecord, encode
from tracer.trace_format import BLOCK_PASSES, BlockEntry
from tracer.trace_reader import TraceReader, read_block
from webui.app import create_app
from webui.replay import ReplayLLM


def filled(entries, **sizes):
    log = Log(MAX_NUM_SEQS, **sizes)
    for data in entries:
        log.append(data)
    return log


def long_run():
    """1,000 passes that do next to nothing."""
    phases = [PhaseRecord("forward", 0, 1, {"x": "." * 100}, [["set", "num_computed_tokens", [0], [7]]])]
    return [encode(PassRecord(i, "pass", i, 0.0, 0, phases)) for i in range(1_000)]


def block_of(log, number):
    section = log.section(number)
    return read_block(section, BlockEntry(0, len(section), log.spans()[number]))


def test_a_block_that_is_cut_grows_no_more():
    entries = long_run()
    log = filled(entries[:10])
    assert log.num_closed_blocks == 0
    log.cut()
    log.cut()  # nothing is open: no empty block
    edges, before = log.edges(0), block_of(log, 0)
    for data in entries[10:30]:
        log.append(data)
    assert log.edges(0) == edges
    assert [(span.first_pass, span.num_passes) for span in log.spans()] == [(0, 10), (10, 20)]
    assert log.num_closed_blocks == 1
    assert block_of(log, 0) == before
    assert block_of(log, 1).entries == entries[10:30]


BLOCKS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=20)


@given(st.lists(BLOCKS, max_size=8))
def test_the_kv_blocks_of_a_keyframe_are_those_of_the_state(assigned):
    states, state = BlockStates(), new_state(0)
    for seq, blocks in enumerate(assigned):
        states.assign(blocks)
        fold(state, EventRecord(seq, "x", 0.0, {}, blocks=blocks))
    found = unpack_blocks(states.pack())
    assert {str(block_id): values for block_id, *values in found} == state["blocks"]
    assert found == sorted(found)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return TraceReader(write(tmp_path_factory.mktemp("history") / "run.bscope"))


@pytest.fixture
def served(reader):
    """A function that serves a log by the routes of the page."""

    def serve(log):
        llm = ReplayLLM(reader)
        llm.log = log
        return create_app(llm)[0].test_client()

    return serve


def test_its_blocks_hold_what_a_recording_of_it_holds(reader):
    log = filled(run()[0])
    assert log.spans() == reader.spans()
    assert len(log.spans()) > 2
    for number in range(len(log.spans())):
        assert block_of(log, number) == reader.block(number)
    with pytest.raises(IndexError):
        log.section(len(log.spans()))


def test_the_last_block_grows_with_the_run(reader):
    entries = run()[0]
    log = filled(entries[:10])
    keyframe = block_of(log, 0).keyframe
    for count in (11, 30):
        for data in entries[log.last_seq + 1 : count]:
            log.append(data)
        assert block_of(log, 0) == reader.block(0)._replace(entries=entries[:count], ended=block_of(log, 0).ended)
        assert block_of(log, 0).keyframe == keyframe


def test_a_keyframe_and_the_entries_after_it_give_the_state_of_the_log(reader):
    log = filled(run()[0])
    state = reader.state_before(len(log.spans()) - 1)
    for entry in decoded(block_of(log, len(log.spans()) - 1).entries):
        fold(state, entry)
    assert state == log.state()


def test_nothing_is_made_until_somebody_looks_and_then_a_few_blocks_are_kept(monkeypatch):
    monkeypatch.setattr(history, "CACHED_SECTIONS", 2)
    log = filled(run()[0])
    assert not log._history._made
    for number in range(len(log.spans())):
        log.section(number)
    assert len(log._history._made) == 2
    made = log.section(0)
    assert log.section(0) is made


def test_what_the_log_forgot_is_said_to_be_forgotten_and_the_rest_is_there(served):
    log = filled(long_run(), memory_bytes=1_000, spill_bytes=80_000)
    oldest = log.oldest_block
    assert 0 < log.dropped <= log.spans()[oldest].first_seq < log.last_seq
    with pytest.raises(Gone):
        log.section(0)
    block_of(log, oldest)
    client = served(log)
    index = client.get("/api/trace/index", base_url="http://127.0.0.1").json
    assert (index["oldest_block"], index["passes"]) == (oldest, log.state()["pass_id"] + 1)
    assert index["blocks"] == [list(span) for span in log.spans()]
    reply = client.get("/api/trace/blocks/0", base_url="http://127.0.0.1")
    assert reply.status_code == 410
    assert "forgotten" in reply.json["error"]["message"]
    assert "--record" in reply.json["error"]["message"]
    log.close()


def test_the_edges_of_blocks_are_bounded_too(monkeypatch):
    monkeypatch.setattr(history.Cuts.__init__, "__defaults__", (1_000,))
    log = filled(long_run())
    assert not log.dropped
    assert 0 < log.oldest_block < len(log.spans())
    with pytest.raises(Gone):
        log.section(log.oldest_block - 1)
    first = log.spans()[log.oldest_block].first_seq
    assert block_of(log, log.oldest_block).entries == long_run()[first : first + BLOCK_PASSES]


def test_a_server_gives_every_pass_of_a_run_that_is_not_recorded():
    with running_site() as site:
        site.complete("Once upon a time", max_tokens=80, ignore_eos=True)
        until(lambda: site.state()["pass_id"] == 80)  # which tells the runner that the request has ended
        index = site.get("/api/trace/index").json()
        assert index["passes"] == 81 > BLOCK_PASSES
        passes = []
        for number, span in enumerate(index["blocks"]):
            reply = site.get(f"/api/trace/blocks/{number}")
            block = read_block(reply.content, BlockEntry(0, len(reply.content), history.Span(*span)))
            passes += [entry for entry in decoded(block.entries) if isinstance(entry, PassRecord)]
            again = site.get(f"/api/trace/blocks/{number}", headers={"If-None-Match": reply.headers["ETag"]})
            assert again.status_code == 304
        assert [record.pass_id for record in passes] == list(range(index["passes"]))
        assert json.loads(msgspec.json.encode(passes[-1])) == site.get(f"/api/passes/{index['passes'] - 1}").json()
        assert site.get("/api/trace/blocks/99").status_code == 404

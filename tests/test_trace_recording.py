"""A recording follows the log in its own thread, and where the file takes no more, it says so and the log goes on."""

import errno
import tempfile

import pytest
from helpers.page import within
from helpers.recorded import MAX_NUM_SEQS, run

from tracer.log import Log
from tracer.recording import Recording
from tracer.trace_reader import TraceReader
from tracer.trace_writer import TraceWriter


@pytest.fixture
def log():
    return Log(MAX_NUM_SEQS)


@pytest.fixture
def writer(tmp_path):
    writer = TraceWriter(tmp_path / "run.bscope")
    writer.begin(run()[1], run()[2])
    return writer


def test_a_recording_has_every_entry_once_it_is_stopped(log, writer):
    entries = run()[0]
    for data in entries[:100]:
        log.append(data)
    recording = Recording(log, writer)
    recording.start()
    for data in entries[100:]:
        log.append(data)
    recording.stop()
    reader = TraceReader(writer.path)
    assert reader.complete
    assert reader.entries(0, reader.last_seq) == entries
    assert recording.told().startswith(f"Recorded {reader.num_passes} passes")


def test_a_full_temporary_folder_does_not_stop_it(log, writer, monkeypatch):
    def full(**kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    recording = Recording(log, writer)
    recording.start()
    for data in run()[0]:
        log.append(data)
    recording.stop()
    assert recording.stopped is None
    reader = TraceReader(writer.path)
    assert reader.entries(0, reader.last_seq) == run()[0]


def test_what_waits_is_written_when_nothing_comes(log, writer):
    recording = Recording(log, writer)
    recording.start()
    for data in run()[0][:5]:
        log.append(data)
    within(lambda: writer.index)
    assert TraceReader(writer.path).entries(0, 9) == run()[0][:5]
    recording.stop()


def test_a_full_disk_stops_the_recording_and_not_the_log(log, writer, monkeypatch, caplog):
    write, left = writer._write, [2]

    def until_full(data):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        write(data)

    monkeypatch.setattr(writer, "_write", until_full)
    recording = Recording(log, writer)
    recording.start()
    entries = run()[0]
    for data in entries:
        log.append(data)
    within(lambda: recording.stopped)
    assert log.last_seq == len(entries) - 1
    recording.stop()
    reader = TraceReader(writer.path)
    assert 0 < reader.last_seq < log.last_seq
    assert reader.entries(0, log.last_seq) == entries[: reader.last_seq + 1]
    assert not reader.complete
    status = recording.status()
    assert "No space left on device" in status["stopped"]
    assert status["missed"] == log.last_seq - reader.last_seq
    assert status["passes"] == reader.num_passes
    assert "the engine goes on" in caplog.text
    assert str(status["missed"]) in recording.told()

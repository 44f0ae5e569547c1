"""Frames: nothing lost for who keeps up, nothing piled up for who doesn't."""

import queue
import time

import pytest

from tracer.log import Log
from tracer.schema import EventRecord, encode
from webui.broadcaster import FRAME_BYTES, IN_FLIGHT, MAX_BEHIND, PERIOD, SENDS, Broadcaster


class Room:
    """A log, a broadcaster and what it has sent to whom."""

    def __init__(self, **log_limits):
        self.log = Log(4, **log_limits)
        self.sent = []
        self.emits = 0
        self.broadcaster = Broadcaster(self.log, self._emit)

    def _emit(self, event, data, to):
        self.emits += 1
        self.sent += [(sid, event, data) for sid in ([to] if isinstance(to, str) else to)]

    def happen(self, count=1, size=10):
        for _ in range(count):
            self.log.append(encode(EventRecord(self.log.last_seq + 1, "gate", 0.0, {"filler": "x" * size})))

    def tick(self):
        """Tick and return what was sent since the last time."""
        self.broadcaster.tick()
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def room():
    return Room()


def test_a_viewer_who_keeps_up_gets_every_entry_as_it_stands_in_the_log(room):
    room.broadcaster.add("a", -1)
    received = b""
    for count in (1, 3, 0, 7):
        room.happen(count)
        for _, event, (span, data) in room.tick():
            assert event == "frame"
            received += data
            room.broadcaster.acknowledge("a", span["to"])
    assert received == b"".join(room.log.entries(0, 10))


def test_a_viewer_without_credit_is_skipped_and_then_gets_one_merged_frame(room):
    room.broadcaster.add("a", -1)
    for _ in range(IN_FLIGHT):
        room.happen()
        assert len(room.tick()) == 1
    for _ in range(5):
        room.happen()
        assert room.tick() == []
    assert room.broadcaster.viewers()["a"].skipped == 5
    room.broadcaster.acknowledge("a", 0)
    [(_, _, (span, data))] = room.tick()
    assert span == {"engine": "main", "from": 2, "to": 6}
    assert data == b"".join(room.log.entries(2, 6))


def test_a_viewer_who_never_acknowledges_costs_two_frames_and_one_resync_however_much_happens(room):
    room.broadcaster.add("a", -1)
    sent = []
    for _ in range(100):
        room.happen(100)
        sent += room.tick()
    assert [event for _, event, _ in sent] == ["frame"] * IN_FLIGHT + ["resync"]


def test_after_a_resync_frames_go_on_from_the_seq_that_it_named(room):
    room.happen(MAX_BEHIND + 100)
    room.broadcaster.add("a", -1)
    [(_, event, data)] = room.tick()
    assert (event, data) == ("resync", {"engine": "main", "seq": MAX_BEHIND + 99})
    room.happen(2)
    [(_, event, (span, _))] = room.tick()
    assert (event, span) == ("frame", {"engine": "main", "from": MAX_BEHIND + 100, "to": MAX_BEHIND + 101})


def test_a_viewer_of_another_engines_log_takes_the_state(room):
    room.happen(3)
    room.broadcaster.add("a", 1000)
    assert room.tick() == [("a", "resync", {"engine": "main", "seq": 2})]


def test_frames_stay_below_256_kb_and_an_entry_that_fits_in_none_makes_a_resync(room):
    room.broadcaster.add("a", -1)
    room.happen(10, size=60_000)
    sizes = []
    while sent := room.tick():
        [(_, _, (span, data))] = sent
        sizes.append(len(data))
        room.broadcaster.acknowledge("a", span["to"])
    assert max(sizes) <= FRAME_BYTES < 1 << 18
    assert sum(sizes) == sum(map(len, room.log.entries(0, 9)))
    room.happen(size=FRAME_BYTES)
    assert room.tick() == [("a", "resync", {"engine": "main", "seq": 10})]


def test_forgotten_entries_make_a_resync():
    room = Room(memory_bytes=1, spill_bytes=1)
    room.broadcaster.add("a", -1)
    room.happen(400)
    assert room.tick() == [("a", "resync", {"engine": "main", "seq": 399})]


def test_fifty_viewers_of_the_same_log_share_one_frame_that_is_packed_once(room):
    for i in range(50):
        room.broadcaster.add(str(i), -1)
    room.happen(4)
    frames = [data for _, _, (_, data) in room.tick()]
    assert len(frames) == 50
    assert len({id(data) for data in frames}) == 1
    assert room.emits == 1


def test_many_viewers_get_fewer_frames_a_second_so_that_they_cost_no_more_together(room):
    assert room.broadcaster.period == PERIOD
    for i in range(50):
        room.broadcaster.add(str(i), -1)
    assert 50 / room.broadcaster.period == SENDS
    assert room.broadcaster.period <= 0.2


def test_an_announcement_reaches_who_is_there_and_who_comes_later_once(room):
    room.broadcaster.add("a", -1)
    room.broadcaster.announce("engines", [1])
    assert room.tick() == [("a", "engines", [1])]
    room.broadcaster.add("b", -1)
    assert room.tick() == [("b", "engines", [1])]
    assert room.tick() == []


def test_who_does_not_read_is_told_the_newest_announcement_alone_once_there_is_credit(room):
    room.broadcaster.add("a", -1)
    for _ in range(IN_FLIGHT):
        room.happen()
        room.tick()
    for number in range(100):
        room.broadcaster.announce("engines", [number])
        assert room.tick() == []
    room.broadcaster.acknowledge("a", 0)
    assert room.tick() == [("a", "engines", [99])]


def test_who_feeds_the_log_is_told_whether_anybody_looks():
    told = queue.SimpleQueue()

    def watched(any_viewer):
        told.put(any_viewer)
        raise RuntimeError("the engine is busy")

    broadcaster = Broadcaster(Log(1), lambda *sent, to: None, watched=watched)
    broadcaster.start()
    try:
        assert told.get(timeout=5) is False
        broadcaster.add("a", -1)
        assert told.get(timeout=5) is True
        broadcaster.add("b", -1)
        broadcaster.remove("a")
        with pytest.raises(queue.Empty):
            told.get(timeout=0.3)
        broadcaster.remove("b")
        assert told.get(timeout=5) is False
    finally:
        broadcaster.stop()
        broadcaster.join()


def test_the_thread_sends_and_survives_an_error(room):
    fail = [True]

    def emit(event, data, to):
        if fail.pop() if fail else False:
            raise RuntimeError("a transport failed")
        room.sent.append(event)

    room.broadcaster._emit = emit
    room.broadcaster.start()
    room.broadcaster.add("a", -1)
    room.happen()
    deadline = time.monotonic() + 5
    while not room.sent and time.monotonic() < deadline:
        room.happen()
        time.sleep(0.05)
    room.broadcaster.stop()
    room.broadcaster.join(5)
    assert room.sent
    assert not room.broadcaster.is_alive()

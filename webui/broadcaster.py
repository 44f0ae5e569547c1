"""Sends the log to every viewer at the pace that each can take."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from tracer.log import Gone
from tracer.log_view import LogView

PERIOD = 0.04  # seconds between frames
FRAME_BYTES = 256_000  # larger messages are cut in two by some sockets
IN_FLIGHT = 2  # frames that a viewer may leave unacknowledged
MAX_BEHIND = 500  # entries; a viewer further behind takes the state over HTTP instead

Emit = Callable[..., None]  # emit(event, data, to=sid); never blocks


class Viewer:
    """What one browser has been sent and has acknowledged."""

    def __init__(self, seq: int) -> None:
        self.sent = seq
        self.in_flight: deque[int] = deque()  # the last seq of each frame that has not been acknowledged
        self.resyncing = False  # told to take the state, and has acknowledged nothing since
        self.skipped = 0  # frames not sent for lack of credit

    def acknowledge(self, seq: int) -> None:
        while self.in_flight and self.in_flight[0] <= seq:
            self.in_flight.popleft()
        self.sent = max(self.sent, seq)
        self.resyncing = False


class Broadcaster(threading.Thread):
    """One thread for all viewers. A slow one is skipped, then gets a merged frame, or is told to take the state."""

    def __init__(self, log: LogView, emit: Emit) -> None:
        super().__init__(name="broadcaster", daemon=True)
        self._log = log
        self._emit = emit
        self._viewers: dict[str, Viewer] = {}
        self._watched = threading.Event()
        self._stopping = threading.Event()

    def add(self, sid: str, seq: int) -> None:
        """Take a viewer in who knows the log up to `seq`; a seq of another engine's log makes it take the state."""
        self._viewers[sid] = Viewer(seq)
        self._watched.set()

    def remove(self, sid: str) -> None:
        self._viewers.pop(sid, None)

    def acknowledge(self, sid: str, seq: int) -> None:
        """A viewer has applied the log up to `seq`."""
        if (viewer := self._viewers.get(sid)) and seq <= self._log.last_seq:
            viewer.acknowledge(seq)

    def viewers(self) -> dict[str, Viewer]:
        return dict(self._viewers)

    def run(self) -> None:
        while not self._stopping.wait(PERIOD):
            try:
                self.tick()
            except Exception:
                logging.getLogger(__name__).exception("a frame was not sent")
            self._watched.clear()
            if not self._viewers:
                self._watched.wait(timeout=1)

    def stop(self) -> None:
        self._stopping.set()
        self._watched.set()

    def tick(self) -> None:
        """Send each viewer what it lacks, as far as its credit goes. Frames are made once for all who need the same."""
        last = self._log.last_seq
        frames: dict[int, tuple[int, bytes] | None] = {}
        for sid, viewer in list(self._viewers.items()):
            if viewer.sent == last:
                continue
            if viewer.sent > last or last - viewer.sent > MAX_BEHIND:
                self._resync(sid, viewer, last)
            elif len(viewer.in_flight) >= IN_FLIGHT:
                viewer.skipped += 1
            else:
                first = viewer.sent + 1
                if first not in frames:
                    frames[first] = self._frame(first, last)
                self._send(sid, viewer, first, frames[first], last)

    def _send(self, sid: str, viewer: Viewer, first: int, frame: tuple[int, bytes] | None, last: int) -> None:
        if frame is None:
            return self._resync(sid, viewer, last)
        to_seq, data = frame
        viewer.sent = to_seq
        viewer.in_flight.append(to_seq)
        self._emit("frame", ({"from": first, "to": to_seq}, data), to=sid)

    def _resync(self, sid: str, viewer: Viewer, last: int) -> None:
        """Tell a viewer once to take the state over HTTP; frames after `last` follow when it has credit."""
        if viewer.resyncing:
            viewer.skipped += 1
            return
        viewer.resyncing = True
        viewer.sent = last
        self._emit("resync", {"seq": last}, to=sid)

    def _frame(self, first: int, last: int) -> tuple[int, bytes] | None:
        """Return (last seq in it, bytes), or None where the entries are forgotten or one is too large for a frame."""
        try:
            entries = self._log.entries(first, last)
        except Gone:
            return None
        kept, size = 0, 0
        while kept < len(entries) and size + len(entries[kept]) <= FRAME_BYTES:
            size += len(entries[kept])
            kept += 1
        return (first + kept - 1, b"".join(entries[:kept])) if kept else None

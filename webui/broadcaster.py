"""Sends the log to every viewer at the pace that each can take."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tracer.log import Gone
from tracer.log_view import LogView
from webui.page_facts import MAIN

PERIOD = 0.04  # seconds between frames
SENDS = 250  # frames a second to all viewers together: each, with its acknowledgement, takes 0.3 ms of a core
FRAME_BYTES = 256_000  # larger messages are cut in two by some sockets
IN_FLIGHT = 2  # frames that a viewer may leave unacknowledged
MAX_BEHIND = 500  # entries; a viewer further behind takes the state over HTTP instead

Emit = Callable[..., None]  # emit(event, data, to=sid or list of sids); never blocks


class Viewer:
    """What one browser has been sent and has acknowledged."""

    def __init__(self, seq: int) -> None:
        self.sent = seq
        self.in_flight: deque[int] = deque()  # the last seq of each frame that has not been acknowledged
        self.resyncing = False  # told to take the state, and has acknowledged nothing since
        self.skipped = 0  # frames not sent for lack of credit
        self.told: Any = None  # the last announcement sent

    @property
    def has_credit(self) -> bool:
        return len(self.in_flight) < IN_FLIGHT and not self.resyncing

    def acknowledge(self, seq: int) -> None:
        while self.in_flight and self.in_flight[0] <= seq:
            self.in_flight.popleft()
        self.sent = max(self.sent, seq)
        self.resyncing = False


class Broadcaster(threading.Thread):
    """One thread for all viewers. A slow one is skipped, then gets a merged frame, or is told to take the state."""

    def __init__(
        self, log: LogView, emit: Emit, engine_id: str = MAIN, watched: Callable[[bool], None] | None = None
    ) -> None:
        """`watched` is told, in the thread, whether there is any viewer: at the start, and when that changes."""
        super().__init__(name=f"broadcaster {engine_id}", daemon=True)
        self._log = log
        self._emit = emit
        self._engine_id = engine_id
        self._announcement: tuple[str, Any] | None = None
        self._skipped = 0  # of viewers who have gone
        self._viewers: dict[str, Viewer] = {}
        self._tell_watched = watched or (lambda any_viewer: None)
        self._told: bool | None = None
        self._watched = threading.Event()
        self._stopping = threading.Event()

    def add(self, sid: str, seq: int) -> None:
        """Take a viewer in who knows the log up to `seq`; a seq of another engine's log makes it take the state."""
        self._viewers[sid] = Viewer(seq)
        self._watched.set()

    def remove(self, sid: str) -> None:
        if viewer := self._viewers.pop(sid, None):
            self._skipped += viewer.skipped

    def acknowledge(self, sid: str, seq: int) -> None:
        """A viewer has applied the log up to `seq`."""
        if (viewer := self._viewers.get(sid)) and seq <= self._log.last_seq:
            viewer.acknowledge(seq)

    def announce(self, event: str, data: Any) -> None:
        """Have every viewer told, also those to come; who lacks credit is told the newest announcement later."""
        self._announcement = (event, data)

    @property
    def skipped(self) -> int:
        """How many frames viewers were not sent, as they did not keep up. They got merged ones, or took the state."""
        return self._skipped + sum(viewer.skipped for viewer in self.viewers().values())

    @property
    def period(self) -> float:
        """How many seconds are between two frames: with many viewers more, so that they cost no more than some."""
        return max(PERIOD, len(self._viewers) / SENDS)

    def viewers(self) -> dict[str, Viewer]:
        return dict(self._viewers)

    def run(self) -> None:
        while not self._stopping.wait(self.period):
            self._try(self._tell_whether_watched)
            self._try(self.tick)
            self._watched.clear()
            if not self._viewers:
                self._watched.wait(timeout=1)
        self._try(self.tick)  # the last words

    def stop(self) -> None:
        self._stopping.set()
        self._watched.set()

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            logging.getLogger(__name__).exception("a frame was not sent")

    def _tell_whether_watched(self) -> None:
        if (watched := bool(self._viewers)) is not self._told:
            self._told = watched
            self._tell_watched(watched)

    def tick(self) -> None:
        """Send each viewer what it lacks, as far as its credit goes. A frame is packed once for all who need the same.

        NOTE: nothing else may emit to a viewer: a frame is two messages, and none may come between them.
        """
        last = self._log.last_seq
        behind: dict[int, dict[str, Viewer]] = {}  # by the entry that they need first
        for sid, viewer in list(self._viewers.items()):
            if viewer.told is not self._announcement and viewer.has_credit:
                self._tell(sid, viewer)
            if viewer.sent == last:
                continue
            if viewer.sent > last or last - viewer.sent > MAX_BEHIND:
                self._resync(sid, viewer, last)
            elif len(viewer.in_flight) >= IN_FLIGHT:
                viewer.skipped += 1
            else:
                behind.setdefault(viewer.sent + 1, {})[sid] = viewer
        for first, viewers in behind.items():
            self._send(viewers, first, last)

    def _tell(self, sid: str, viewer: Viewer) -> None:
        viewer.told = self._announcement
        if viewer.told is not None:
            self._emit(*viewer.told, to=sid)

    def _send(self, viewers: dict[str, Viewer], first: int, last: int) -> None:
        if (frame := self._frame(first, last)) is None:
            for sid, viewer in viewers.items():
                self._resync(sid, viewer, last)
            return
        to_seq, data = frame
        for viewer in viewers.values():
            viewer.sent = to_seq
            viewer.in_flight.append(to_seq)
        self._emit("frame", ({"engine": self._engine_id, "from": first, "to": to_seq}, data), to=list(viewers))

    def _resync(self, sid: str, viewer: Viewer, last: int) -> None:
        """Tell a viewer once to take the state over HTTP; frames after `last` follow when it has credit."""
        if viewer.resyncing:
            viewer.skipped += 1
            return
        viewer.resyncing = True
        viewer.sent = last
        self._emit("resync", {"engine": self._engine_id, "seq": last}, to=sid)

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

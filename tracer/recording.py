"""Records a log to a file while it grows, in a thread of its own: no pass waits for it."""

import logging
import threading
from typing import Any

from tracer.log import Gone, Log
from tracer.trace_format import TraceError
from tracer.trace_writer import TraceWriter

STEP = 64  # entries taken from the log at a time
EVERY_S = 1.0  # so often: waking up for each pass would cost the engine more; after so long without one, all is written

logger = logging.getLogger(__name__)


class Recording(threading.Thread):
    """Follows a log into a TraceWriter that has begun. When the file takes no more, it stops and the engine goes on."""

    def __init__(self, log: Log, writer: TraceWriter) -> None:
        super().__init__(name="recording", daemon=True)
        self.writer = writer
        self.stopped: str | None = None  # why nothing is recorded any more
        self._log = log
        self._seq = -1  # of the last entry taken
        self._ending = threading.Event()

    def status(self) -> dict[str, Any]:
        """Return the file, its passes and bytes so far, why recording stopped and how many entries it lacks."""
        return {
            "file": self.writer.path.name,
            "passes": self._recorded_passes() if self.stopped else self.writer.num_passes,
            "bytes": self.writer.size,
            "blocks": len(self.writer.index),
            "stopped": self.stopped,
            "missed": self._log.last_seq - self._seq if self.stopped else 0,
        }

    def told(self) -> str:
        """Return one line about what was recorded."""
        if self.stopped:
            return f"Recording had stopped: {self.stopped}; {self.status()['missed']} entries are missing."
        return f"Recorded {self.writer.num_passes} passes in {self.writer.path} ({self.writer.size / 1e6:.1f} MB)."

    def run(self) -> None:
        try:
            while not self._ending.wait(EVERY_S):
                if not self._take():
                    self.writer.flush()
            self._take()
            self.writer.close()
        except (OSError, TraceError, Gone, ValueError, TypeError) as error:
            self._give_up(error)

    def stop(self) -> None:
        """Write what the log has, and close the file."""
        self._ending.set()
        self.join()

    def _take(self) -> int:
        """Take what the log has, and return how many entries it was."""
        before = self._seq
        while entries := self._log.entries(self._seq + 1, self._seq + STEP):
            for data in entries:
                self.writer.append(data)
                self._seq += 1
        return self._seq - before

    def _give_up(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        blocks = self.writer.index
        self._seq = blocks[-1].span.next_seq - 1 if blocks else -1
        self.stopped = (
            f"{self.writer.path.name} takes no more after pass {blocks[-1].span.next_pass - 1 if blocks else 0}: {why}"
        )
        logger.error("recording has stopped, and the engine goes on: %s", self.stopped)
        self.writer.abandon()

    def _recorded_passes(self) -> int:
        return self.writer.index[-1].span.next_pass if self.writer.index else 0

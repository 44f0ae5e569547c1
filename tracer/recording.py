"""Records a log to a file while it grows, in a thread of its own: no pass waits for it."""

import logging
import threading
from typing import Any

from tracer.log import Gone, Log
from tracer.trace_format import TraceError
from tracer.trace_writer import TraceWriter

EVERY_S = 0.25  # so often the log is looked at: waking up for each pass would cost the engine more
QUIET = 4  # after so many looks without anything new, all is written

logger = logging.getLogger(__name__)


class Recording(threading.Thread):
    """Writes the blocks that the log cuts its run into to a TraceWriter that has begun.

    When the file takes no more, it stops and the engine goes on.
    """

    def __init__(self, log: Log, writer: TraceWriter) -> None:
        super().__init__(name="recording", daemon=True)
        self.writer = writer
        self.stopped: str | None = None  # why nothing is recorded any more
        self._log = log
        self._seq = -1  # of the last entry written
        self._ending = threading.Event()

    def status(self) -> dict[str, Any]:
        """Return the file, the passes, bytes and blocks in it, why recording stopped and how many entries it lacks."""
        return {
            "file": self.writer.path.name,
            "passes": self.writer.num_passes,
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
        last, quiet = -1, 0
        try:
            while not self._ending.wait(EVERY_S):
                last, before = self._log.last_seq, last
                quiet = quiet + 1 if last == before else 0
                if quiet == QUIET:
                    self._log.cut()
                self._write()
            lifetimes = self._log.cut()
            self._write()
            self.writer.close(lifetimes)
        except (OSError, TraceError, Gone, ValueError, TypeError) as error:
            self._give_up(error)

    def stop(self) -> None:
        """Write what the log has, to which nothing is added any more, and close the file."""
        self._ending.set()
        self.join()

    def _write(self) -> None:
        """Write the blocks that grow no more."""
        for number in range(len(self.writer.index), self._log.num_closed_blocks):
            span, edges = self._log.edges(number)
            self.writer.write(span, edges, self._log.entries(span.first_seq, span.next_seq - 1))
            self._seq = span.next_seq - 1

    def _give_up(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.stopped = f"{self.writer.path.name} takes no more after pass {max(self.writer.num_passes - 1, 0)}: {why}"
        logger.error("recording has stopped, and the engine goes on: %s", self.stopped)
        self.writer.abandon()

"""When each request id came and went: one id may have been several requests, one after the other."""

from collections import deque
from typing import Any, NamedTuple

from tracer.schema import EventRecord, PassRecord

KEPT_LIFETIMES = 1 << 16


class Lifetime(NamedTuple):
    """From the first pass that could have run the request to the last one that it lived in."""

    arrival_pass: int
    end_pass: int | None = None  # None while it lives
    finish_reason: str | None = None


class Lifetimes:
    """Follows log entries; keeps the newest KEPT_LIFETIMES."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[Lifetime]] = {}
        self._order: deque[str] = deque()
        self._last_pass = -1

    def observe(self, entry: PassRecord | EventRecord) -> None:
        """Take the next entry of the log."""
        if isinstance(entry, PassRecord):
            self._last_pass = entry.pass_id
            for phase in entry.phases:
                if phase.requests:
                    self._merge(phase.requests)
        else:
            self._merge(entry.requests)

    def of(self, req_id: str) -> list[Lifetime]:
        """Return the id's lifetimes, oldest first."""
        return list(self._by_id.get(req_id, ()))

    def all(self) -> list[tuple[str, Lifetime]]:
        """Return every lifetime with its request id; those of one id stand oldest first."""
        return [(req_id, life) for req_id, lives in self._by_id.items() for life in lives]

    @classmethod
    def restore(cls, lives: list[tuple[str, Lifetime]]) -> "Lifetimes":
        """Return the lifetimes that `all` gave, to be looked up."""
        restored = cls()
        for req_id, life in lives:
            restored._by_id.setdefault(req_id, []).append(life)
        return restored

    def _merge(self, requests: list[tuple[str, dict[str, Any]]]) -> None:
        for req_id, partial in requests:
            if "prompt_token_ids" in partial:
                self._by_id.setdefault(req_id, []).append(Lifetime(partial["arrival_pass"]))
                self._order.append(req_id)
                if len(self._order) > KEPT_LIFETIMES:
                    self._forget(self._order.popleft())
            if "finish_reason" in partial and self._by_id.get(req_id):
                last = self._by_id[req_id][-1]
                self._by_id[req_id][-1] = last._replace(
                    end_pass=self._last_pass, finish_reason=partial["finish_reason"]
                )

    def _forget(self, req_id: str) -> None:
        del self._by_id[req_id][0]
        if not self._by_id[req_id]:
            del self._by_id[req_id]

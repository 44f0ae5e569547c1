"""What can be read from an engine's log: one that grows, tracer.log.Log, or a recorded one, tracer.trace_reader."""

from typing import Any, Protocol

from tracer.lifetimes import Lifetimes


class LogView(Protocol):
    """See tracer.log.Log, whose errors these methods raise too."""

    @property
    def last_seq(self) -> int: ...

    def entries(self, from_seq: int, to_seq: int) -> list[bytes]: ...

    def pass_bytes(self, pass_id: int) -> bytes: ...

    def state(self) -> dict[str, Any]: ...

    def newest(self) -> tuple[int, dict[str, Any], Lifetimes]: ...

    def wait(self, seq: int, timeout: float | None = None) -> bool: ...

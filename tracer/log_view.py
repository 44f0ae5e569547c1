"""What can be read from an engine's log: one that grows, tracer.log.Log, or a recorded one, tracer.trace_reader."""

from typing import Any, Protocol

from tracer.bunch import Bunch
from tracer.lifetimes import Lifetimes
from tracer.trace_format import Span

Part = bytes | Bunch  # an entry, or passes that came together


class LogView(Protocol):
    """See tracer.log.Log, whose errors these methods raise too."""

    @property
    def created(self) -> float: ...

    @property
    def last_seq(self) -> int: ...

    def entries(self, from_seq: int, to_seq: int) -> list[bytes]: ...

    def parts(self, from_seq: int, to_seq: int) -> list[Part]: ...

    def pass_bytes(self, pass_id: int) -> bytes: ...

    def state(self) -> dict[str, Any]: ...

    def newest(self) -> tuple[int, dict[str, Any], Lifetimes]: ...

    def spans(self) -> list[Span]: ...

    @property
    def oldest_block(self) -> int: ...

    def section(self, number: int) -> bytes: ...

    def wait(self, seq: int, timeout: float | None = None) -> bool: ...

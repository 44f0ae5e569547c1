"""A real engine core on the tiny model whose gate is worked by a test instead of a client."""

from collections.abc import Callable
from typing import Any

from helpers.tiny_engine import Engine
from tracer.schema import EventRecord, PassRecord, decode


class Watched(Engine):
    """A real engine core with its gate's events. While a pass is held inside, `meanwhile` is called over and over."""

    def __init__(self, meanwhile: Callable[["Watched"], None] | None = None, **flags: Any) -> None:
        self.entries: list[PassRecord | EventRecord] = []
        super().__init__(**flags)
        self.held_at: list[tuple[str, int]] = []
        self.meanwhile = meanwhile or (lambda engine: engine.core.gate.step_stop())
        self.core.gate.hold = self._hold

    def _hold(self) -> None:
        while stop := self.core.gate.inside:
            self.held_at.append((stop, self.gate["held"]["pass_id"]))
            self.meanwhile(self)

    def _take(self, data: bytes) -> None:
        super()._take(data)
        self.entries.append(decode(data))

    @property
    def gate(self) -> dict[str, Any]:
        """What the trace last said of the gate."""
        return next(
            entry.facts for entry in reversed(self.entries) if isinstance(entry, EventRecord) and entry.kind == "gate"
        )

    def run(self, passes: int = 200) -> None:
        """Run so many passes, as far as the gate lets them through."""
        for _ in range(passes):
            outputs, _ = self.core.run_pass()
            for output in (output for client in outputs.values() for output in client.outputs):
                self.tokens.setdefault((output.request_id, output.submission), []).extend(output.new_token_ids)

    def break_on(self, on: str, **fields: Any) -> None:
        self.core.gate.set_breakpoints([{"on": on, **fields}])

    def run_into(self, passes: int = 60) -> dict[str, Any]:
        """Run until a breakpoint is hit; return the hit and where the engine was held, then let it go on."""
        self.held_at.clear()
        self.meanwhile = lambda engine: engine.core.gate.release()
        for _ in range(passes):
            self.run(1)
            if hit := self.gate["hit"]:
                stop = self.held_at[0][0] if self.held_at else self.gate["stop"]
                self.core.gate.resume()
                return {**hit, "stop": stop}
        raise AssertionError(f"no breakpoint was hit in {passes} passes")

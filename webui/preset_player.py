"""Plays a preset's script on a running engine: requests, aborts and resets at exact passes, with the gate closed."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from tracer.phases import Phase
from tracer.schema import PassRecord, decode
from webui.presets import Abort, Action, Ask, Preset, Reset, Step, Submit, Until
from webui.services import Services

TIMEOUT_S = 60.0  # for a pass
MOST_PASSES = 500  # that a script may wait for something to hold
POLL_S, PAUSE_S = 0.2, 0.001

T = TypeVar("T")

Facts = dict[str, dict[str, Any]]  # of one pass, by phase
HOLDS: dict[str, Callable[[Facts], bool]] = {
    "idle": lambda facts: not facts[Phase.SCHEDULE]["running"] and not facts[Phase.SCHEDULE]["waiting"],
    "decoding": lambda facts: not facts[Phase.SCHEDULE]["waiting"] and _decodes(facts),
    "finished": lambda facts: bool(facts[Phase.UPDATE_FROM_OUTPUT]["finished"]),
    "preempted": lambda facts: bool(facts[Phase.SCHEDULE]["preempted_req_ids"]),
}


class PresetError(RuntimeError):
    """The script did not go as it should. The message says where it stopped."""


class PresetPlayer:
    """One run of one script. `tell` is called with what is going on, in words; `ended` tells whether to stop."""

    def __init__(
        self, preset: Preset, services: Services, tell: Callable[[str], None], ended: Callable[[], bool]
    ) -> None:
        self._preset = preset
        self._services = services
        self._tell = tell
        self._ended = ended
        self.passes = 0  # let through so far

    def play(self) -> int:
        """Play to the end and return the last pass's number; the engine is held after it.

        Raises PresetError where the engine does not do what the script waits for, ApiError where it refuses a request
        and EngineDeadError where it dies.
        """
        self._services.llm.call("pause")
        for action in self._preset.script:
            if action.say:
                self._tell(action.say)
            self._do(action)
        return self.passes - 1

    def _do(self, action: Action) -> None:
        services = self._services
        match action:
            case Submit():
                for ask in action.requests:
                    self._submit(ask)
            case Step():
                for _ in range(action.passes):
                    self._pass()
            case Until():
                self._until(action.holds)
            case Abort():
                for request_id in action.ids:
                    services.live.cancel(request_id)
            case Reset():
                services.llm.call("reset_prefix_cache", True)

    def _submit(self, ask: Ask) -> None:
        live, drain = self._services.live, self._services.drain
        self._wait(lambda: ask.id not in live.ids(), f"the end of the former {ask.id} was not read")
        ids = ask.prompt_token_ids(self._services.llm.tokenizer)
        drain.add(ask.id, live.submit(ids, ask.sampling_params(), ask.id))

    def _until(self, name: str) -> None:
        for _ in range(MOST_PASSES):
            if HOLDS[name](self._pass()):
                return
        raise PresetError(f"after {MOST_PASSES} passes it still was not {name!r}, which the preset waits for")

    def _pass(self) -> Facts:
        """Let one pass through and return its facts."""
        self._services.llm.call("step_passes", 1)
        entry = self._wait(self._recorded, f"pass {self.passes} did not come")
        self.passes += 1
        return {phase.phase: phase.facts for phase in entry.phases}

    def _recorded(self) -> PassRecord | None:
        log = self._services.llm.log
        seq = log.last_seq
        try:
            entry = decode(log.pass_bytes(self.passes))
        except KeyError:
            log.wait(seq, POLL_S)
            return None
        assert isinstance(entry, PassRecord)
        return entry

    def _wait(self, found: Callable[[], T | None], problem: str) -> T:
        """Wait until `found` returns something true, and return it. Raises PresetError, after a minute at most."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (result := found()):
            if self._ended():
                raise PresetError("it was ended before it was ready")
            if not self._services.llm.healthy:
                self._services.llm.call("gate_state")  # raises EngineDeadError, with the reason
            if time.monotonic() > deadline:
                raise PresetError(f"{problem} within {TIMEOUT_S:.0f} seconds")
            time.sleep(PAUSE_S)
        return result


def _decodes(facts: Facts) -> bool:
    return set(facts[Phase.SCHEDULE]["num_scheduled_tokens"].values()) == {1}

"""A trace that is held back says the same as one that is sent at once, and what somebody waits for is not held back."""

import math
from typing import Any

import pytest
from helpers import scripts
from helpers.fake_executor import fake_config, request
from helpers.threads import one_thread
from helpers.tiny_engine import ask, tiny
from hypothesis import given
from test_engine_process_client import BrokenExecutor, SlowExecutor, read, wait_for

from engine.core import Abort, EngineCore
from engine.core_client import EngineDeadError
from engine.process_client import ProcessClient
from tracer.bunch import Bunch, num_entries
from tracer.schema import PassRecord, decode, encode

MOST_PASSES = 2000


class Late:
    """An engine whose passes are all described twice: as they end, and when all is over."""

    def __init__(self, **flags: Any) -> None:
        self.core = EngineCore(tiny(**{**flags, "check": False}), lambda data: None)
        trace = self.core.trace
        assert trace is not None
        self._end_pass, trace.end_pass = trace.end_pass, self._end  # type: ignore[method-assign]
        self.ended, trace.delay_s = trace._unsent, math.inf
        trace.flush = lambda: None  # type: ignore[method-assign]
        self.at_once: list[bytes] = []

    def _end(self, executor: Any, quiet: bool = False) -> None:
        self._end_pass(executor, quiet=True)
        self.at_once.append(encode(self.ended[-1].record()))


@given(workload=scripts.workloads())
def test_a_pass_is_described_later_as_it_would_have_been_at_once(workload: scripts.Workload) -> None:
    flags, actions = workload
    with one_thread():
        engine = Late(**flags)
        core, live = engine.core, engine.core.scheduler.requests
        for action in actions:
            match action:
                case scripts.Add() if action.req_id not in live:
                    core.add_request(
                        ask(action.req_id, list(action.prompt), action.max_tokens, priority=action.priority)
                    )  # fmt: skip
                case scripts.Passes(count):
                    for _ in range(count):
                        core.step()
                case scripts.Abort(which, in_pass) if live:
                    victim = list(live)[which % len(live)]
                    if in_pass:
                        core.aborts_queue.put(Abort([victim]))
                    else:
                        core.abort_requests([victim])
                case scripts.Reset(running):
                    core.reset_prefix_cache(running)
        for _ in range(MOST_PASSES):
            core.step()
            if not core.scheduler.has_requests():
                break
        assert [encode(ended.record()) for ended in engine.ended] == engine.at_once


def spelled_out(messages: list[bytes]) -> list[bytes]:
    """The entries in messages, one by one."""
    bunches = [Bunch(message) if num_entries(message) > 1 else message for message in messages]
    each = [[each] if isinstance(each, bytes) else map(each.entry, range(each.count)) for each in bunches]
    return [entry for entries in each for entry in entries]


def passes(messages: list[bytes]) -> list[int]:
    """The numbers of the passes in the messages."""
    decoded = map(decode, spelled_out(messages))
    return [entry.pass_id for entry in decoded if isinstance(entry, PassRecord)]


def test_an_engine_that_waits_or_has_ended_a_request_holds_nothing_back() -> None:
    trace: list[bytes] = []
    client = ProcessClient(fake_config(distributed_executor_backend=SlowExecutor), trace.append)
    try:
        client.set_trace_delay(60.0)
        client.call("pause")
        client.add_request(request("A", max_tokens=13))
        for count in range(1, 5):
            client.call("step_passes", 1)
            wait_for(lambda count=count: len(passes(trace)) == count)  # type: ignore[misc]
        client.add_request(request("B", max_tokens=60))
        client.call("resume")
        read(client, lambda tokens, finished: "A" in finished)
        assert len(passes(trace)) >= 13, "A's last pass is there before anybody knows that A is over"
        assert [decode(entry).seq for entry in spelled_out(trace)] == list(range(len(spelled_out(trace))))
    finally:
        client.shutdown()


def test_passes_are_held_back_until_somebody_wants_them() -> None:
    trace: list[bytes] = []
    client = ProcessClient(fake_config(distributed_executor_backend=SlowExecutor), trace.append)
    try:
        client.set_trace_delay(60.0)
        client.add_request(request("A", max_tokens=45))
        read(client, lambda tokens, finished: len(tokens.get("A", ())) == 4)
        assert passes(trace) == [0]
        client.set_trace_delay(0.0)
        wait_for(lambda: len(passes(trace)) >= 4)
        read(client, lambda tokens, finished: len(tokens.get("A", ())) == 2)
        held = len(passes(trace))
        read(client, lambda tokens, finished: len(tokens.get("A", ())) == 1)
        assert len(passes(trace)) > held, "now each pass comes with its tokens"
        client.set_trace_delay(0.12)
        read(client, lambda tokens, finished: len(tokens.get("A", ())) == 20)
        assert passes(trace)[-1] > 15, "the delay is over now and then"
        client.abort_requests(["A"])
        wait_for(lambda: client.call("stats")["running"] == 0)
        assert [decode(entry).seq for entry in spelled_out(trace)] == list(range(len(spelled_out(trace))))
    finally:
        client.shutdown()


class LateBroken(SlowExecutor):
    """Its fifth pass fails."""

    def do_sample_tokens(self, grammar_output: Any) -> Any:
        if self.calls.count("sample_tokens") == 5:
            return BrokenExecutor.do_sample_tokens(self, grammar_output)  # type: ignore[arg-type]
        return super().do_sample_tokens(grammar_output)


def test_the_last_passes_of_an_engine_that_fails_are_there() -> None:
    trace: list[bytes] = []
    client = ProcessClient(fake_config(distributed_executor_backend=LateBroken), trace.append)
    client.set_trace_delay(60.0)
    client.add_request(request("A", max_tokens=40))
    with pytest.raises(EngineDeadError, match="the logits are NaN"):
        read(client, lambda tokens, finished: False)
    client.shutdown()
    assert passes(trace) == [0, 1, 2, 3]

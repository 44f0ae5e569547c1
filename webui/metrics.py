"""/metrics: vLLM's Prometheus metrics, counted from the engine's log as it grows: the engine does nothing for them."""

import itertools
import threading
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tracer.bunch import Bunch
from tracer.log import Gone
from tracer.log_view import LogView
from tracer.phases import Phase
from webui.request_times import RequestTimes
from webui.tally import Tally

PERIOD = 1.0  # seconds between looks at the log when nobody asks
GRACE = 2.0  # seconds that the reader of a stream has to tell of a stop string
STEP = 256  # entries taken from the log at a time
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 240, 480, 960)
TOKENS = tuple(1 << i for i in range(15))
HISTOGRAMS = {
    "time_to_first_token_seconds": ("from a request's arrival to its first token", SHORT),
    "request_time_per_output_token_seconds": ("mean time between two tokens of a finished request", SHORT),
    "e2e_request_latency_seconds": ("from a request's arrival to its end", LONG),
    "request_queue_time_seconds": ("from a request's arrival to its first pass", LONG),
    "request_prefill_time_seconds": ("from a request's first pass to its first token", LONG),
    "request_decode_time_seconds": ("from a request's first token to its last", LONG),
    "request_inference_time_seconds": ("from a request's first pass to its last token", LONG),
    "iteration_tokens_total": ("tokens computed in one pass", TOKENS),
    "request_prompt_tokens": ("prompt tokens of a finished request", TOKENS),
    "request_generation_tokens": ("output tokens of a finished request", TOKENS),
    "request_params_max_tokens": ("max_tokens of a finished request", TOKENS),
}
INTER_TOKEN_LATENCY = "inter_token_latency_seconds", "between two tokens of a request"
COUNTERS = {
    "prompt_tokens": "prompt tokens whose prefill is done",
    "generation_tokens": "output tokens",
    "num_preemptions": "requests put back into the queue",
    "prefix_cache_queries": "tokens that were looked for in the prefix cache",
    "prefix_cache_hits": "tokens that were found in the prefix cache",
}
GAUGES = {
    "num_requests_running": "requests in the batch",
    "num_requests_waiting": "requests in the queue",
    "kv_cache_usage_perc": "part of the KV cache blocks that requests hold, from 0 to 1",
}
FINISH_REASONS = ("stop", "length", "abort", "error")
LABELS = ("model_name", "engine")


class _NewRequest(msgspec.Struct):
    req_id: str
    num_prompt_tokens: int
    num_computed_tokens: int


class _Facts(msgspec.Struct):
    """What metrics need of a phase's or an event's facts; the rest is skipped unread."""

    total_num_scheduled_tokens: int = 0
    scheduled_new_reqs: list[_NewRequest] = []
    preempted_req_ids: list[str] = []
    num_gpu_blocks: int = 0


class _Phase(msgspec.Struct):
    phase: str
    end: int
    facts: _Facts = msgspec.field(default_factory=_Facts)
    requests: list[tuple[str, dict[str, Any]]] = []
    output: list[tuple[str, int, list[int]]] = []
    blocks: list[tuple[int, int, int]] = []


class _Entry(msgspec.Struct):
    time: float
    phases: list[_Phase] = []
    requests: list[tuple[str, dict[str, Any]]] = []
    blocks: list[tuple[int, int, int]] = []


_DECODER = msgspec.msgpack.Decoder(_Entry)


class Metrics(threading.Thread):
    """Follows a log once a second, and at once for whoever asks. Used from every thread of the server."""

    def __init__(self, log: LogView, model_name: str, prefix_caching: bool = True) -> None:
        super().__init__(name="metrics", daemon=True)
        self._log = log
        self._prefix_caching = prefix_caching
        self._next = 0
        self._lock = threading.Lock()
        self._live: dict[str, RequestTimes] = {}
        self._held: set[int] = set()  # KV blocks that some request holds
        self._num_blocks = 1
        self._stopped_by_string: set[str] = set()  # live ones, whose abort is still to come
        self._aborted: dict[str, float] = {}  # and when, until it is clear that no stop string was the reason
        self._registry = CollectorRegistry()
        labels = {"model_name": model_name, "engine": "0"}
        self._gauges = {name: self._make(Gauge, name, words).labels(**labels) for name, words in GAUGES.items()}
        self._counters = {name: self._make(Counter, name, words).labels(**labels) for name, words in COUNTERS.items()}
        self._histograms = {
            name: self._make(Histogram, name, words, buckets=buckets).labels(**labels)
            for name, (words, buckets) in HISTOGRAMS.items()
        }
        name, words = INTER_TOKEN_LATENCY
        self._inter_token_latency = Tally(f"vllm:{name}", words, labels, SHORT)
        self._registry.register(self._inter_token_latency)
        success = self._make(Counter, "request_success", "requests that ended, by reason", more=("finished_reason",))
        self._success = {reason: success.labels(**labels, finished_reason=reason) for reason in FINISH_REASONS}

    def run(self) -> None:
        while True:
            time.sleep(PERIOD)
            self.catch_up()

    def render(self) -> bytes:
        """Return the metrics as they are now, in the text format of Prometheus."""
        self.catch_up()
        return generate_latest(self._registry)

    def stopped_by_string(self, request_id: str) -> None:
        """Tell that a stop string ended an engine's request: the engine itself knows of an abort alone.

        The log may say so before or after.
        """
        with self._lock:
            if self._aborted.pop(request_id, None) is None:
                self._stopped_by_string.add(request_id)
            else:
                self._success["stop"].inc()

    def catch_up(self) -> None:
        """Count what has happened since the last time."""
        with self._lock:
            while self._next <= self._log.last_seq:
                try:
                    parts = self._log.parts(self._next, self._next + STEP - 1)
                except Gone:  # only where the log outgrew its file within a second
                    self._next += 1
                    continue
                for part in parts:
                    if isinstance(part, Bunch):
                        self._take_bunch(part)
                        self._next += part.count
                    else:
                        self._take(_DECODER.decode(part))
                        self._next += 1
            self._stopped_by_string &= self._live.keys()  # others had ended by themselves
            self._count_aborted(time.monotonic() - GRACE)
            self._set_gauges()

    def _make(self, kind: Any, name: str, words: str, more: tuple[str, ...] = (), **options: Any) -> Any:
        return kind(f"vllm:{name}", words, (*LABELS, *more), registry=self._registry, **options)

    def _take(self, entry: _Entry) -> None:
        began, ended = entry.time, entry.time + max((phase.end for phase in entry.phases), default=0) / 1e9
        self._merge(entry.requests, began)
        self._hold(entry.blocks)
        for phase in entry.phases:
            self._count_schedule(phase.facts)
            self._hold(phase.blocks)
            self._count_outputs(((request_id, len(ids)) for request_id, _, ids in phase.output), ended)
            self._merge(phase.requests, ended if phase.output or phase.phase == "update_from_output" else began)

    def _take_bunch(self, bunch: Bunch) -> None:
        """Count passes in which requests went on and that was all: as `_take` would, one by one."""
        for num_tokens in bunch.argument(Phase.SCHEDULE, "total_num_scheduled_tokens"):
            self._count_schedule(_Facts(num_tokens))
        self._hold(bunch.merged().phases[0].blocks)
        ends, outputs = bunch.ends(), bunch.num_new_tokens()
        alike = all(ids == outputs[0][0] for ids, _ in outputs)
        for (req_ids, counts), now in zip(outputs[: 1 if alike else None], ends, strict=False):
            self._count_outputs(zip(req_ids, counts, strict=True), now)
        if alike:
            more = [counts for _, counts in outputs[1:]]
            self._count_more_outputs(outputs[0][0], list(map(sum, zip(*more, strict=True))), ends)

    def _count_more_outputs(self, req_ids: list[str], counts: list[int], ends: list[float]) -> None:
        """Count the tokens of requests that have got some in each of several passes, but for the first of these."""
        found = [(self._live.get(request_id), count) for request_id, count in zip(req_ids, counts, strict=True)]
        live = [(times, count) for times, count in found if times]
        for before, now in itertools.pairwise(ends):
            self._inter_token_latency.observe(now - before, len(live))
        for times, count in live:
            times.take_tokens(count, ends[-1])
        self._counters["generation_tokens"].inc(sum(count for _, count in live))

    def _count_schedule(self, facts: _Facts) -> None:
        if facts.total_num_scheduled_tokens:
            self._histograms["iteration_tokens_total"].observe(facts.total_num_scheduled_tokens)
        self._num_blocks = facts.num_gpu_blocks or self._num_blocks
        if facts.preempted_req_ids:
            self._counters["num_preemptions"].inc(len(facts.preempted_req_ids))
        if self._prefix_caching:
            for new in facts.scheduled_new_reqs:
                self._counters["prefix_cache_queries"].inc(new.num_prompt_tokens)
                self._counters["prefix_cache_hits"].inc(new.num_computed_tokens)

    def _count_outputs(self, outputs: Iterable[tuple[str, int]], now: float) -> None:
        num_tokens = 0
        waits: dict[float, int] = {}  # since the last token: rows that decode side by side have one in common
        for request_id, count in outputs:
            if (times := self._live.get(request_id)) is None:
                continue
            if times.first_token is None:
                self._counters["prompt_tokens"].inc(times.num_prompt_tokens)
                self._histograms["time_to_first_token_seconds"].observe(now - times.arrival)
            else:
                wait = now - times.last_token
                waits[wait] = waits.get(wait, 0) + 1
            times.take_tokens(count, now)
            num_tokens += count
        for wait, count in waits.items():
            self._inter_token_latency.observe(wait, count)
        if num_tokens:
            self._counters["generation_tokens"].inc(num_tokens)

    def _merge(self, requests: list[tuple[str, dict[str, Any]]], now: float) -> None:
        for request_id, partial in requests:
            if "prompt_token_ids" in partial:
                self._live[request_id] = RequestTimes(now, partial["num_prompt_tokens"], partial["max_tokens"])
            if (times := self._live.get(request_id)) is None:
                continue
            times.take_status(partial.get("status"), now)
            if reason := partial.get("finish_reason"):
                del self._live[request_id]
                self._count_end(request_id, times, reason, now)

    def _count_end(self, request_id: str, times: RequestTimes, reason: str, now: float) -> None:
        if request_id in self._stopped_by_string:
            self._stopped_by_string.remove(request_id)
            reason = "stop"
        if reason == "abort":
            self._aborted[request_id] = time.monotonic()
        elif reason in self._success:
            self._success[reason].inc()
        for name, value in times.summary(now).items():
            self._histograms[name].observe(value)

    def _count_aborted(self, before: float) -> None:
        for request_id, when in list(self._aborted.items()):
            if when < before:
                del self._aborted[request_id]
                self._success["abort"].inc()

    def _hold(self, blocks: list[tuple[int, int, int]]) -> None:
        for block_id, ref_cnt, _ in blocks:
            if ref_cnt:
                self._held.add(block_id)
            else:
                self._held.discard(block_id)

    def _set_gauges(self) -> None:
        running = sum(times.running for times in self._live.values())
        self._gauges["num_requests_running"].set(running)
        self._gauges["num_requests_waiting"].set(len(self._live) - running)
        # Block 0 is never handed out.
        self._gauges["kv_cache_usage_perc"].set(len(self._held - {0}) / max(1, self._num_blocks - 1))

"""The engine core: scheduler above, executor below, and the loop's one step between them."""

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine import pass_facts
from engine.admission import check_fits
from engine.config import EngineConfig
from engine.core_gate import CoreGate
from engine.core_trace import CoreTrace, TraceSink
from engine.executor import Executor
from engine.invariants import violated_invariant
from engine.messages import EngineCoreOutputs, EngineCoreRequest
from engine.qualname import resolve_obj_by_qualname
from engine.request import Request, RequestStatus
from engine.sources import phase_sources
from tracer.gate import Stop
from tracer.phases import Phase
from tracer.recorder import RequestChange

# What clients may call by name.
GATE_UTILITIES = frozenset({"pause", "resume", "step_passes", "step_stop", "set_rate", "set_breakpoints"})
UTILITIES = GATE_UTILITIES | {"gate_state", "reset_prefix_cache", "stats", "sources", "profile"}


@dataclass(slots=True)
class Abort:
    """Ids to be aborted. In `aborts_queue` it takes effect in mid-pass; `handled` once it has had its turn in order."""

    request_ids: list[str]
    handled: bool = False


class EngineCore:
    """Used from one thread. Only `aborts_queue` may be filled from others, at any moment of a pass."""

    def __init__(self, config: EngineConfig, trace_sink: TraceSink | None = None) -> None:
        """Load the model and make the KV cache. `config` is resolved; its num_gpu_blocks is filled in here.

        Raises ConfigError where the settings cannot work with this model and machine.
        """
        self.config = config
        trace = config.trace_config
        trace.trace = trace.trace and trace_sink is not None
        self.model_executor = Executor.get_class(config)(config)
        self._initialize_kv_caches()
        scheduler_cls = config.scheduler_config.scheduler_cls
        if isinstance(scheduler_cls, str):
            scheduler_cls = resolve_obj_by_qualname(scheduler_cls)
        self.scheduler = scheduler_cls(config)
        self.aborts_queue: queue.SimpleQueue[Abort] = queue.SimpleQueue()
        self.trace: CoreTrace | None = None
        if trace.trace and trace_sink is not None:
            self.trace = CoreTrace(trace_sink, config.scheduler_config.max_num_seqs, trace.check)
        self.gate = CoreGate(self.scheduler, self.model_executor, self.trace)

    def _initialize_kv_caches(self) -> None:
        executor = self.model_executor
        num_gpu_blocks = executor.collective_rpc("determine_num_gpu_blocks", single_value=True)
        self.config.cache_config.num_gpu_blocks = num_gpu_blocks
        executor.collective_rpc("initialize_cache", args=(num_gpu_blocks,))

    # --- one pass -----------------------------------------------------------------------------------------------

    def step(self) -> tuple[dict[int, EngineCoreOutputs], bool]:
        """Run one pass. Returns the outputs for each client and whether any token was scheduled."""
        if not self.scheduler.has_requests():
            return {}, False
        trace = self.trace
        if trace:
            trace.begin_pass()

        scheduler_output = self.scheduler.schedule(self._should_throttle_prefills())
        if trace:
            trace.mark(Phase.SCHEDULE)
            blocks, requests = pass_facts.block_changes(self.scheduler), pass_facts.request_changes(self.scheduler)
            trace.tell(*pass_facts.schedule(scheduler_output, self.scheduler), requests=requests, blocks=blocks)

        launched = trace.begin() if trace else None
        future = self.model_executor.execute_model(scheduler_output, non_block=True)
        if trace:
            args = pass_facts.execute_model(self.model_executor.name, future)
            trace.mark(Phase.EXECUTE_MODEL, *args, start=launched)

        grammar_output = self.scheduler.get_grammar_bitmask(scheduler_output)
        if trace:
            trace.mark(Phase.GRAMMAR_BITMASK, *pass_facts.grammar_bitmask(grammar_output))

        model_output = future.result()
        if model_output is None:
            self.gate.may_hold(Stop.HAND_OFF, scheduler_output)
            called = trace.begin() if trace else 0
            model_output = self.model_executor.sample_tokens(grammar_output)
            if trace:
                trace.sample_tokens_called(called)

        self.gate.may_hold(Stop.BEFORE_UPDATE_FROM_OUTPUT, scheduler_output)
        aborted = self._process_aborts_queue()
        engine_core_outputs = self.scheduler.update_from_output(scheduler_output, model_output)
        if trace:
            trace.mark(Phase.UPDATE_FROM_OUTPUT)
            stopped, blocks = self.scheduler.stopped, pass_facts.block_changes(self.scheduler)
            args = pass_facts.update_from_output(scheduler_output, engine_core_outputs, stopped)
            trace.tell(*args, requests=list(map(pass_facts.finished_change, stopped)), blocks=blocks)
            self._end_traced_pass(trace, quiet=self.scheduler.plan.quiet and not stopped and not aborted)
        return engine_core_outputs, scheduler_output.total_num_scheduled_tokens > 0

    @property
    def ready(self) -> bool:
        """Whether the next pass has something to do and the gate lets it through."""
        return self.gate.open and not self.gate.wait and self.scheduler.has_requests()

    @property
    def patience(self) -> float | None:
        """How many seconds at most until the engine is `ready` by itself, as it waits for the rate or for grammars.

        None: it will be when something comes from outside.
        """
        if not self.gate.open:
            return None
        return self.gate.wait if self.scheduler.has_requests() else self.scheduler.seconds_until_grammar()

    def when_ready_again(self, notify: Callable[[], None]) -> None:
        """Have `notify` called, from another thread, whenever a grammar has been compiled."""
        self.scheduler.structured_output_manager.on_settled = notify

    def run_pass(self) -> tuple[dict[int, EngineCoreOutputs], bool]:
        """Run one step if it is `ready`; else do nothing."""
        if not self.ready:
            return {}, False
        self.gate.enter()
        result = self.step()
        self.gate.leave()
        return result

    def _should_throttle_prefills(self) -> bool:
        """Data-parallel ranks hold prefills back to keep in step; a single rank never does."""
        return False

    def _process_aborts_queue(self) -> list[str]:
        """Take the aborts that arrived during the pass, before its outputs are applied; return whom they ended."""
        if self.trace:
            self.trace.begin()
        aborted: list[str] = []
        while not self.aborts_queue.empty():
            abort = self.aborts_queue.get()
            if not abort.handled:
                aborted += self.scheduler.finish_requests(abort.request_ids, RequestStatus.FINISHED_ABORTED)
        if self.trace:
            self.trace.mark(Phase.PROCESS_ABORTS, aborted)
            if aborted:
                changes, blocks = pass_facts.aborted_changes(aborted), pass_facts.block_changes(self.scheduler)
                self.trace.tell(aborted, requests=changes, blocks=blocks)
        return aborted

    def _end_traced_pass(self, trace: CoreTrace, quiet: bool) -> None:
        trace.end_pass(self.model_executor, quiet)
        if self.config.trace_config.check:
            violated = violated_invariant(self.scheduler) or trace.misstated_blocks(self.scheduler.kv_cache_manager)
            assert violated is None, f"pass {trace.num_passes - 1}: {violated}"

    # --- between passes -----------------------------------------------------------------------------------------

    def add_request(self, new: EngineCoreRequest) -> None:
        """Let a request wait. Raises ValueError, with the reason, for one that can't be taken."""
        try:
            if not new.prompt_token_ids:
                raise ValueError("the prompt is empty: give at least one token")
            if new.sampling_params.max_tokens is None:
                raise ValueError("max_tokens is not filled in: send requests through the input processor")
            check_fits(len(new.prompt_token_ids), new.sampling_params.max_tokens, self.config)
            request = Request(new)
            self.scheduler.add_request(request)
        except ValueError as error:
            self._event("request", {"event": "refused", "req_id": new.request_id, "reason": str(error)})
            raise
        if self.trace:
            first_pass = self.trace.num_passes + (self.gate.inside is not None)
            change = pass_facts.added_change(request, first_pass)
            self._event("request", {"event": "added", "req_id": new.request_id}, [change])

    def abort_requests(self, request_ids: list[str]) -> None:
        """End live requests; ids that aren't live are passed over."""
        aborted = self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)
        for change in pass_facts.aborted_changes(aborted):
            self._event("request", {"event": "aborted", "req_id": change[0]}, [change])

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """See Scheduler.reset_prefix_cache. Raises ValueError inside a pass, whose decision rests on the cache."""
        if self.gate.inside:
            raise ValueError("the engine is held inside a pass, which uses the cache: let the pass end first")
        running = list(self.scheduler.running) if reset_running_requests else []
        done = self.scheduler.reset_prefix_cache(reset_running_requests)
        facts = {"event": "reset_prefix_cache", "reset_running_requests": reset_running_requests, "done": done}
        self._event("request", facts, [pass_facts.preempted_change(request) for request in running])
        return done

    def gate_state(self) -> dict[str, Any]:
        return self.gate.state()

    def stats(self) -> dict[str, int]:
        """Return how many requests run and wait and how many blocks are free."""
        scheduler = self.scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "num_free_blocks": scheduler.kv_cache_manager.block_pool.num_free_blocks,
        }

    def sources(self) -> dict[str, Any]:
        """See engine.sources.phase_sources; nothing where the trace is off."""
        return phase_sources(self, self.model_executor) if self.trace else {}

    def profile(self, is_start: bool = True) -> dict[str, Any]:
        """Start to time kernels, or stop; return the next pass's number and, at the stop, see Worker.profile."""
        kernels = self.model_executor.collective_rpc("profile", args=(is_start,), single_value=True)
        return {"pass_id": self.trace.num_passes if self.trace else None, "kernels": kernels}

    def utility(self, method: str, args: list[Any]) -> Any:
        """Call a method that clients may call by name. Raises ValueError for any other."""
        if method not in UTILITIES:
            raise ValueError(f"the engine has no utility {method!r}; there are {', '.join(sorted(UTILITIES))}")
        return getattr(self.gate if method in GATE_UTILITIES else self, method)(*args)

    def shutdown(self) -> None:
        self.scheduler.structured_output_manager.shutdown()
        self.model_executor.shutdown()

    def _event(self, kind: str, facts: dict[str, Any], requests: list[RequestChange] | None = None) -> None:
        if self.trace:
            self.trace.event(kind, facts, requests, pass_facts.block_changes(self.scheduler))

"""Decides, pass by pass, which requests run for how many tokens and which blocks they get."""

from collections.abc import Iterable

from engine.block_journal import BlockJournal
from engine.config import EngineConfig
from engine.kv_cache_manager import KVCacheManager
from engine.logprobs import add_logprobs
from engine.messages import EngineCoreOutput, EngineCoreOutputs
from engine.outputs import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from engine.pass_plan import PassPlan
from engine.request import Request, RequestStatus
from engine.request_queue import create_request_queue
from engine.stop import check_stop
from engine.structured_output.manager import StructuredOutputManager

CLIENT_INDEX = 0  # outputs are grouped by client; there is one


class Scheduler:
    """Running requests first, in order, then waiting ones, until tokens, rows or blocks run out.

    There is no prefill and no decode: each request has known and computed tokens, and each pass lets the second number
    catch up with the first. The decisions are those of vLLM 0.32 (its V1 scheduler, synchronous).
    """

    def __init__(self, config: EngineConfig) -> None:
        """`config` is resolved, with num_gpu_blocks known."""
        assert config.cache_config.num_gpu_blocks is not None
        assert config.model_config.max_model_len is not None
        self.config = config.scheduler_config
        self.max_model_len = config.model_config.max_model_len
        self.kv_cache_manager = KVCacheManager(
            config.cache_config.num_gpu_blocks,
            config.cache_config.block_size,
            config.cache_config.enable_prefix_caching,
        )
        self.requests: dict[str, Request] = {}  # every live one
        self.waiting = create_request_queue(self.config.scheduling_policy)
        self.running: list[Request] = []
        self.structured_output_manager = StructuredOutputManager(config.model_config)
        self.grammar_failures: list[Request] = []  # to be ended once the pass is over
        self.finished_req_ids: set[str] = set()  # ended since the last pass: the runner is told once
        self.reset_preempted_req_ids: set[str] = set()  # preempted by a reset since the last pass
        self.traced = config.trace_config.trace
        if self.traced:
            self.kv_cache_manager.block_pool.journal = BlockJournal()
        self.plan = PassPlan(0)  # the last pass's, and below those that it ended: for the trace
        self.stopped: list[Request] = []

    # --- requests come and go -----------------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Let the request wait. Raises ValueError when a live one has its id."""
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use by a live request")
        self.requests[request.request_id] = request
        self.waiting.add_request(request)
        if request.structured_output_request is not None:
            self.structured_output_manager.add(request)

    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[str]:
        """End live requests from outside, such as by an abort; ids that aren't live are passed over.

        Returns the ids that were ended.
        """
        ended = [self.requests[request_id] for request_id in dict.fromkeys(request_ids) if request_id in self.requests]
        waiting = [request for request in ended if request.status is not RequestStatus.RUNNING]
        if len(waiting) < len(ended):
            self._remove_running(ended)
        if waiting:
            self.waiting.remove_requests(waiting)
        for request in ended:
            request.status = status
            self._free_request(request)
        return [request.request_id for request in ended]

    def has_requests(self) -> bool:
        """Whether a pass has something to do: run requests, or tell the runner of finished ones.

        While all live requests wait for their grammars, it has nothing to do.
        """
        if self.finished_req_ids or not self.structured_output_manager.requests:
            return bool(self.requests or self.finished_req_ids)
        return self.seconds_until_grammar() in (None, 0.0)

    def seconds_until_grammar(self) -> float | None:
        """Return how long at most until a pass has something to do, where all live requests wait for their grammars.

        None: others live, or nobody.
        """
        manager = self.structured_output_manager
        return manager.seconds_until_settled() if len(manager.blocked) == len(self.requests) else None

    # --- one pass -----------------------------------------------------------------------------------------------

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Decide the next pass. `throttle_prefills` leaves out whatever is not one token from its next output."""
        plan = self.plan = PassPlan(self.config.max_num_batched_tokens, why={} if self.traced else None)
        plan.grammar_ready, self.grammar_failures = self.structured_output_manager.settle()
        # A lone request has nobody to make room for.
        alone = len(self.running) + len(self.waiting) <= 1
        threshold = 0 if alone else self.config.long_prefill_token_threshold
        self._schedule_running(plan, threshold, throttle_prefills)
        if not plan.preempted:
            self._schedule_waiting(plan, threshold, throttle_prefills)

        output = plan.to_output(self.kv_cache_manager, self.finished_req_ids, self.reset_preempted_req_ids)
        self.finished_req_ids, self.reset_preempted_req_ids = set(), set()
        requests, num_scheduled_tokens = self.requests, plan.num_scheduled_tokens
        for request_id, num_tokens in num_scheduled_tokens.items():
            requests[request_id].num_computed_tokens += num_tokens
        return output

    def _schedule_running(self, plan: PassPlan, threshold: int, throttle_prefills: bool) -> None:
        running = self.running
        index = 0
        while index < len(running) and plan.token_budget > 0:
            request = running[index]
            num_new_tokens = request.num_tokens - request.num_computed_tokens
            if num_new_tokens != 1:
                if num_new_tokens == 0 or throttle_prefills:
                    index += 1
                    continue
                num_new_tokens = _at_most(num_new_tokens, threshold, plan.token_budget)
            # The blocks it holds have room for more: nothing to allocate, no block becomes full.
            if request.num_computed_tokens + num_new_tokens >= request.num_slots:
                num_running = len(running)
                if not self._make_room(plan, request, num_new_tokens):
                    break
                if len(running) < num_running:  # others before it may have been preempted
                    index = running.index(request)
            plan.running.append(request)
            plan.schedule(request, num_new_tokens)
            index += 1

    def _make_room(self, plan: PassPlan, request: Request, num_new_tokens: int) -> bool:
        """Allocate the request's slots, preempting others until there are some. False: it was itself preempted."""
        while True:
            blocks = self.kv_cache_manager.allocate_slots(request, num_new_tokens)
            if blocks is not None:
                if blocks:
                    plan.new_block_ids[request.request_id] = ([block.block_id for block in blocks],)
                return True
            victim = self._pick_victim(plan)
            if plan.why is not None:
                plan.why[victim.request_id] = self._why_preempted(request, victim, num_new_tokens)
            self._preempt_request(victim)
            plan.preempted.append(victim)
            if victim is request:
                return False

    def _pick_victim(self, plan: PassPlan) -> Request:
        """Take the newest request out of the running ones, or under the priority policy the least urgent."""
        if self.config.scheduling_policy != "priority":
            return self.running.pop()
        victim = max(self.running, key=lambda request: (request.priority, request.arrival_time))
        self.running.remove(victim)
        if victim.request_id in plan.num_scheduled_tokens:
            plan.unschedule(victim)
            self.kv_cache_manager.forget_uncomputed(victim)
        return victim

    def _preempt_request(self, request: Request) -> None:
        """Give up the request's blocks; when it is admitted again, it computes what the prefix cache doesn't have."""
        self.kv_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.prepend_request(request)

    def _schedule_waiting(self, plan: PassPlan, threshold: int, throttle_prefills: bool) -> None:
        manager = self.kv_cache_manager
        blocked: list[Request] = []
        while self.waiting and plan.token_budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting.peek_request()
            if request.status is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
                blocked.append(self.waiting.pop_request())
                continue
            computed_blocks = manager.get_computed_blocks(request)
            num_computed_tokens = len(computed_blocks) * manager.block_size
            num_new_tokens = request.num_tokens - num_computed_tokens
            if throttle_prefills and num_new_tokens > 1:
                break
            num_new_tokens = _at_most(num_new_tokens, threshold, num_new_tokens)
            if num_new_tokens > plan.token_budget and not self.config.enable_chunked_prefill:
                break
            num_new_tokens = min(num_new_tokens, plan.token_budget)
            if manager.allocate_slots(request, num_new_tokens, computed_blocks, full_sequence_must_fit=True) is None:
                break
            self._admit(plan, self.waiting.pop_request(), num_new_tokens, num_computed_tokens)
        for request in reversed(blocked):  # they keep their places before those who weren't reached
            self.waiting.prepend_request(request)

    def _admit(self, plan: PassPlan, request: Request, num_new_tokens: int, num_computed_tokens: int) -> None:
        (plan.new if request.status is RequestStatus.WAITING else plan.resumed).append(request)
        self.running.append(request)
        plan.schedule(request, num_new_tokens)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_computed_tokens
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = num_computed_tokens

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """Return which tokens the grammars allow, or None when no request that samples in this pass has one."""
        return self.structured_output_manager.grammar_bitmask(scheduler_output)

    # --- what came of it ----------------------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Give each request its tokens and end those that are done. Returns the outputs for each client."""
        outputs: list[EngineCoreOutput] = []
        stopped: list[Request] = []
        sampled, rows = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None or not (new_token_ids := sampled[rows[request_id]]):
                continue  # aborted during the pass, or still in prefill
            structured = request.structured_output_request
            if structured is not None and not structured.accept_tokens(new_token_ids):
                stopped.append(request)
                outputs.append(_failed(request))
                continue
            request.append_output_token_ids(new_token_ids)
            output = EngineCoreOutput(
                request_id, new_token_ids, num_cached_tokens=request.num_cached_tokens, submission=request.submission
            )
            if request.wants_logprobs:
                add_logprobs(output, model_runner_output, rows[request_id])
            if check_stop(request, self.max_model_len):
                output.finish_reason = request.status.finish_reason
                output.stop_reason = request.stop_reason
                stopped.append(request)
            outputs.append(output)
        if self.grammar_failures:
            stopped += self._without_grammar(outputs)
        self.stopped = stopped
        if stopped:
            self._remove_running(stopped)
            for request in stopped:
                self._free_request(request)
        return {CLIENT_INDEX: EngineCoreOutputs(outputs)} if outputs else {}

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget what the prefix cache holds; return whether that was possible.

        While requests hold blocks it isn't, and nothing changes, unless `reset_running_requests` preempts them all
        first: they leave the batch and come back, in their order, with nothing computed.
        """
        if reset_running_requests:
            while self.running:
                request = self.running.pop()
                self._preempt_request(request)
                self.reset_preempted_req_ids.add(request.request_id)
        return self.kv_cache_manager.reset_prefix_cache()

    def _free_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]
        self.structured_output_manager.remove(request)
        self.finished_req_ids.add(request.request_id)

    def _without_grammar(self, outputs: list[EngineCoreOutput]) -> list[Request]:
        """Take those whose grammars could not be had, and were not aborted since, out of the waiting ones."""
        failed = [request for request in self.grammar_failures if request.request_id in self.requests]
        self.grammar_failures = []
        self.waiting.remove_requests(failed)
        outputs += map(_failed, failed)
        return failed

    def _remove_running(self, requests: list[Request]) -> None:
        gone = {request.request_id for request in requests}
        self.running = [request for request in self.running if request.request_id not in gone]

    def _why_preempted(self, favoured: Request, victim: Request, num_new_tokens: int) -> list:
        needed = self.kv_cache_manager.num_blocks_to_allocate(favoured, favoured.num_computed_tokens + num_new_tokens)
        return [
            "preempted",
            {
                "for": favoured.request_id,
                "needed": needed,
                "free": self.kv_cache_manager.block_pool.num_free_blocks,
                "num_computed_tokens": victim.num_computed_tokens,
            },
        ]


def _failed(request: Request) -> EngineCoreOutput:
    """End a request with the error that its structured output has met."""
    structured = request.structured_output_request
    assert structured is not None
    request.status = RequestStatus.FINISHED_ERROR
    return EngineCoreOutput(
        request.request_id, [], finish_reason="error", error=structured.error, submission=request.submission
    )


def _at_most(num_tokens: int, threshold: int, budget: int) -> int:
    """Cut a long chunk at the threshold (0: none) and at the budget."""
    return min(num_tokens, threshold or num_tokens, budget)

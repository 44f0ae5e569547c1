"""Why each live request is or isn't in a pass, as a code and its numbers. The sentences are made elsewhere."""

from engine.pass_plan import PassPlan, Why
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler

# scheduled         num_new_tokens: of all others, made in tracer.facts
# preempted         for (the request that needed blocks, maybe itself), needed, free, num_computed_tokens (lost)
# no_budget         token_budget (left), and for the first in line without chunked prefill: needed
# no_rows           max_num_seqs, running
# no_blocks         needed (for all its known tokens), free
# behind            request (the first in line, which could not be admitted)
# after_preemption  request (the last one preempted in this pass: nobody is admitted, and no later row runs)
# nothing_to_do     no numbers: all known tokens are computed
# not_its_turn      set (requests in its set), others (in the one that runs): AlternatingScheduler alone
# waiting_for_grammar  limit_s (how long it may take to compile)
# grammar_failed    error


def explain(scheduler: Scheduler) -> dict[str, Why]:
    """Return [code, numbers] for every live request that `Scheduler.schedule`, traced, has not scheduled."""
    plan = scheduler.plan
    assert plan.why is not None
    scheduled = plan.num_scheduled_tokens
    if len(plan.why) + len(scheduled) == len(scheduler.requests):
        return plan.why
    why = dict(plan.why)
    for request in scheduler.running:
        if request.request_id not in why and request.request_id not in scheduled:
            why[request.request_id] = _why_not_run(plan, request)
    head: Request | None = None
    for request in scheduler.waiting:
        if request.status is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            why[request.request_id] = _why_no_grammar(scheduler, request)
            continue
        if request.request_id not in why:
            why[request.request_id] = _why_not_admitted(scheduler, plan, request, head)
        head = head or request
    return why


def _why_not_run(plan: PassPlan, request: Request) -> Why:
    if plan.preempted:
        return _after_preemption(plan)
    if request.num_tokens == request.num_computed_tokens:
        return ["nothing_to_do", {}]
    return ["no_budget", {"token_budget": plan.token_budget}]


def _why_not_admitted(scheduler: Scheduler, plan: PassPlan, request: Request, head: Request | None) -> Why:
    if plan.preempted:
        return _after_preemption(plan)
    if plan.token_budget == 0:
        return ["no_budget", {"token_budget": 0}]
    if len(scheduler.running) >= scheduler.config.max_num_seqs:
        return ["no_rows", {"max_num_seqs": scheduler.config.max_num_seqs, "running": len(scheduler.running)}]
    if head is not None:
        return ["behind", {"request": head.request_id}]
    manager = scheduler.kv_cache_manager
    computed_blocks = manager.get_computed_blocks(request)
    needed = manager.num_blocks_to_allocate(request, request.num_tokens, computed_blocks)
    if needed > manager.block_pool.num_free_blocks:
        return ["no_blocks", {"needed": needed, "free": manager.block_pool.num_free_blocks}]
    num_new_tokens = request.num_tokens - len(computed_blocks) * manager.block_size
    return ["no_budget", {"token_budget": plan.token_budget, "needed": num_new_tokens}]


def _why_no_grammar(scheduler: Scheduler, request: Request) -> Why:
    structured = request.structured_output_request
    if structured is not None and structured.error is not None:
        return ["grammar_failed", {"error": structured.error}]
    return ["waiting_for_grammar", {"limit_s": scheduler.structured_output_manager.compile_limit_s}]


def _after_preemption(plan: PassPlan) -> Why:
    return ["after_preemption", {"request": plan.preempted[-1].request_id}]

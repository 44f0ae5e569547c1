"""What must hold of a scheduler and its blocks between any two calls. Used in check mode and by every engine test."""

from collections import Counter

from engine.request import RequestStatus
from engine.scheduler import Scheduler

WAITING_STATUSES = (
    RequestStatus.WAITING,
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR,
    RequestStatus.PREEMPTED,
)


def violated_invariant(scheduler: Scheduler) -> str | None:
    """Return the first invariant that doesn't hold, in words, or None."""
    return _requests(scheduler) or _blocks(scheduler) or _prefix_cache(scheduler) or _idle(scheduler)


def _requests(scheduler: Scheduler) -> str | None:
    running = [request.request_id for request in scheduler.running]
    waiting = [request.request_id for request in scheduler.waiting]
    if sorted(running + waiting) != sorted(scheduler.requests):
        return f"live requests {sorted(scheduler.requests)} are not running {running} plus waiting {waiting}"
    if any(request.status is not RequestStatus.RUNNING for request in scheduler.running):
        return "a request in the running list does not have that status"
    if any(request.status not in WAITING_STATUSES for request in scheduler.waiting):
        return f"a request in the waiting queue has none of {', '.join(status.name for status in WAITING_STATUSES)}"
    if len(running) > scheduler.config.max_num_seqs:
        return f"{len(running)} requests run in {scheduler.config.max_num_seqs} rows"
    return None


def _blocks(scheduler: Scheduler) -> str | None:
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    if set(manager.req_to_blocks) != {request.request_id for request in scheduler.running}:
        return f"{sorted(manager.req_to_blocks)} hold blocks, and those running are others"
    held = Counter(block.block_id for blocks in manager.req_to_blocks.values() for block in blocks)
    free = [block.block_id for block in pool.free_block_queue]
    if len(free) != pool.num_free_blocks or len(set(free)) != len(free):
        return f"the free queue holds {free} and counts {pool.num_free_blocks}"
    if len(free) + len(held) != pool.num_usable_blocks or set(free) & set(held):
        return f"{len(free)} free and {len(held)} held blocks do not make {pool.num_usable_blocks}"
    for block in pool.blocks:
        if block.ref_cnt != held[block.block_id]:
            return f"block {block.block_id} counts {block.ref_cnt} references and is held by {held[block.block_id]}"
    for request in scheduler.running:
        blocks = manager.req_to_blocks[request.request_id]
        if request.num_slots != len(blocks) * manager.block_size or request.num_computed_tokens > request.num_slots:
            return f"{request.request_id}: {request.num_computed_tokens} computed tokens, {len(blocks)} blocks"
    return None


def _prefix_cache(scheduler: Scheduler) -> str | None:
    pool = scheduler.kv_cache_manager.block_pool
    cached = {block.block_id: block.block_hash for block in pool.blocks if block.block_hash is not None}
    findable = {block_id: key for key, blocks in pool.cached_blocks.items() for block_id in blocks}
    if cached != findable:
        return f"blocks {sorted(cached)} carry a hash and {sorted(findable)} can be found"
    if cached and not pool.enable_caching:
        return "blocks are cached although prefix caching is off"
    return None


def _idle(scheduler: Scheduler) -> str | None:
    pool = scheduler.kv_cache_manager.block_pool
    if not scheduler.requests and pool.num_free_blocks != pool.num_usable_blocks:
        return f"no request lives and {pool.num_usable_blocks - pool.num_free_blocks} blocks are held"
    return None

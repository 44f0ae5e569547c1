"""Blocks: the order they are handed out in, how long their contents can be found, and what they are called."""

import pytest
from helpers.fake_executor import request

from engine.block_hash import block_hashes
from engine.block_pool import BlockPool
from engine.free_block_queue import FreeBlockQueue, KVCacheBlock
from engine.kv_cache_manager import KVCacheManager
from engine.request import Request
from engine.request_queue import create_request_queue


def ids(blocks) -> list[int]:
    return [block.block_id for block in blocks]


def new_request(prompt: list[int], **fields) -> Request:
    return Request(request("A", prompt, **fields))


def test_the_free_queue_gives_from_the_front_and_from_the_middle() -> None:
    blocks = [KVCacheBlock(i) for i in range(6)]
    queue = FreeBlockQueue(blocks)
    assert ids(queue.pop_left(2)) == [0, 1]
    queue.remove(blocks[3])
    queue.prepend_all([blocks[1], blocks[0]])
    queue.append_all([blocks[3]])
    assert ids(queue) == [1, 0, 2, 4, 5, 3]
    assert queue.num_free_blocks == 6
    assert queue.pop_left(0) == []
    with pytest.raises(AssertionError):
        queue.pop_left(7)


def test_block_0_is_never_handed_out() -> None:
    pool = BlockPool(4, enable_caching=True)
    assert ids(pool.get_new_blocks(3)) == [1, 2, 3]
    assert pool.num_free_blocks == 0


def test_blocks_that_can_be_hit_are_kept_longest() -> None:
    pool = BlockPool(8, enable_caching=True)
    blocks = pool.get_new_blocks(4)
    pool.cache_block(blocks[0], b"a")
    pool.cache_block(blocks[1], b"b")
    pool.free_blocks(reversed(blocks))
    assert ids(pool.free_block_queue) == [4, 3, 5, 6, 7, 2, 1]


def test_a_block_handed_out_again_can_no_longer_be_found() -> None:
    pool = BlockPool(3, enable_caching=True)
    blocks = pool.get_new_blocks(2)
    pool.cache_block(blocks[0], b"same")
    pool.cache_block(blocks[1], b"same")
    pool.free_blocks([blocks[0]])
    pool.free_blocks([blocks[1]])
    assert pool.get_cached_block(b"same") is blocks[0]
    pool.get_new_blocks(1)
    assert pool.get_cached_block(b"same") is blocks[1]
    pool.get_new_blocks(1)
    assert pool.get_cached_block(b"same") is None
    assert not pool.cached_blocks


def test_a_shared_block_is_free_when_its_last_holder_leaves() -> None:
    pool = BlockPool(3, enable_caching=True)
    (block,) = pool.get_new_blocks(1)
    pool.cache_block(block, b"a")
    pool.touch([block])
    pool.free_blocks([block])
    assert pool.num_free_blocks == 1
    pool.free_blocks([block])
    assert pool.num_free_blocks == 2
    with pytest.raises(AssertionError, match="freed twice"):
        pool.free_blocks([block])


def test_a_hash_names_everything_before_it_too() -> None:
    def hashes(tokens: list[int], salt: str | None = None) -> list[bytes]:
        return block_hashes(new_request(tokens, cache_salt=salt), len(tokens) // 2, 2)

    assert hashes([1, 2, 3, 4]) == hashes([1, 2, 3, 4, 5])
    assert hashes([1, 2, 3, 4])[0] == hashes([1, 2, 9, 9])[0]
    assert hashes([1, 2, 3, 4])[1] != hashes([9, 9, 3, 4])[1]
    different = [hashes([1, 2], salt)[0] for salt in (None, "", "a", "b")]
    assert len(set(different)) == 4
    assert len(different[0]) == 32


def test_hashes_follow_a_request_that_grows() -> None:
    growing = new_request([1, 2, 3])
    assert len(block_hashes(growing, 1, 2)) == 1
    growing.append_output_token_ids([4])
    assert block_hashes(growing, 2, 2) == block_hashes(new_request([1, 2, 3, 4]), 2, 2)


def test_what_does_not_fit_changes_nothing() -> None:
    manager = KVCacheManager(num_gpu_blocks=4, block_size=4, enable_caching=True)
    big = new_request([1] * 16)
    assert manager.allocate_slots(big, 16) is None
    assert manager.block_pool.num_free_blocks == 3
    assert not manager.req_to_blocks
    assert ids(manager.allocate_slots(big, 12)) == [1, 2, 3]


def test_hits_on_free_blocks_count_as_blocks_that_are_needed() -> None:
    manager = KVCacheManager(num_gpu_blocks=4, block_size=4, enable_caching=True)
    first = new_request([1] * 9)
    manager.allocate_slots(first, 9)
    manager.free(first)
    again = new_request([1] * 13)
    hits = manager.get_computed_blocks(again)
    assert ids(hits) == [1, 2]
    assert manager.num_blocks_to_allocate(again, 13, hits) == 4
    assert manager.allocate_slots(again, 5, hits) is None
    assert manager.num_blocks_to_allocate(again, 12, hits) == 3


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_queue_hands_out_in_the_order_it_shows_and_forgets_what_is_removed(policy: str) -> None:
    queue = create_request_queue(policy)
    requests = [
        Request(request(str(i), priority=priority, arrival_time=float(i))) for i, priority in enumerate([3, 1, 2, 1])
    ]
    for each in requests:
        queue.add_request(each)
    queue.remove_requests([requests[2]])
    shown = [each.request_id for each in queue]
    assert shown == (["1", "3", "0"] if policy == "priority" else ["0", "1", "3"])
    first = queue.pop_request()
    queue.prepend_request(first)
    assert queue.peek_request() is first
    assert [queue.pop_request().request_id for _ in range(len(queue))] == shown

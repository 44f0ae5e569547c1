"""Every physical KV block: who may have it next, how many hold it, and which contents can be found again."""

from collections.abc import Iterable, Sequence

from engine.block_journal import BlockJournal
from engine.free_block_queue import FreeBlockQueue, KVCacheBlock

NULL_BLOCK_ID = 0  # never handed out: what an unused block-table entry points at


class BlockPool:
    """Blocks 1 to num_gpu_blocks - 1, handed out and taken back in vLLM's order."""

    def __init__(self, num_gpu_blocks: int, enable_caching: bool) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.free_block_queue = FreeBlockQueue(self.blocks[NULL_BLOCK_ID + 1 :])
        # hash -> block id -> block: equal contents may have been computed more than once
        self.cached_blocks: dict[bytes, dict[int, KVCacheBlock]] = {}
        self.journal: BlockJournal | None = None  # for the trace

    @property
    def num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    @property
    def num_usable_blocks(self) -> int:
        return self.num_gpu_blocks - 1

    def get_cached_block(self, block_hash: bytes) -> KVCacheBlock | None:
        """Return the first block that was cached with these contents and still has them."""
        blocks = self.cached_blocks.get(block_hash)
        return next(iter(blocks.values())) if blocks else None

    def cache_block(self, block: KVCacheBlock, block_hash: bytes) -> None:
        """Let a full block be found by its hash."""
        assert block.block_hash is None, f"block {block.block_id} is cached already"
        block.block_hash = block_hash
        self.cached_blocks.setdefault(block_hash, {})[block.block_id] = block
        if self.journal:
            self.journal.changed([block])

    def get_new_blocks(self, count: int) -> list[KVCacheBlock]:
        """Hand out blocks; what they had cached is lost. The caller has checked `num_free_blocks`."""
        blocks = self.free_block_queue.pop_left(count)
        for block in blocks:
            assert block.ref_cnt == 0
            block.ref_cnt = 1
            if block.block_hash is not None:
                self._forget(block)
                if self.journal:
                    self.journal.evicted.append(block.block_id)
        if self.journal:
            self.journal.changed(blocks)
        return blocks

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take another reference to cached blocks, out of the free queue where need be."""
        for block in blocks:
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1
        if self.journal:
            self.journal.changed(blocks)

    def free_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Give up one reference to each. Of those now free, the first will be handed out first.

        Blocks that can be hit go to the end of the queue, so that the least recently used is lost first. The others go
        to the front: there is nothing to lose in them, and they are warm.
        """
        findable: list[KVCacheBlock] = []
        unfindable: list[KVCacheBlock] = []
        for block in blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0, f"block {block.block_id} was freed twice"
            if block.ref_cnt == 0:
                (unfindable if block.block_hash is None else findable).append(block)
            if self.journal:
                self.journal.changed([block])
        self.free_block_queue.prepend_all(unfindable)
        self.free_block_queue.append_all(findable)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached contents. Does nothing and returns False while any block is held."""
        if self.num_free_blocks != self.num_usable_blocks:
            return False
        self.cached_blocks.clear()
        if self.journal:
            self.journal.changed([block for block in self.blocks if block.block_hash is not None])
        for block in self.blocks:
            block.block_hash = None
        return True

    def uncache(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Let blocks that are held no longer be found."""
        for block in blocks:
            self._forget(block)
        if self.journal:
            self.journal.changed(blocks)

    def _forget(self, block: KVCacheBlock) -> None:
        assert block.block_hash is not None
        same = self.cached_blocks[block.block_hash]
        del same[block.block_id]
        if not same:
            del self.cached_blocks[block.block_hash]
        block.block_hash = None

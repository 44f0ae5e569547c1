"""Which blocks each request holds, and which of its tokens need not be computed again."""

from collections.abc import Sequence

from engine.block_hash import block_hashes
from engine.block_pool import BlockPool
from engine.free_block_queue import KVCacheBlock
from engine.request import Request


class KVCacheManager:
    """Gives requests the blocks that their tokens need, and takes them back tail first."""

    def __init__(self, num_gpu_blocks: int, block_size: int, enable_caching: bool) -> None:
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.block_pool = BlockPool(num_gpu_blocks, enable_caching)
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}

    def get_computed_blocks(self, request: Request) -> list[KVCacheBlock]:
        """Return the cached blocks that the request's known tokens begin with.

        The last known token is never among them: computing it gives the logits to sample from.
        """
        found: list[KVCacheBlock] = []
        if not (self.enable_caching and request.reads_prefix_cache):
            return found
        for block_hash in block_hashes(request, (request.num_tokens - 1) // self.block_size, self.block_size):
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def num_blocks_to_allocate(
        self, request: Request, num_tokens: int, computed_blocks: Sequence[KVCacheBlock] = ()
    ) -> int:
        """Return how many free blocks it takes until the request has slots for its first `num_tokens`."""
        held = request.num_slots // self.block_size + len(computed_blocks)
        new = max(-(-num_tokens // self.block_size) - held, 0)
        return new + sum(block.ref_cnt == 0 for block in computed_blocks)

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        computed_blocks: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> list[KVCacheBlock] | None:
        """Give the request slots for `num_new_tokens` after its computed ones and those in `computed_blocks`.

        Returns the new blocks, or None, with nothing changed, when there are too few. `full_sequence_must_fit` asks
        for room for all known tokens before a first chunk is admitted. Blocks that these tokens will fill are cached
        at once: what the same pass computes can be hit by later requests of that pass.
        """
        num_computed = request.num_computed_tokens + len(computed_blocks) * self.block_size
        num_tokens = num_computed + num_new_tokens
        must_fit = request.num_tokens if full_sequence_must_fit else num_tokens
        if self.num_blocks_to_allocate(request, must_fit, computed_blocks) > self.block_pool.num_free_blocks:
            return None

        blocks = self.req_to_blocks.setdefault(request.request_id, [])
        if computed_blocks:
            assert not blocks, "only a request that holds nothing can take cached blocks"
            self.block_pool.touch(computed_blocks)
            blocks += computed_blocks
            request.num_cached_blocks = len(blocks)
        new_blocks = self.block_pool.get_new_blocks(max(-(-num_tokens // self.block_size) - len(blocks), 0))
        blocks += new_blocks
        request.num_slots = len(blocks) * self.block_size
        if self.enable_caching:
            self._cache_full_blocks(request, blocks, min(num_tokens, request.num_tokens) // self.block_size)
        return new_blocks

    def free(self, request: Request) -> None:
        """Take all blocks back, the last one first, so that a shared beginning is kept longest."""
        self.block_pool.free_blocks(reversed(self.req_to_blocks.pop(request.request_id, [])))
        request.num_slots = request.num_cached_blocks = 0

    def forget_uncomputed(self, request: Request) -> None:
        """Let nobody find the blocks that this pass was to fill and won't; nobody has hit them, as hits come later."""
        first = request.num_computed_tokens // self.block_size
        self.block_pool.uncache(self.req_to_blocks[request.request_id][first : request.num_cached_blocks])
        request.num_cached_blocks = min(first, request.num_cached_blocks)

    def get_block_ids(self, request_id: str) -> list[int]:
        """Return the ids of the blocks that the request holds, in the order of its tokens."""
        return [block.block_id for block in self.req_to_blocks.get(request_id, ())]

    def reset_prefix_cache(self) -> bool:
        """Forget all cached contents. Does nothing and returns False while any request holds a block."""
        return self.block_pool.reset_prefix_cache()

    def _cache_full_blocks(self, request: Request, blocks: list[KVCacheBlock], num_full: int) -> None:
        if num_full <= request.num_cached_blocks:
            return
        hashes = block_hashes(request, num_full, self.block_size)
        for i in range(request.num_cached_blocks, num_full):
            self.block_pool.cache_block(blocks[i], hashes[i])
        request.num_cached_blocks = num_full

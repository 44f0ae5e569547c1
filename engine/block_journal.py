"""Which KV blocks have changed since the trace last looked."""

from collections.abc import Iterable

from engine.free_block_queue import KVCacheBlock


class BlockJournal:
    """Kept by the block pool while something is traced."""

    def __init__(self) -> None:
        self.evicted: list[int] = []  # ids of blocks whose cached contents were given up for a new holder
        self._changed: dict[int, KVCacheBlock] = {}
        self._cached: set[int] = set()  # ids of free blocks that can be found, as they were last taken

    @property
    def num_cached_blocks(self) -> int:
        """How many blocks were free and findable at the last `take`."""
        return len(self._cached)

    def changed(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Note blocks whose reference count or cached contents change."""
        for block in blocks:
            self._changed[block.block_id] = block

    def take(self) -> list[tuple[int, int, int]]:
        """Return [block id, reference count, whether it is cached] as they are now, and start anew."""
        if not self._changed:
            return []
        blocks = self._changed.values()
        changes = [(block.block_id, block.ref_cnt, int(block.block_hash is not None)) for block in blocks]
        self._changed = {}
        for block_id, ref_cnt, cached in changes:
            if cached and not ref_cnt:
                self._cached.add(block_id)
            else:
                self._cached.discard(block_id)
        return changes

    def take_evicted(self) -> list[int]:
        evicted, self.evicted = self.evicted, []
        return evicted

"""Free blocks in the order in which they will be handed out: a doubly linked list through the blocks themselves."""

from collections.abc import Iterable, Iterator


class KVCacheBlock:
    """One physical block. A free block may still carry a hash: then it can be hit until it is handed out."""

    __slots__ = ("block_hash", "block_id", "next_free", "prev_free", "ref_cnt")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None  # set while its contents can be found in the prefix cache
        self.prev_free: KVCacheBlock | None = None
        self.next_free: KVCacheBlock | None = None


class FreeBlockQueue:
    """Takes a block out of the middle in constant time, as a prefix-cache hit must."""

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self._head = KVCacheBlock(-1)  # ends of the list, never handed out
        self._tail = KVCacheBlock(-1)
        _link(self._head, self._tail)
        self.num_free_blocks = 0
        self.append_all(blocks)

    def pop_left(self, count: int) -> list[KVCacheBlock]:
        """Take the first `count` blocks. The caller has checked that there are as many."""
        assert count <= self.num_free_blocks
        taken = []
        block = self._head
        for _ in range(count):
            block = block.next_free  # type: ignore[assignment]
            taken.append(block)
        if taken:
            _link(self._head, block.next_free)  # type: ignore[arg-type]
            for block in taken:
                block.prev_free = block.next_free = None
        self.num_free_blocks -= count
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        """Take one block, wherever it is."""
        assert block.prev_free is not None, f"block {block.block_id} is not free"
        assert block.next_free is not None
        _link(block.prev_free, block.next_free)
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1

    def append_all(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Add blocks to be handed out last, in their order."""
        self._insert(blocks, self._tail.prev_free, self._tail)

    def prepend_all(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Add blocks to be handed out first, in their order."""
        self._insert(blocks, self._head, self._head.next_free)

    def _insert(self, blocks: Iterable[KVCacheBlock], before: KVCacheBlock | None, after: KVCacheBlock | None) -> None:
        assert before is not None
        assert after is not None
        for block in blocks:
            _link(before, block)
            before = block
            self.num_free_blocks += 1
        _link(before, after)

    def __iter__(self) -> Iterator[KVCacheBlock]:
        block = self._head.next_free
        while block is not None and block is not self._tail:
            yield block
            block = block.next_free


def _link(left: KVCacheBlock, right: KVCacheBlock) -> None:
    left.next_free, right.prev_free = right, left

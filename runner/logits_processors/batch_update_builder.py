"""Collects what happens to the batch's rows between two passes."""

from runner.cached_request import CachedRequestState
from runner.logits_processors.interface import BatchUpdate, MoveDirectionality


class BatchUpdateBuilder:
    """The batch tells it of each removal, then of each addition, then of each move."""

    def __init__(self) -> None:
        self._removed: set[int] = set()
        self._added: list[tuple] = []
        self._moved: list[tuple[int, int, MoveDirectionality]] = []

    def remove(self, row: int) -> None:
        self._removed.add(row)

    def add(self, row: int, request: CachedRequestState) -> None:
        self._removed.discard(row)
        self._added.append((row, request.sampling_params, request.prompt_token_ids, request.output_token_ids))

    def move(self, src: int, dst: int) -> None:
        """Row `dst` is empty."""
        self._removed.discard(dst)
        self._moved.append((src, dst, MoveDirectionality.UNIDIRECTIONAL))

    def swap(self, a: int, b: int) -> None:
        self._moved.append((a, b, MoveDirectionality.SWAP))

    def take(self, batch_size: int) -> BatchUpdate | None:
        """Return what has been collected, None for nothing, and begin anew."""
        if not (self._removed or self._added or self._moved):
            return None
        update = BatchUpdate(batch_size, sorted(self._removed), self._added, self._moved)
        self._removed, self._added, self._moved = set(), [], []
        return update

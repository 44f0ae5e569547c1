"""Which rank this process is. One process is the only one so far; the questions are asked where vLLM asks them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    """A group of ranks along one dimension of parallelism."""

    rank_in_group: int
    world_size: int

    @property
    def is_last_rank(self) -> bool:
        return self.rank_in_group == self.world_size - 1


_pp_group = GroupCoordinator(rank_in_group=0, world_size=1)


def get_pp_group() -> GroupCoordinator:
    """Return the pipeline-parallel group of this process."""
    return _pp_group

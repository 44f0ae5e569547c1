"""Engines measured in turns, so that whatever happens to the machine happens to all of them."""

import statistics
from collections.abc import Sequence

from batchscope.bench.peer import Peer
from batchscope.bench.workloads import Workload

Values = dict[str, list[float]]  # one number a turn, by engine


def take_turns(peers: Sequence[Peer], workload: Workload, turns: int) -> Values:
    """Measure every engine that can `turns` times, one after the other, after a warm-up; each second turn backwards."""
    able = [peer for peer in peers if workload.can(peer)]
    for peer in able:
        workload.warm_up(peer)
    values: Values = {peer.name: [] for peer in able}
    for turn in range(turns):
        for peer in able if turn % 2 == 0 else reversed(able):
            values[peer.name].append(workload.measure(peer, turn + 1))
    return values


def ratios(workload: Workload, values: Values, ours: str) -> dict[str, float]:
    """Return how many times as good as each other engine's median ours is, by the other's name."""
    mine = statistics.median(values[ours])
    return {
        name: workload.ratio(mine, statistics.median(theirs)) for name, theirs in values.items() if not is_ours(name)
    }


def is_ours(name: str) -> bool:
    """Whether an engine of this name is one of our variants."""
    return name.startswith("batchscope")

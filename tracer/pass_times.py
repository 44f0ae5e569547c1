"""Where the time of a pass goes, from its record."""

from collections.abc import Iterable

from tracer.phases import Phase
from tracer.schema import PassRecord, PhaseRecord

BETWEEN_PHASES = "between phases"  # the hand-off, and putting the record together
ENCLOSING = Phase.EXECUTE_MODEL  # the call, whose own phases lie inside it


def pass_ns(record: PassRecord) -> int:
    """Return how long the pass took, from its start to the end of its last phase."""
    return max((phase.end for phase in record.phases), default=0)


def phase_ns(record: PassRecord) -> dict[str, int]:
    """Return each phase's nanoseconds and those between phases; together they are exactly `pass_ns`.

    A phase that overlaps an earlier one counts from that one's end.
    """
    spent: dict[str, int] = {}
    reached = 0
    for phase in sorted(_innermost(record), key=lambda phase: phase.start):
        start = max(phase.start, reached)
        spent[BETWEEN_PHASES] = spent.get(BETWEEN_PHASES, 0) + start - reached
        reached = max(phase.end, start)
        spent[phase.phase] = spent.get(phase.phase, 0) + reached - start
    spent[BETWEEN_PHASES] = spent.get(BETWEEN_PHASES, 0) + pass_ns(record) - reached
    return spent


def sum_phase_ns(records: Iterable[PassRecord]) -> dict[str, int]:
    """Return `phase_ns` over all records, in the order of a pass, what lies between phases last."""
    total: dict[str, int] = {}
    for record in records:
        for name, ns in phase_ns(record).items():
            total[name] = total.get(name, 0) + ns
    return {name: total[name] for name in (*Phase, BETWEEN_PHASES) if name in total}


def _innermost(record: PassRecord) -> list[PhaseRecord]:
    return [phase for phase in record.phases if phase.phase != ENCLOSING]

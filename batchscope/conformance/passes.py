"""Puts one pass into the shape of a recording, from the phases that the runner recorded."""

from typing import Any

from tracer.fold import apply_change
from tracer.phases import PHASE_ORDER, Phase
from tracer.schema import PhaseRecord

Rows = list[dict[str, Any] | None]
INPUTS = (
    "num_scheduled_tokens", "query_start_loc", "positions", "input_ids", "seq_lens", "slot_mapping",
    "logits_indices", "discard_request_mask",
)  # fmt: skip
BATCH = ("num_computed_tokens", "num_tokens_no_spec", "num_prompt_tokens", "block_table")
TOKEN_VALUES = ("input_ids", "sampled_token_ids")  # what depends on the weights


def observed_pass(rows: Rows, phases: list[PhaseRecord]) -> dict[str, Any]:
    """Fold the phases of one pass into `rows`, in place, and return the pass as recordings hold it."""
    facts = {phase.phase: phase.facts for phase in phases}
    seen: dict[str, Any] = {"batch_before": {row["req_id"]: i for i, row in enumerate(rows) if row}}
    _apply(rows, phases, lambda phase: PHASE_ORDER[phase] <= PHASE_ORDER[Phase.REFRESH_METADATA])
    live = [row for row in rows if row]
    seen["moved"] = facts[Phase.CONDENSE]["moved"] + facts[Phase.REORDER]["moved"]
    seen["batch"] = {"req_ids": [row["req_id"] for row in live], "num_reqs": facts[Phase.REFRESH_METADATA]["num_reqs"]}
    seen["batch"] |= {name: [_plain(row[name]) for row in live] for name in BATCH}
    seen["cached_requests"] = sorted(facts[Phase.REFRESH_METADATA]["cached_requests"])
    if Phase.PREPARE_INPUTS in facts:
        seen["inputs"] = {name: facts[Phase.PREPARE_INPUTS][name] for name in INPUTS}
    if Phase.PARK_LOGITS in facts:
        seen["parked"] = facts[Phase.PARK_LOGITS]["parked"]
    if Phase.BOOKKEEPING in facts:
        seen["sampled_token_ids"] = facts[Phase.BOOKKEEPING]["sampled_token_ids"]
    _apply(rows, phases, lambda phase: PHASE_ORDER[phase] > PHASE_ORDER[Phase.REFRESH_METADATA])
    return seen


def recorded_pass(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what a recording says of one pass, apart from the scheduler's decision."""
    expected = {name: value for name, value in entry.items() if name != "scheduler_output"}
    return expected | {"cached_requests": sorted(entry["cached_requests"])}


def layout_only(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the pass without what depends on the model's weights: which token ids, though not how many."""
    rest = {name: value for name, value in seen.items() if name not in TOKEN_VALUES}
    if "inputs" in seen:
        rest["inputs"] = {name: value for name, value in seen["inputs"].items() if name not in TOKEN_VALUES}
    if "sampled_token_ids" in seen:
        rest["num_sampled"] = [len(ids) for ids in seen["sampled_token_ids"]]
    return rest


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value  # later phases go on to assign into the row


def _apply(rows: Rows, phases: list[PhaseRecord], wanted: Any) -> None:
    for phase in phases:
        if wanted(phase.phase):
            for change in phase.changes:
                apply_change(rows, change)

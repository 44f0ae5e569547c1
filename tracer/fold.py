"""Rebuilds the batch and the requests from log entries, by assignment alone.

The browser has the same lines in webui/static/fold.js.
"""

from typing import Any

from tracer.schema import Change, EventRecord, PassRecord

KEPT_FINISHED = 256  # finished requests that the state still knows


def new_state(max_num_seqs: int) -> dict[str, Any]:
    """Return the state before the first entry: `rows` is a list of max_num_seqs maps or None."""
    rows: list[dict[str, Any] | None] = [None] * max_num_seqs
    return {"seq": -1, "pass_id": -1, "rows": rows, "requests": {}, "finished": [], "gate": {}, "blocks": {}}


def fold(state: dict[str, Any], entry: PassRecord | EventRecord) -> dict[str, Any]:
    """Apply one log entry to the state, in place, and return it."""
    if isinstance(entry, PassRecord):
        for phase in entry.phases:
            for change in phase.changes:
                apply_change(state["rows"], change)
            if phase.requests:
                _merge_requests(state, phase.requests)
            if phase.blocks:
                _assign_blocks(state, phase.blocks)
            for req_id, start, ids in phase.output:
                state["requests"][req_id]["output_token_ids"][start:] = ids
        state["pass_id"] = entry.pass_id
    else:
        _merge_requests(state, entry.requests)
        _assign_blocks(state, entry.blocks)
        if entry.kind == "gate":
            state["gate"] = entry.facts
    state["seq"] = entry.seq
    return state


def apply_change(rows: list[dict[str, Any] | None], change: Change) -> None:
    """Apply one assignment of tracer.schema.Change to the rows."""
    match change:
        case ["set", field, where, values]:
            for row, value in zip(where, values, strict=True):
                if rows[row] is None:
                    rows[row] = {}
                rows[row][field] = value
        case ["put", field, where, starts, values]:
            for row, start, ids in zip(where, starts, values, strict=True):
                rows[row][field][start:] = ids
        case ["clear", row]:
            rows[row] = None
        case ["move", src, dst]:
            rows[dst], rows[src] = rows[src], None
        case ["swap", a, b]:
            rows[a], rows[b] = rows[b], rows[a]
        case _:
            raise ValueError(f"unknown change {change[:1]} in the trace: it was made by a newer version; update")


def _assign_blocks(state: dict[str, Any], blocks: list[tuple[int, int, int]]) -> None:
    for block_id, ref_cnt, cached in blocks:
        state["blocks"][str(block_id)] = [ref_cnt, cached]  # a key of JSON


def _merge_requests(state: dict[str, Any], requests: list[tuple[str, dict[str, Any]]]) -> None:
    for req_id, partial in requests:
        if "prompt_token_ids" in partial:  # added: an id that has finished and comes again is another request
            state["requests"][req_id] = {"output_token_ids": []}
            state["finished"] = [known for known in state["finished"] if known != req_id]
        state["requests"].setdefault(req_id, {"output_token_ids": []}).update(partial)
        if "finish_reason" in partial:
            state["finished"].append(req_id)
            if len(state["finished"]) > KEPT_FINISHED:
                del state["requests"][state["finished"].pop(0)]

"""The folded state as a block of a trace begins with it: what is said elsewhere in the file is not said again.

A row leaves out the token ids that its request has, and a finished request is the number of the block in which it
finished: that block keeps its last state, once.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from tracer.fold import fold, new_state
from tracer.schema import EventRecord
from tracer.trace_format import TraceError

Requests = dict[str, dict[str, Any]]


class Keyframe(msgspec.Struct):
    """A state of tracer.fold, without keys that are no text. `requests` stand in the state's order."""

    seq: int
    pass_id: int
    rows: list[dict[str, Any] | None]
    requests: list[tuple[str, int | dict[str, Any]]]  # its state, or the block in which it finished
    finished: list[str]
    gate: dict[str, Any]
    blocks: list[tuple[int, int, int]]


def pack_keyframe(state: dict[str, Any], ended_in: dict[str, int]) -> dict[str, Any]:
    """Return the keyframe of a state as plain values; `ended_in` is the block of each finished request.

    Its KV blocks are left out: tracer.block_states has them.
    """
    requests = {req_id: known for req_id, known in state["requests"].items() if req_id not in ended_in}
    return {
        "seq": state["seq"],
        "pass_id": state["pass_id"],
        "rows": [row and _pack_row(row, requests) for row in state["rows"]],
        "requests": [[req_id, ended_in.get(req_id, known)] for req_id, known in state["requests"].items()],
        "finished": list(state["finished"]),
        "gate": state["gate"],
    }


def unpack_keyframe(data: bytes, max_num_seqs: int, ended: Callable[[int], Requests]) -> dict[str, Any]:
    """Return the state. `ended(block)` gives the last states of the requests that finished in it.

    Raises TraceError for what no writer makes.
    """
    try:
        keyframe = msgspec.msgpack.decode(data, type=Keyframe)
        requests = {
            req_id: dict(ended(known)[req_id]) if isinstance(known, int) else dict(known)
            for req_id, known in keyframe.requests
        }
        rows = [row if row is None else _unpack_row(row, requests) for row in keyframe.rows]
        requests = {req_id: _own_lists(known) for req_id, known in requests.items()}
    except (msgspec.ValidationError, LookupError, TypeError) as error:
        raise TraceError(f"a block's keyframe cannot be read: {type(error).__name__}: {error}") from None
    if len(rows) != max_num_seqs:
        raise TraceError(f"a block's keyframe has {len(rows)} rows, and the trace has {max_num_seqs}")
    state = fold(new_state(0), EventRecord(keyframe.seq, "keyframe", 0.0, {}, blocks=keyframe.blocks))
    return state | {
        "pass_id": keyframe.pass_id,
        "rows": rows,
        "requests": requests,
        "finished": keyframe.finished,
        "gate": keyframe.gate,
    }


def _pack_row(row: dict[str, Any], requests: Requests) -> dict[str, Any]:
    request = requests.get(row.get("req_id", ""))
    if request is None or "token_ids" not in row or row["token_ids"] != _tokens(request):
        return row
    return {field: value for field, value in row.items() if field != "token_ids"} | {"token_ids": None}


def _unpack_row(row: dict[str, Any], requests: Requests) -> dict[str, Any]:
    if row.get("token_ids", ()) is None:
        row["token_ids"] = _tokens(requests[row["req_id"]])
    return row


def _tokens(request: dict[str, Any]) -> list[int]:
    return request.get("prompt_token_ids", []) + request.get("output_token_ids", [])


def _own_lists(request: dict[str, Any]) -> dict[str, Any]:
    """Fold grows a request's output in place: it must not be a list that another state has too."""
    return request | {"output_token_ids": list(request.get("output_token_ids", ()))}

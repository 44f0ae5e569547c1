"""What a trace consists of: log entries, pass records and the changes in them.

An entry is a plain map once encoded (msgpack), so that a browser reads it without a schema. Every entry has `seq`, the
engine's gapless number, and `kind`. Times are nanoseconds of the monotonic clock, counted from `start_ns` of the pass.
"""

from typing import Any

import msgspec

SCHEMA_VERSION = 1

# The fields of one batch row, as `fold` rebuilds them and as InputBatch holds them.
ROW_FIELDS = (
    "req_id",  # str
    "num_prompt_tokens",  # int
    "num_computed_tokens",  # int, before this pass computes its tokens
    "num_tokens_no_spec",  # int, prompt and output tokens known
    "token_ids",  # list[int], num_tokens_no_spec of them
    "block_table",  # list[int], physical block ids in order
    "temperature",  # float
    "top_p",  # float
    "top_k",  # int, 0 for off
    "min_p",  # float
    "presence_penalty",  # float
    "frequency_penalty",  # float
    "repetition_penalty",  # float, 1 for off
)

# A change is a list whose head names the assignment:
#   ["set", field, [row, ...], [value, ...]]           row[field] = value
#   ["put", field, [row, ...], [start, ...], [[...]]]  row[field][start:] = values (for token_ids and block_table)
#   ["clear", row]                                     the row is empty
#   ["move", src, dst]                                 dst = src, src is empty
#   ["swap", a, b]                                     a, b = b, a
Change = list[Any]


class PhaseRecord(msgspec.Struct, omit_defaults=True):
    """One phase of one pass.

    `facts` holds what the phase made, under the field names of vLLM and of the recordings in tests/vectors.
    `changes` holds its assignments to the batch. `requests` holds [request id, partial state] pairs, to be merged into
    what is known of the request; `output` holds [request id, start, token ids] triples. `blocks` holds a triple
    for each KV block that changed: [block id, reference count, 1 where the prefix cache can find its contents].
    """

    phase: str
    start: int
    end: int
    facts: dict[str, Any] = {}
    changes: list[Change] = []
    requests: list[tuple[str, dict[str, Any]]] = []
    output: list[tuple[str, int, list[int]]] = []
    blocks: list[tuple[int, int, int]] = []


class PassRecord(msgspec.Struct):
    """One pass of the engine: a call of `EngineCore.step` that had something to do."""

    seq: int
    kind: str  # "pass"
    pass_id: int  # counts from 0, one more each pass
    time: float  # wall clock at the start, seconds since the epoch
    start_ns: int
    phases: list[PhaseRecord]


class EventRecord(msgspec.Struct):
    """What happens between passes: kind is "request" (added, aborted, refused) or "gate" (see Gate.state).

    While the gate holds a pass inside, its facts have `held`: pass_id, time, start_ns and the phases so far, as the
    PassRecord will have them. Requests that are added then have a seq before that of the pass.
    """

    seq: int
    kind: str
    time: float
    facts: dict[str, Any]
    requests: list[tuple[str, dict[str, Any]]] = []
    blocks: list[tuple[int, int, int]] = []


Entry = PassRecord | EventRecord


class Head(msgspec.Struct):
    """What every entry begins with."""

    seq: int
    kind: str


class _PhaseChanges(msgspec.Struct):
    """What `fold` needs of a PhaseRecord; the rest is skipped unread."""

    changes: list[Change] = []
    requests: list[tuple[str, dict[str, Any]]] = []
    output: list[tuple[str, int, list[int]]] = []
    blocks: list[tuple[int, int, int]] = []


class _Changes(PassRecord):
    """A pass as its changes, and of what is none the seq and the kind: so that no entry is read twice to tell."""

    pass_id: int = -1
    time: float = 0.0
    start_ns: int = 0
    phases: list[_PhaseChanges] = []  # type: ignore[assignment]


def encode(entry: Entry) -> bytes:
    """Return the entry as one msgpack map."""
    return _ENCODER.encode(entry)


def decode(data: bytes) -> Entry:
    """Return the entry that `encode` made. Raises msgspec.ValidationError on anything else."""
    return (_PASS if decode_head(data).kind == "pass" else _EVENT).decode(data)


def decode_head(data: bytes) -> Head:
    """Return the number and the kind of an entry. Raises msgspec.ValidationError."""
    return _HEAD.decode(data)


def decode_changes(data: bytes) -> Entry:
    """Return an entry for what folds it: as `decode`, but without the facts, names and times of a pass's phases."""
    entry = _CHANGES.decode(data)
    return entry if entry.kind == "pass" else _EVENT.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(Head)
_EVENT = msgspec.msgpack.Decoder(EventRecord)
_PASS = msgspec.msgpack.Decoder(PassRecord)
_CHANGES = msgspec.msgpack.Decoder(_Changes)

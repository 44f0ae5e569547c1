"""What is said of a recorded run, and whether all of it is right."""

import time
from typing import Any

import msgspec

from tracer.compare import first_difference
from tracer.fold import new_state
from tracer.schema import PassRecord
from tracer.trace_format import TraceError, decode_as
from tracer.trace_reader import TraceReader, decode_entry, fold_entry


class Vocabulary(msgspec.Struct):
    """As /api/vocab gives it."""

    tokens: list[bytes]
    special: list[int]


def told(reader: TraceReader) -> str:
    """Return one line: what can be replayed, and what is missing or damaged."""
    line = f"{reader.path.name}: {reader.num_passes} passes of {reader.header.model}"
    if reader.complete:
        return line
    missing = reader.damage or "it ends without an index, as when the recording was killed"
    return f"{line}, up to its last whole block: {missing}"


def info(reader: TraceReader) -> dict[str, Any]:
    """Return what the file's header and index tell."""
    header, config = reader.header, reader.header.config
    return {
        "file": str(reader.path),
        "bytes": reader.size,
        "bytes_per_pass": round(reader.size / max(reader.num_passes, 1)),
        "engine": header.engine,
        "model": header.model,
        "schema_version": header.schema_version,
        "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.created)),
        "max_num_seqs": header.max_num_seqs,
        "block_size": config.get("block_size"),
        "num_gpu_blocks": config.get("num_gpu_blocks"),
        "passes": reader.num_passes,
        "entries": sum(entry.span.num_entries for entry in reader.index),
        "blocks": len(reader.index),
        "complete": reader.complete,
        "damage": reader.damage,
    }


def check(reader: TraceReader) -> int:
    """Read and fold every entry and return how many passes there are.

    Raises TraceError where a block cannot be read, where a keyframe is not the state folded so far, or where the end of
    the file is missing.
    """
    decode_as(reader.vocabulary, Vocabulary, "vocabulary")
    state, passes = new_state(reader.header.max_num_seqs), 0
    for number in range(len(reader.index)):
        keyframe = reader.state_before(number)
        if number and (difference := first_difference(state, keyframe)):
            raise TraceError(
                f"block {number} does not begin with the state that the blocks before it give: {difference}"
            )
        state = keyframe
        for data in reader.block(number).entries:
            entry = decode_entry(data)
            fold_entry(state, entry)
            passes += isinstance(entry, PassRecord)
    if not reader.complete:
        raise TraceError(told(reader))
    return passes

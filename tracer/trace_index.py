"""Finds the parts of a trace file: by its index, or where that is missing or wrong by going through the blocks."""

import contextlib
import os
from pathlib import Path
from typing import IO, NamedTuple

from tracer.lifetimes import Lifetimes
from tracer.schema import SCHEMA_VERSION
from tracer.trace_format import (
    BLCK,
    FORMAT_VERSION,
    HEAD,
    INDX,
    MAGIC,
    MAX_BLOCKS,
    SECTION,
    SPAN,
    TRAILER,
    VERSION,
    VOCB,
    BlockEntry,
    Header,
    Index,
    Span,
    TraceError,
    decode_as,
    inflate,
    measure,
    read_trailer,
    verify,
)


class Found(NamedTuple):
    """What opening a trace tells. `damage` says what is wrong where the file goes on after its last whole block."""

    header: Header
    vocabulary: bytes
    blocks: list[BlockEntry]
    lifetimes: Lifetimes | None  # None where only the entries tell
    size: int
    complete: bool  # it was closed in order: its index is there
    damage: str | None


def open_trace(path: Path) -> tuple[IO[bytes], Found]:
    """Return the open file and what is in it. Raises TraceError, whose message names the file."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from None
    with contextlib.ExitStack() as stack:
        stack.callback(file.close)
        try:
            found = _find(file)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}") from None
        stack.pop_all()
        return file, found


def _find(file: IO[bytes]) -> Found:
    size = os.fstat(file.fileno()).st_size
    _check_magic(file)
    header = decode_as(_read(file, HEAD, size), Header, "header")
    if header.schema_version > SCHEMA_VERSION:
        raise TraceError(
            f"its records have schema version {header.schema_version}, and this Batchscope knows {SCHEMA_VERSION}: "
            "update Batchscope to read it"
        )
    vocabulary = _read(file, VOCB, size)
    start = file.tell()
    if (index := _by_index(file, start, size)) is not None:
        return Found(header, vocabulary, index.blocks, Lifetimes.restore(index.lifetimes), size, True, None)
    blocks, damage = _by_scanning(file, start, size)
    return Found(header, vocabulary, blocks, None, size, False, damage)


def _check_magic(file: IO[bytes]) -> None:
    start = file.read(len(MAGIC) + VERSION.size)
    if not start:
        raise TraceError("it is empty: nothing was recorded")
    if start[: len(MAGIC)] != MAGIC[: len(start)]:
        raise TraceError("this is no Batchscope trace: `batchscope serve --record FILE` makes one")
    if len(start) < len(MAGIC) + VERSION.size:
        raise TraceError("it ends before its header: nothing was recorded")
    (version,) = VERSION.unpack(start[len(MAGIC) :])
    if version != FORMAT_VERSION:
        raise TraceError(
            f"it has format version {version}, and this Batchscope reads version {FORMAT_VERSION}: "
            "update Batchscope to read it"
        )


def _read(file: IO[bytes], tag: bytes, size: int) -> bytes:
    """Return the data of the section that comes next. Raises TraceError where it isn't one with this tag."""
    head = file.read(SECTION.size)
    found, length = measure(head, size - file.tell())
    if found != tag:
        raise TraceError(f"a section {found.decode()} stands where {tag.decode()} belongs")
    stored = file.read(length)
    verify(head, stored)
    return inflate(head, stored)


def _by_index(file: IO[bytes], start: int, size: int) -> Index | None:
    """Return the index that the file ends with, or None where it has none that is right."""
    end = size - TRAILER.size
    if end < start:
        return None
    file.seek(end)
    offset = read_trailer(file.read(TRAILER.size))
    if offset is None or not start <= offset < end:
        return None
    file.seek(offset)
    try:
        index = decode_as(_read(file, INDX, end), Index, "index")
    except TraceError:
        return None
    return index if file.tell() == end and _fits(index.blocks, start, offset) else None


def _fits(index: list[BlockEntry], start: int, end: int) -> bool:
    """Whether the blocks lie one after the other between two offsets, and their spans too."""
    last = None
    for entry in index:
        follows = last is None or (entry.span.first_seq, entry.span.first_pass) == (last.next_seq, last.next_pass)
        if entry.offset != start or entry.length <= SECTION.size + SPAN.size or not follows or not _sane(entry.span):
            return False
        start, last = entry.offset + entry.length, entry.span
    return start == end


def _by_scanning(file: IO[bytes], start: int, size: int) -> tuple[list[BlockEntry], str | None]:
    """Return the blocks up to the last whole one, and what is wrong after it, if it is more than a missing end."""
    blocks: list[BlockEntry] = []
    file.seek(start)
    while (offset := file.tell()) < size and len(blocks) < MAX_BLOCKS:
        try:
            entry = _scan_block(file, offset, size)
        except TraceError as error:
            return blocks, f"from byte {offset} on, {error}"
        if entry is None:
            return blocks, "its index is damaged; every block is there"
        if not _fits([*blocks[-1:], entry], blocks[-1].offset if blocks else start, file.tell()):
            return blocks, f"the block at byte {offset} does not follow the one before it"
        blocks.append(entry)
    return blocks, None


def _scan_block(file: IO[bytes], offset: int, size: int) -> BlockEntry | None:
    """Return the block that comes next, or None at an index. Raises TraceError."""
    head = file.read(SECTION.size)
    tag, length = measure(head, size - file.tell())
    stored = file.read(length)
    verify(head, stored)
    if tag != BLCK:
        return None
    if length <= SPAN.size:
        raise TraceError("a block is empty")
    return BlockEntry(offset, SECTION.size + length, Span(*SPAN.unpack(stored[: SPAN.size])))


def _sane(span: Span) -> bool:
    return span.num_entries >= 1 and 0 <= span.num_passes <= span.num_entries and min(span) >= 0

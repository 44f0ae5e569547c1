"""The file of a recorded run, section by section.

    magic, format version (u16)
    HEAD   what was recorded: msgpack of Header
    VOCB   the bytes of every token, as the page takes them
    BLCK   up to 64 passes and what came between them; any number of these
    INDX   where each block starts, and the seqs and passes in it; when each request lived: msgpack of Index
    trailer: offset of INDX (u64), crc of that, end mark

A section is a tag, the stored length, the inflated length and a crc32 of all before and after it, then raw deflate. In
a block a Span comes before the deflated bytes, so that an index can be made without inflating. Numbers are big-endian.
Whoever writes the file may be killed at any byte: without INDX and trailer the blocks are found one after the other.
"""

import struct
import zlib
from typing import Annotated, Any, NamedTuple

import msgspec

from tracer.lifetimes import KEPT_LIFETIMES, Lifetime

MAGIC = b"\x89Batchscope\r\n\x1a"
FORMAT_VERSION = 1
VERSION = struct.Struct(">H")
SECTION = struct.Struct(">4sIII")  # tag, stored length, inflated length, crc32
SPAN = struct.Struct(">QIQI")
TRAILER = struct.Struct(">QI8s")
END = b"BSCOPEND"
HEAD, VOCB, BLCK, INDX = b"HEAD", b"VOCB", b"BLCK", b"INDX"
OVERHEAD = 64 << 10  # bytes that deflating the incompressible may add

BLOCK_PASSES = 64
BLOCK_ENTRIES = 4096
BLOCK_BYTES = 1 << 20  # a block ends once its entries are as long as this
MAX_INFLATED = {HEAD: 1 << 20, VOCB: 16 << 20, BLCK: 48 << 20, INDX: 32 << 20}  # bytes of a section's data
MAX_SKELETON = 8 << 20
MAX_CONTAINERS = 1 << 20  # lists and maps in a block: each takes more memory than bytes
MAX_BLOCKS = 1 << 20
MAX_ROWS = 1 << 16


class TraceError(ValueError):
    """The file is no trace that can be read; the message says why and what can be done."""


class Header(msgspec.Struct, kw_only=True):
    """What was recorded. `config` is what /api/config gave, and all that the page needs to know beforehand."""

    schema_version: int
    engine: str  # which program it is
    engine_id: str = "main"  # of that program's engines
    model: str
    created: float  # seconds since the epoch
    max_num_seqs: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    config: dict[str, Any]


class Span(NamedTuple):
    """Which entries and passes a block holds."""

    first_seq: int
    num_entries: int
    first_pass: int  # the first pass in the block, or the next one to come where it holds none
    num_passes: int

    @property
    def next_seq(self) -> int:
        return self.first_seq + self.num_entries

    @property
    def next_pass(self) -> int:
        return self.first_pass + self.num_passes


class BlockEntry(NamedTuple):
    """A line of the index: the offset and the whole length of a block's section, and its span."""

    offset: int
    length: int
    span: Span


class Index(msgspec.Struct):
    """The footer."""

    blocks: Annotated[list[BlockEntry], msgspec.Meta(max_length=MAX_BLOCKS)]
    lifetimes: Annotated[list[tuple[str, Lifetime]], msgspec.Meta(max_length=KEPT_LIFETIMES)]  # after the last entry


def pack(tag: bytes, data: bytes, prefix: bytes = b"", level: int = 6) -> bytes:
    """Return one section, deflated as hard as `level` says (1 to 9).

    Raises TraceError where the data is larger than a reader would take.
    """
    if len(data) > MAX_INFLATED[tag]:
        raise TraceError(f"{len(data)} bytes in one {tag.decode()} section: a trace holds {MAX_INFLATED[tag]} at most")
    stored = prefix + _deflate(data, level)
    head = SECTION.pack(tag, len(stored), len(data), 0)[:-4]
    return head + zlib.crc32(stored, zlib.crc32(head)).to_bytes(4, "big") + stored


def measure(head: bytes, room: int) -> tuple[bytes, int]:
    """Return the tag and the stored length that a section's head promises.

    `room` is how many bytes follow it in the file. Raises TraceError for what no writer makes.
    """
    if len(head) < SECTION.size:
        raise TraceError("it ends inside a section")
    tag, stored, inflated, _ = SECTION.unpack(head)
    if tag not in MAX_INFLATED or max(inflated, stored - OVERHEAD) > MAX_INFLATED[tag]:
        raise TraceError("a section's head is damaged")
    if stored > room:
        raise TraceError("it ends inside a section")
    return tag, stored


def verify(head: bytes, stored: bytes) -> None:
    """Raise TraceError where a section's bytes are not those that were written."""
    if zlib.crc32(stored, zlib.crc32(head[:-4])) != SECTION.unpack(head)[3]:
        raise TraceError("a section is damaged: its checksum is wrong")


def inflate(head: bytes, stored: bytes) -> bytes:
    """Return a section's data; never more than its head promises is made. Raises TraceError."""
    promised = SECTION.unpack(head)[2]
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(stored, promised + 1)
    except zlib.error as error:
        raise TraceError(f"a section cannot be inflated: {error}") from None
    if len(data) != promised or not inflater.eof or inflater.unused_data:
        raise TraceError("a section does not inflate to the length that it promises")
    return data


def trailer(index_offset: int) -> bytes:
    """Return the last bytes of a file whose index starts there."""
    return TRAILER.pack(index_offset, zlib.crc32(index_offset.to_bytes(8, "big")), END)


def read_trailer(data: bytes) -> int | None:
    """Return the offset of the index, or None where these bytes are no trailer."""
    if len(data) != TRAILER.size:
        return None
    offset, crc, end = TRAILER.unpack(data)
    return offset if end == END and crc == zlib.crc32(data[:8]) else None


def decode_as(data: bytes, kind: Any, what: str) -> Any:
    """Return msgpack as a value of a type. Raises TraceError."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as error:
        raise TraceError(f"its {what} cannot be read: {error}") from None


def _deflate(data: bytes, level: int) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()

"""A run that goes on, as the blocks of a trace: each is made when it is asked for, of what the log still has."""

import threading
import zlib
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

import msgspec

from tracer.block_cutter import BlockCutter
from tracer.block_states import unpack_blocks
from tracer.planes import pack_planes, take
from tracer.schema import Entry
from tracer.spill import Spill
from tracer.trace_format import BLCK, SPAN, Span, pack

if TYPE_CHECKING:
    from tracer.log import Log

EDGES_BYTES = 128 << 20
AT_HAND = 8  # blocks whose edges stay in memory: a recording gets them though the temporary folder is full
CACHED_SECTIONS = 8
FAST = 1  # how hard to deflate what is not kept for long


class Edges(msgspec.Struct):
    """What a block needs besides its entries: the keyframe before it, and the requests that finished in it."""

    keyframe: msgspec.Raw  # of a map
    ended: msgspec.Raw  # of a list


class _KeptEdges(msgspec.Struct):
    """Edges as they are kept."""

    keyframe: dict[str, msgspec.Raw]  # without blocks
    blocks: bytes  # of tracer.block_states
    ended: msgspec.Raw

    def edges(self) -> Edges:
        blocks = msgspec.Raw(msgspec.msgpack.encode(unpack_blocks(self.blocks)))
        return Edges(msgspec.Raw(msgspec.msgpack.encode(self.keyframe | {"blocks": blocks})), self.ended)


class Cuts:
    """Cuts a run into blocks while the log folds it.

    Their edges are kept in temporary files of a bounded size, those of the newest in memory too.
    """

    def __init__(self, max_num_seqs: int, max_bytes: int = EDGES_BYTES) -> None:
        self._cutter = BlockCutter(max_num_seqs)
        self._spans: list[Span] = []
        self._kept = Spill(max_bytes)
        self._newest: deque[bytes] = deque(maxlen=AT_HAND)
        self._keyframe = msgspec.Raw(), b""  # of the open block: without KV blocks, and these

    @property
    def state(self) -> dict[str, Any]:
        """What is folded so far; tracer.fold says what is in it."""
        return self._cutter.state

    @property
    def oldest(self) -> int:
        """The number of the oldest block whose edges are kept."""
        return min(self._kept.oldest, len(self._spans) - len(self._newest))

    def fold(self, entry: Entry, size: int, count: int = 1) -> None:
        """Take the next entry of the log, `size` bytes long, or `count` passes as one, which no block splits."""
        if not self._cutter.has_room(count):
            self.cut()
        if not self._cutter.num_entries:
            keyframe = msgspec.msgpack.encode(self._cutter.begin(entry.seq - count + 1))
            self._keyframe = msgspec.Raw(keyframe), self._cutter.blocks.pack()
        self._cutter.fold(entry, size, count)
        if self._cutter.full:
            self.cut()

    def cut(self) -> None:
        """End the open block, if there is one."""
        if self._cutter.num_entries:
            self._newest.append(zlib.compress(self._open_edges(), FAST))
            self._kept.append(self._newest[-1])
            self._spans.append(self._cutter.span)
            self._cutter.cut()

    @property
    def num_closed(self) -> int:
        """How many blocks grow no more."""
        return len(self._spans)

    def spans(self) -> list[Span]:
        """The span of every block; the last one may grow."""
        return [*self._spans, self._cutter.span] if self._cutter.num_entries else self._spans[:]

    def edges(self, number: int) -> Edges:
        """Return the edges of a block. Raises Gone where it is forgotten."""
        since = len(self._spans) - number
        if since <= 0:
            data = self._open_edges()
        else:
            data = zlib.decompress(self._newest[-since] if since <= len(self._newest) else self._kept.read(number))
        return msgspec.msgpack.decode(data, type=_KeptEdges).edges()

    def close(self) -> None:
        self._kept.close()

    def _open_edges(self) -> bytes:
        keyframe, blocks = self._keyframe
        return msgspec.msgpack.encode({"keyframe": keyframe, "blocks": blocks, "ended": self._cutter.ended()})


class History:
    """The blocks of a log, as tracer.trace_reader gives those of a file."""

    def __init__(self, log: "Log") -> None:
        self._log = log
        self._made: OrderedDict[Span, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def section(self, number: int) -> bytes:
        """Return a block's section, of the last block as far as it has grown. Raises IndexError, Gone."""
        span, edges = self._log.edges(number)
        with self._lock:
            if span in self._made:
                self._made.move_to_end(span)
                return self._made[span]
        entries = self._log.entries(span.first_seq, span.next_seq - 1)
        section = _section(span, edges, entries)
        with self._lock:
            self._made[span] = section
            if len(self._made) > CACHED_SECTIONS:
                self._made.popitem(last=False)
        return section


def _section(span: Span, edges: Edges, entries: list[bytes]) -> bytes:
    """The entries stand in it as their bytes, so that nothing has to be decoded for it."""
    numbers: list[int] = []
    keyframe, ended = (msgspec.msgpack.decode(edge) for edge in (edges.keyframe, edges.ended))
    take(keyframe, numbers)
    take(ended, numbers)
    content = {"keyframe": keyframe, "entries": entries, "ended": ended}
    return pack(BLCK, pack_planes(content, numbers), SPAN.pack(*span), FAST)

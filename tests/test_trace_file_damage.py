"""A trace file is untrusted: cut at any byte, with any bit flipped or made to harm, it ends in one clear error."""

import contextlib
import random
import resource
import signal
import struct
import subprocess
import sys
import zlib

import msgspec
import pytest
from helpers.recorded import header_of, write, write_all

from batchscope.recorded import check
from tracer.explain import explain
from tracer.fold import fold, new_state
from tracer.log import Log
from tracer.planes import pack_planes, take
from tracer.schema import SCHEMA_VERSION, EventRecord, PassRecord, PhaseRecord, decode, encode
from tracer.trace_format import (
    BLCK,
    HEAD,
    INDX,
    MAGIC,
    SECTION,
    SPAN,
    VERSION,
    VOCB,
    BlockEntry,
    Index,
    Span,
    TraceError,
    inflate,
    pack,
    trailer,
)
from tracer.trace_reader import TraceReader
from tracer.trace_writer import TraceWriter

VOCABULARY = msgspec.msgpack.encode({"tokens": [b"a", b"b"], "special": [0]})
START = MAGIC + VERSION.pack(1)


def small_entries():
    """Nine entries: a request comes, runs five passes and ends."""
    known = {"prompt_token_ids": [1, 0], "status": "WAITING", "arrival_pass": 0}
    row = [["set", "req_id", [0], ["a"]], ["set", "token_ids", [0], [[1, 0]]], ["set", "block_table", [0], [[3]]]]
    grow = [["put", "token_ids", [0], [2], [[1]]]]
    entries = [encode(EventRecord(0, "request", 0.5, {"event": "added", "req_id": "a"}, [("a", known)]))]
    for n in range(5):
        phase = PhaseRecord("schedule", 0, 9, {"total_num_scheduled_tokens": 2}, row if n == 0 else grow)
        phase.output = [("a", n, [1])]
        entries.append(encode(PassRecord(n + 1, "pass", n, 0.5, 10**12, [phase])))
    entries.append(encode(EventRecord(6, "gate", 0.5, {"paused": True, "permits": 0})))
    entries.append(encode(EventRecord(7, "request", 0.5, {}, [("a", {"finish_reason": "abort"})], [(3, 0, 1)])))
    entries.append(encode(EventRecord(8, "gate", 0.5, {"paused": False, "permits": 0})))
    return entries


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(the bytes of a file of four blocks, where each of its blocks ends)."""
    path = tmp_path_factory.mktemp("trace") / "small.bscope"
    writer = TraceWriter(path)
    writer.begin(header_of(1), VOCABULARY)
    write_all(writer, small_entries(), 1, ends=(1, 4, 7))
    return path.read_bytes(), [entry.offset + entry.length for entry in writer.index]


def opened(tmp_path, data):
    path = tmp_path / "damaged.bscope"
    path.write_bytes(data)
    return TraceReader(path)


def test_cut_at_every_byte_it_replays_to_its_last_whole_block(tmp_path, small):
    data, ends = small
    entries = small_entries()
    start = opened(tmp_path, data).index[0].offset
    for length in range(len(data)):
        if length < start:
            with pytest.raises(TraceError, match=r"damaged\.bscope"):
                opened(tmp_path, data[:length])
            continue
        reader = opened(tmp_path, data[:length])
        whole = sum(end <= length for end in ends)
        assert len(reader.index) == whole
        held = [2, 5, 8, 9][whole - 1] if whole else 0
        assert reader.entries(0, 99) == entries[:held]
        assert reader.state() == folded(entries[:held])
        assert not reader.complete
        with pytest.raises(TraceError, match="up to its last whole block"):
            check(reader)


def folded(entries):
    state = new_state(1)
    for data in entries:
        fold(state, decode(data))
    return state


def test_a_flipped_bit_anywhere_is_found(tmp_path, small):
    data, _ = small
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(TraceError):
            check(opened(tmp_path, bytes(damaged)))


def test_damage_in_the_middle_is_told_and_the_rest_can_be_read(tmp_path, small):
    data, ends = small
    damaged = bytearray(data)
    damaged[ends[1] - 3] ^= 1
    reader = opened(tmp_path, bytes(damaged))
    assert reader.entries(0, 1) == small_entries()[:2]
    assert reader.entries(5, 8) == small_entries()[5:]
    with pytest.raises(TraceError, match=r"damaged\.bscope: block 1 at byte \d+: .*checksum"):
        reader.entries(0, 8)
    without_index = opened(tmp_path, bytes(damaged[: ends[3]]))
    assert without_index.last_seq == 1
    assert "checksum" in without_index.damage


def test_what_is_no_trace_and_what_is_of_a_later_version_say_so(tmp_path):
    header, vocabulary = pack(HEAD, msgspec.msgpack.encode(header_of(1))), pack(VOCB, VOCABULARY)
    for data, told in [
        (b"", "empty"),
        (b"{}", "no Batchscope trace"),
        (b"\x1f\x8b" * 99, "no Batchscope trace"),
        (MAGIC + VERSION.pack(2) + b"whatever", "format version 2.*update Batchscope"),
        (START + vocabulary + header, "where HEAD belongs"),
        (START + pack(HEAD, b"\x80") + vocabulary, "header cannot be read"),
        (START + header_section(schema_version=SCHEMA_VERSION + 1) + vocabulary, "schema version.*update Batchscope"),
        (START + header_section(max_num_seqs=1 << 40) + vocabulary, "header cannot be read"),
        (START + pack(HEAD, b"\x91" * 900_000) + vocabulary, "header cannot be read"),
    ]:
        with pytest.raises(TraceError, match=told):
            opened(tmp_path, data)
    with pytest.raises(TraceError, match="cannot be read"):
        TraceReader(tmp_path / "nowhere.bscope")
    with pytest.raises(TraceError, match="cannot be read"):
        TraceReader(tmp_path)


def header_section(**fields):
    return pack(HEAD, msgspec.msgpack.encode(msgspec.to_builtins(header_of(1)) | fields))


# --- files made to harm: every checksum in them is right --------------------------------------------------------------


def section(tag, inflated, deflated, prefix=b""):
    """A section that promises `inflated` bytes."""
    stored = prefix + deflated
    head = SECTION.pack(tag, len(stored), inflated, 0)[:-4]
    return head + struct.pack(">I", zlib.crc32(stored, zlib.crc32(head))) + stored


def raw_deflate(data):
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


def block(content, span=Span(0, 1, 0, 0)):  # noqa: B008 (a tuple)
    numbers, taken = [], msgspec.msgpack.decode(msgspec.msgpack.encode(content))
    take(taken, numbers)
    return pack(BLCK, pack_planes(taken, numbers), SPAN.pack(*span))


def packed(skeleton, planes=b""):
    return pack(BLCK, msgspec.msgpack.encode([skeleton, planes]), SPAN.pack(0, 1, 0, 0))


EMPTY = {"seq": -1, "pass_id": -1, "rows": [None], "requests": [], "finished": [], "gate": {}, "blocks": []}
GATE = {"seq": 0, "kind": "gate", "time": 0.0, "facts": {}}
WELL = {"keyframe": EMPTY, "entries": [GATE], "ended": []}
A_CHANGE = {"seq": 0, "kind": "pass", "pass_id": 0, "time": 0.0, "start_ns": 0}


def changing(*changes):
    phase = {"phase": "condense", "start": 0, "end": 1, "changes": list(changes)}
    return block(WELL | {"entries": [A_CHANGE | {"phases": [phase]}]}, Span(0, 1, 0, 1))


HOSTILE = {
    "promises little": section(BLCK, 10, raw_deflate(bytes(1 << 20)), SPAN.pack(0, 1, 0, 0)),
    "promises a lot": section(BLCK, (1 << 32) - 1, raw_deflate(bytes(1 << 20)), SPAN.pack(0, 1, 0, 0)),
    "promises what it lacks": section(BLCK, 1 << 20, raw_deflate(b"x"), SPAN.pack(0, 1, 0, 0)),
    "is not deflated": section(BLCK, 100, b"\xff" * 100, SPAN.pack(0, 1, 0, 0)),
    "is inflated by a thousand": section(BLCK, 40 << 20, raw_deflate(bytes(40 << 20)), SPAN.pack(0, 1, 0, 0)),
    "has a span too short": section(BLCK, 1, b"abc"),
    "has no entries": block(WELL | {"entries": []}),
    "counts itself otherwise": block(WELL, Span(0, 2, 0, 0)),
    "counts its passes otherwise": block(WELL, Span(0, 1, 0, 1)),
    "has a seq of its own": block(WELL | {"entries": [GATE | {"seq": 7}]}),
    "lacks a keyframe": block({"entries": [GATE], "ended": []}),
    "has another number of rows": block(WELL | {"keyframe": EMPTY | {"rows": [None] * 9}}),
    "names a block that is not there": block(WELL | {"keyframe": EMPTY | {"requests": [["a", 99]]}}),
    "names itself": block(WELL | {"keyframe": EMPTY | {"requests": [["a", 0]]}}),
    "has a row without a request": block(WELL | {"keyframe": EMPTY | {"rows": [{"req_id": "a", "token_ids": None}]}}),
    "has requests of a wrong kind": block(WELL | {"keyframe": EMPTY | {"requests": [["a", "b"]]}}),
    "has an output of a wrong kind": block(WELL | {"keyframe": EMPTY | {"requests": [["a", {"output_token_ids": 3}]]}}),
    "has an entry of a wrong kind": block(WELL | {"entries": [{"seq": 0, "kind": 3}]}),
    "has an entry that is none": block(WELL | {"entries": [7]}),
    "assigns to a row that is not there": changing(["set", "req_id", [99], ["a"]]),
    "puts into an empty row": changing(["put", "token_ids", [0], [1 << 30], [[1]]]),
    "makes a change that no version knows": changing(["rotate", 1]),
    "clears a row by name": changing(["clear", "a"]),
    "nests deeply": packed(b"\x91" * 100_000 + b"\xc0"),
    "has a list of four billion": packed(b"\xdd\xff\xff\xff\xff"),
    "has a million empty maps": packed(b"\xdd" + struct.pack(">I", 7 << 20) + b"\x80" * (7 << 20)),
    "has numbers without a place": packed(b"\xc0" * 4, bytes(16)),
    "has places without numbers": packed(b"\x92\x00\x00", b""),
    "has a part of a number": packed(b"\x91\x00", b"\x01"),
    "has many numbers": packed(bytes([0xDD]) + struct.pack(">I", 8 << 20) + bytes((8 << 20) - 5), bytes(32 << 20)),
}
PEAK_MB = 400


@pytest.mark.parametrize("harm", HOSTILE)
def test_a_file_made_to_harm_is_an_error(tmp_path, harm):
    """With an index and without one; a block is refused by its own words or where it would be folded."""
    start = START + header_section() + pack(VOCB, VOCABULARY)
    whole = start + HOSTILE[harm]
    entry = BlockEntry(len(start), len(HOSTILE[harm]), Span(*SPAN.unpack((HOSTILE[harm][16:] + bytes(24))[:24])))
    index = pack(INDX, msgspec.msgpack.encode(Index([entry], [])))
    for data in (whole, whole + index + trailer(len(whole))):
        with pytest.raises(TraceError):
            check(opened(tmp_path, data))
        reader = opened(tmp_path, data)
        for ask in (reader.state, reader.newest, lambda r=reader: r.entries(0, 9), lambda r=reader: r.pass_bytes(0)):
            with contextlib.suppress(TraceError, KeyError):
                ask()


def test_an_index_made_to_harm_is_not_believed(tmp_path):
    start = START + header_section() + pack(VOCB, VOCABULARY)
    good = start + block(WELL)
    span = Span(0, 1, 0, 0)
    for entries in (
        [BlockEntry(len(start), 1 << 60, span)],
        [BlockEntry(len(start), len(good) - len(start), Span(0, 1, 0, 9))],
        [BlockEntry(0, len(good), span)],
        [BlockEntry(-1, 1, span)],
        [],
    ):
        index = pack(INDX, msgspec.msgpack.encode({"blocks": entries, "lifetimes": []}))
        reader = opened(tmp_path, good + index + trailer(len(good)))
        assert not reader.complete
        assert reader.last_seq == 0
    for offset in (0, 5, 1 << 63, len(good) - 1):
        assert opened(tmp_path, good + trailer(offset)).last_seq == 0


def test_contents_changed_at_random_are_read_or_refused(tmp_path):
    """Blocks of a real run whose checksums are right again after some bytes of them were changed."""
    whole = TraceReader(write(tmp_path / "run.bscope"))
    start = (tmp_path / "run.bscope").read_bytes()[: whole.index[0].offset]
    dice, refused = random.Random(4), 0
    for _ in range(25):
        entry = whole.index[0]
        section_ = whole.section(0)
        data = bytearray(inflate(section_[: SECTION.size], section_[SECTION.size + SPAN.size :]))
        for _ in range(dice.choice((1, 1, 2, 9))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        changed = opened(tmp_path, start + pack(BLCK, bytes(data), SPAN.pack(*entry.span)))
        for ask in (changed.state, changed.newest, lambda r=changed: explain(r, "3", 9), lambda r=changed: check(r)):
            try:
                ask()
            except TraceError:
                refused += 1
    assert refused > 20


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_files_made_to_harm_take_bounded_memory(tmp_path):
    """In a process of its own, which tells its peak."""
    start = START + header_section() + pack(VOCB, VOCABULARY)
    many_lives = (
        b"\x82\xa6blocks\x90\xa9lifetimes\xdd" + struct.pack(">I", 5 << 20) + b"\x92\xa0\x93\x00\xc0\xc0" * (5 << 20)
    )
    bombs = {
        name: start + HOSTILE[name] for name in HOSTILE if "million" in name or "many" in name or "thousand" in name
    }
    bombs["index"] = start + section(INDX, len(many_lives), raw_deflate(many_lives)) + trailer(len(start))
    code = (
        "import re, sys\n"
        "from batchscope.recorded import check\n"
        "from tracer.trace_reader import TraceReader\n"
        "for path in sys.argv[1:]:\n"
        "    try: check(TraceReader(path))\n"
        "    except ValueError as error: print(error, file=sys.stderr)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    for name, data in bombs.items():
        path = tmp_path / f"{name.replace(' ', '-')}.bscope"
        path.write_bytes(data)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        peak = int(done.stdout) / 1024
        assert done.stderr.count("\n") == 1
        assert peak < PEAK_MB, f"{name}: {peak:.0f} MB"


def test_a_disk_that_takes_no_more_leaves_whole_blocks(tmp_path):
    path = tmp_path / "full.bscope"
    writer = TraceWriter(path)
    writer.begin(header_of(1), VOCABULARY)
    entries, log = small_entries(), Log(1)
    log.append(entries[0])
    log.cut()
    writer.write(*log.edges(0), entries[:1])
    for data in entries[1:]:
        log.append(data)
    log.cut()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.size + 50, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.write(*log.edges(1), entries[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    writer.abandon()
    reader = TraceReader(path)
    assert reader.entries(0, 9) == entries[:1]
    assert reader.damage is None

"""One HTML file that shows a recorded run: the page with its styles, its modules and the trace inside it.

It opens from a disk and asks nothing of any server. Modules find each other by bare names through the page's import
map, so that each can be put in as a data: URL.
"""

import base64
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tracer.trace_format import (
    FORMAT_VERSION,
    HEAD,
    INDX,
    MAGIC,
    SECTION,
    VERSION,
    VOCB,
    BlockEntry,
    Index,
    pack,
    trailer,
    verify,
)
from tracer.trace_reader import TraceReader
from webui.replay import replay_config

STATIC = Path(__file__).parent / "static"
LINK = re.compile(r'<link rel="stylesheet" href="/static/([^"]+)">')
ICON = re.compile(r'href="/static/(icon\.svg)"')
IMPORT_MAP = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
SCRIPT = re.compile(r'<script src="/static/([^"]+)" defer></script>')
MAIN = '<script type="module" src="/static/main.js"></script>'
UNUSED = ("vendor/socket.io.min.js",)  # a recording has no live connection
LATE = ("plotly-basic.min.js", "modern-screenshot.js")  # of vendor; static/late.js runs them when they are needed
CHUNK = 3 << 18  # of the trace at a time; a multiple of 3, so that base64 can be joined


def export(reader: TraceReader) -> Iterator[str]:
    """Yield the HTML, piece by piece. Raises tracer.trace_format.TraceError where a block cannot be read."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = LINK.sub(lambda found: f"<style>\n{_text(found[1])}</style>", page)
    page = ICON.sub(lambda found: f'href="{_data_url("image/svg+xml", found[1])}"', page)
    page = IMPORT_MAP.sub(lambda found: _import_map(found[1]), page)
    page = SCRIPT.sub(lambda found: "" if found[1] in UNUSED else f"<script>{_script(found[1])}</script>", page)
    config = msgspec.json.encode(replay_config(reader)).decode().replace("<", "\\u003c")
    before, after = page.split(MAIN)
    yield before
    yield f'<script type="application/json" id="trace-config">{config}</script>\n'
    for name in LATE:
        yield f'<script type="text/plain" id="late-{name}">{_deflated(name)}</script>\n'
    yield '<script type="text/plain" id="trace">'
    yield from _base64(_file(reader))
    yield '</script>\n<script type="module">import "main";</script>'
    yield after


def _file(reader: TraceReader) -> Iterator[bytes]:
    """Yield a whole trace file, also of one that has no index."""
    start = MAGIC + VERSION.pack(FORMAT_VERSION)
    start += pack(HEAD, msgspec.msgpack.encode(reader.header)) + pack(VOCB, reader.vocabulary)
    yield start
    offset, blocks = len(start), []
    for number, entry in enumerate(reader.index):
        section = reader.section(number)
        verify(section[: SECTION.size], section[SECTION.size :])  # a page without a server takes them as right
        blocks.append(BlockEntry(offset, len(section), entry.span))
        offset += len(section)
        yield section
    lifetimes = reader.newest()[2].all()
    yield pack(INDX, msgspec.msgpack.encode(Index(blocks, lifetimes))) + trailer(offset)


def _base64(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        rest += piece
        whole = len(rest) // CHUNK * CHUNK
        if whole:
            yield base64.b64encode(rest[:whole]).decode()
            rest = rest[whole:]
    yield base64.b64encode(rest).decode()


def _import_map(text: str) -> str:
    paths = {"main": "/static/main.js"} | msgspec.json.decode(text)["imports"]
    urls = {name: _data_url("text/javascript", path.removeprefix("/static/")) for name, path in paths.items()}
    return f'<script type="importmap">{msgspec.json.encode({"imports": urls}).decode()}</script>'


def _script(name: str) -> str:
    return re.sub(r"</(script)", r"<\\/\1", _text(name), flags=re.IGNORECASE)


def _deflated(name: str) -> str:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = deflate.compress((STATIC / "vendor" / name).read_bytes()) + deflate.flush()
    return base64.b64encode(data).decode()


def _data_url(kind: str, name: str) -> str:
    return f"data:{kind};base64,{base64.b64encode((STATIC / name).read_bytes()).decode()}"


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")

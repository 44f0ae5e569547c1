"""`bench trace`: what recording costs in decode throughput, in an engine as `batchscope serve` runs it."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from batchscope.bench.alternating import PATTERN_STRETCHES, AlternatingClient, Protocol
from batchscope.bench.live import live_engine
from batchscope.recording import begin_recording
from engine.async_llm import AsyncLLM
from tracer import recording
from tracer.trace_writer import TraceWriter
from webui import app
from webui.security import Access
from webui.server import Server, listen

Stretch = tuple[bool, float]  # (whether it was recorded, seconds)
RESAMPLES = 10_000
LOWEST, HIGHEST = 2.5, 97.5  # percentiles
MODES = {
    "off": "nothing is recorded in either half: what the bench can tell apart",
    "on": "every pass is recorded and kept in the log, while nobody looks",
    "recording": "every pass is written to a file as well",
}
QUICK = Protocol(stretch=4, late=1, patterns=16)
# Up to MOST_UNSENT quiet passes are sent together, and 13 has no part in common with it: so that the sending falls on
# each pass of a stretch alike.
BUNCHED = Protocol(stretch=13, late=1, patterns=4)
# The file is written up to tracer.recording.EVERY_S later, which is 14 passes of 18 ms, and a block at a time: a length
# that has no part in common with a block's lets the blocks end anywhere in a stretch.
PATIENT = Protocol(stretch=31, late=14, patterns=2)
PROTOCOLS = {"off": QUICK, "on": BUNCHED, "recording": PATIENT}


class Cost(NamedTuple):
    """By how much throughput falls, as shares of it: the mean over pairs, and its 95% interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:+.2f}% ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


def measure(
    rows: int, rounds: int, tell: Callable[[str], None], modes: Iterable[str] = MODES, **settings: Any
) -> dict[str, Any]:
    """Return, for each mode, the pairs of seconds, not recorded and recorded, and the cost."""
    measured: dict[str, Any] = {"rows": rows}
    for mode in modes:
        pairs = _pairs(_stretches(mode, rows, rounds, **settings))
        found = cost(pairs)
        measured[mode] = {"pairs": pairs, **found._asdict()}
        tell(f"{mode:>10} at {rows} rows: throughput falls by {found}, {len(pairs)} pairs; {MODES[mode]}")
    return measured


def cost(pairs: Sequence[tuple[float, float]]) -> Cost:
    """Return the cost over pairs of (seconds without, seconds with), by a bootstrap over the pairs."""
    logs = np.log([plain / recorded for plain, recorded in pairs])
    draws = np.random.default_rng(0).choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
    highest, lowest = np.percentile(draws, (LOWEST, HIGHEST))
    mean, low, high = (1 - float(np.exp(ratio)) for ratio in (logs.mean(), lowest, highest))
    return Cost(mean, low, high)


def _pairs(stretches: Sequence[Stretch]) -> list[tuple[float, float]]:
    """The seconds of each pattern, not recorded and recorded: so that what grows steadily over it cancels out."""
    assert len(stretches) % PATTERN_STRETCHES == 0, "a round is not whole"
    patterns = np.array(stretches).reshape(-1, PATTERN_STRETCHES, 2)
    recorded = patterns[:, :, 0] == 1
    assert (recorded.sum(axis=1) * 2 == PATTERN_STRETCHES).all(), "the stretches of a round do not alternate"
    return [(seconds[~on].sum(), seconds[on].sum()) for seconds, on in zip(patterns[:, :, 1], recorded, strict=True)]


def _stretches(mode: str, rows: int, rounds: int, **settings: Any) -> list[Stretch]:
    protocol = PROTOCOLS[mode]
    make_client = partial(AlternatingClient, protocol)
    with live_engine(rows, make_client, trace=mode != "off", **settings) as engine, _served(engine.llm, mode):
        for number in range(rounds + 1):
            engine.decode_rate(rows, protocol.round_passes + 2, seed=number)
            if number == 0:
                engine.llm.call("stretches")  # the first round only warms up
        return [(bool(recorded), seconds) for recorded, seconds in engine.llm.call("stretches")]


@contextmanager
def _served(llm: AsyncLLM, mode: str) -> Iterator[None]:
    """Serve the engine's page and API, as nobody looks."""
    # Or it would write, or send, where nothing is recorded for some time.
    never = patch.object(recording, "QUIET", math.inf), patch.object(app, "UNWATCHED_DELAY_S", math.inf)
    with never[0], never[1], tempfile.TemporaryDirectory() as folder, listen("127.0.0.1", 0) as listener:
        writer = TraceWriter(Path(folder) / "run.bscope") if mode == "recording" else None
        recorder = begin_recording(llm, writer) if writer else None
        server = Server(llm, listener, Access(port=listener.getsockname()[1]), recorder)
        server.start()
        try:
            yield
        finally:
            server.stop()

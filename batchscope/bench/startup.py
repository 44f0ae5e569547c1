"""`bench startup`: from `batchscope serve` to the first token, and the most memory that the engine's process takes."""

import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchscope.bench.protocol import prompts_of

SERVE = (sys.executable, "-c", "import sys; from batchscope.cli import main; sys.exit(main())", "serve", "--port", "0")
PROMPT_TOKENS, NEW_TOKENS = 64, 128
STOPPING_S = 20.0


def measure(rows: int, starts: int, flags: Sequence[str], vocab_size: int) -> dict[str, Any]:
    """Return seconds to the first token for each start with a warm cache, and bytes after `rows` rows have decoded.

    The first start, which may convert the model and compile kernels, does not count. `engine_bytes` is None where the
    system does not say (it is read from /proc).
    """
    flags = ("--max-num-seqs", str(rows), *flags)
    seconds, engine_bytes = [], None
    for number in range(starts + 1):
        begun = time.perf_counter()
        with _served(flags) as (process, address):
            _complete(address, [1] * 8, 1)
            seconds.append(time.perf_counter() - begun)
            if number == starts:
                _decode_rows(address, rows, vocab_size)
                engine_bytes = _peak_bytes_of_child(process.pid)
    return {"rows": rows, "seconds_to_first_token": seconds[1:], "engine_bytes": engine_bytes}


def line(measured: dict[str, Any]) -> str:
    """Return it in words."""
    seconds = sorted(measured["seconds_to_first_token"])
    median = statistics.median(seconds)
    started = f"first token {median:.1f} s after `batchscope serve` ({seconds[0]:.1f} to {seconds[-1]:.1f})"
    taken = measured["engine_bytes"]
    return started + (f"; the engine took {taken / 1e9:.2f} GB for {measured['rows']} rows" if taken else "")


@contextmanager
def _served(flags: Sequence[str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen([*SERVE, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if not found:
            raise RuntimeError(f"`batchscope serve {' '.join(flags)}` printed no address: run it by hand to see why")
        yield process, found[0]
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPPING_S)
        process.kill()
        process.communicate()


def _decode_rows(address: str, rows: int, vocab_size: int) -> None:
    prompts = prompts_of({"seed": 1, "rows": rows, "prompt_tokens": PROMPT_TOKENS, "vocab_size": vocab_size})
    with ThreadPoolExecutor(rows) as pool:
        for _ in pool.map(lambda prompt: _complete(address, prompt, NEW_TOKENS), prompts):
            pass


def _complete(address: str, prompt: list[int], max_tokens: int) -> None:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address.rstrip('/')}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        reply.read()


def _peak_bytes_of_child(pid: int) -> int | None:
    """Return the most memory that the largest child of a process has had, None where there is no /proc to say so."""
    peaks = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.partition(":\t")[::2] for line in status.read_text().splitlines())
            if fields["PPid"] == str(pid):
                peaks.append(1024 * int(fields["VmHWM"].split()[0]))
    return max(peaks, default=None)

"""`batchscope trace`: what is in a recorded run, whether it is whole, and the same for other tools."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from batchscope import recorded
from tracer.perfetto import trace_events
from tracer.trace_format import TraceError
from tracer.trace_reader import TraceReader


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("trace", help="look into a recorded run")
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    for name, does, run_kind in (
        ("info", "what was recorded, in a few lines", run_info),
        ("check", "read all of it and fold every pass; exit code 1 where something is wrong", run_check),
        ("jsonl", "every log entry as a line of JSON", run_jsonl),
        ("perfetto", "the phases' times and some counters, for https://ui.perfetto.dev", run_perfetto),
    ):
        kind = kinds.add_parser(name, help=does)
        kind.add_argument("file", type=Path, help="what `batchscope serve --record` wrote")
        if name in ("jsonl", "perfetto"):
            kind.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write (default: stdout)")
        if name == "info":
            kind.add_argument("--json", action="store_true", help="as JSON")
        kind.set_defaults(run=run, run_kind=run_kind)


def run(args: argparse.Namespace) -> int:
    """Do what is asked. Returns 2, after one line on stderr, where the file cannot be read."""
    try:
        with contextlib.closing(TraceReader(args.file)) as reader:
            return args.run_kind(reader, args)
    except BrokenPipeError:  # whoever read the output has had enough
        sys.stderr.close()
        return 0
    except (TraceError, OSError) as error:
        print(f"batchscope trace: {error}", file=sys.stderr)
        return 2


def run_info(reader: TraceReader, args: argparse.Namespace) -> int:
    """Print what the header and the index tell."""
    facts = recorded.info(reader)
    if args.json:
        print(msgspec.json.encode(facts).decode())
        return 0
    for name, value in facts.items():
        if value is not None:
            print(f"{name:<16}{value}")
    return 0


def run_check(reader: TraceReader, args: argparse.Namespace) -> int:
    """Print whether all of the file is right; return 1 where it isn't."""
    try:
        passes = recorded.check(reader)
    except TraceError as error:
        print(error)
        return 1
    print(f"{reader.path.name}: all {passes} passes in {len(reader.index)} blocks are right")
    return 0


def run_jsonl(reader: TraceReader, args: argparse.Namespace) -> int:
    """Write each entry as it is in the log."""
    with _output(args.output) as out:
        for number in range(len(reader.index)):
            for data in reader.block(number).entries:
                out.write(msgspec.json.encode(msgspec.msgpack.decode(data)) + b"\n")
    return 0


def run_perfetto(reader: TraceReader, args: argparse.Namespace) -> int:
    """Write Chrome's trace format, event by event."""
    with _output(args.output) as out:
        out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for count, event in enumerate(trace_events(reader, f"Batchscope, {reader.header.model}")):
            out.write((b",\n" if count else b"") + msgspec.json.encode(event))
        out.write(b"\n]}\n")
    return 0


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with path.open("wb") as file:
            yield file

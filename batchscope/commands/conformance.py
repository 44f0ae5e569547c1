"""`batchscope conformance DIR`: plays recordings of a real vLLM and prints a table of what agrees."""

import argparse
import sys
from pathlib import Path

from batchscope.conformance import engine_level, runner_level
from batchscope.conformance.recording import Recording, RecordingError, load_all

LEVELS = {"runner": runner_level.play, "engine": engine_level.play}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("conformance", help="compare with recorded passes of a real vLLM")
    parser.add_argument("dir", type=Path, help="the folder of recordings, such as tests/vectors")
    levels = "runner: vLLM's own decisions drive our runner; engine: our scheduler decides as well"
    parser.add_argument("--level", choices=LEVELS, default="runner", help=levels)
    parser.add_argument("--model", default="smollm2", help="the recorded model; with another, use --layout")
    parser.add_argument("--dtype", default="float32", help="recordings were made in float32")
    parser.add_argument("--layout", action="store_true", help="leave out token ids, which follow from the weights")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line a file and return 0 where every one that can be played agrees, else 1."""
    try:
        recordings = load_all(args.dir)
    except RecordingError as error:
        print(f"batchscope conformance: {error}", file=sys.stderr)
        return 2
    differences = {}
    print(f"{'recording':<24}{'requests':>9}{'passes':>8}{'tokens':>8}  {args.level} level, {args.model}, {args.dtype}")
    for recording in recordings:
        verdict = "identical"
        if recording.not_yet:
            verdict = f"not yet: {recording.not_yet}"
        elif difference := LEVELS[args.level](recording, args.model, args.dtype, args.layout):
            verdict = "DIFFERENT"
            differences[recording.name] = difference
        print(_line(recording, verdict), flush=True)
    for name, difference in differences.items():
        print(f"\nfirst difference in {name}: {difference}")
    return 1 if differences else 0


def _line(recording: Recording, verdict: str) -> str:
    tokens = sum(len(ids) for ids in recording.outputs.values())
    return f"{recording.name:<24}{len(recording.requests):>9}{len(recording.passes):>8}{tokens:>8}  {verdict}"

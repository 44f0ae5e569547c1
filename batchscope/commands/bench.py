"""`batchscope bench`: performance as ratios of one run, never as a timed test."""

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from batchscope.bench import overhead, results, throughput
from batchscope.bench.peer import SCRIPTS, VARIANTS, model_for
from batchscope.bench.throughput import Plan
from engine.config import ConfigError

PEERS = ",".join(f"{name}=ENV" for name in SCRIPTS)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("bench", help="measure, as ratios of one run")
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    _add_throughput(kinds.add_parser("throughput", help="decode, prefill, first token and churn, beside other engines"))
    _add_overhead(kinds.add_parser("overhead", help="what a pass costs besides the model, by phase"))
    for kind in kinds.choices.values():
        kind.add_argument("--model", default="smollm2")
        kind.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
        kind.set_defaults(run=_run)


def _add_throughput(kind: argparse.ArgumentParser) -> None:
    _add_peers(kind)
    kind.add_argument(
        "--variants", type=_names(VARIANTS), default=["bfloat16"], metavar="NAME,...",
        help=f"of ours: {', '.join(VARIANTS)} (default: bfloat16)",
    )  # fmt: skip
    kind.add_argument("--rows", type=_numbers, default=[1, 8, 16, 32, 64], metavar="N,...", help="row counts to decode")
    kind.add_argument("--prompt-tokens", type=int, default=64)
    kind.add_argument("--new-tokens", type=int, default=128)
    kind.add_argument("--turns", type=int, default=3, help="measured turns of each engine (default: %(default)s)")
    kind.add_argument("--chart", type=Path, metavar="FILE", help="draw it, as SVG or PNG")
    kind.set_defaults(measure=_throughput)


def _add_peers(kind: argparse.ArgumentParser) -> None:
    kind.add_argument(
        "--peers", type=_environments, default={}, metavar=PEERS,
        help="engines to compare with, each in a virtual environment of its own: its folder or its python",
    )  # fmt: skip
    kind.add_argument("--peer-model", metavar="DIR", help="the same weights for those that read no GGUF file")
    kind.add_argument("--enforce-eager", action="store_true", help="run vLLM without compilation")


def _add_overhead(kind: argparse.ArgumentParser) -> None:
    _add_peers(kind)
    kind.add_argument("--rows", type=_numbers, default=[16, 64, 256], metavar="N,...", help="numbers of decoding rows")
    kind.add_argument("--passes", type=int, default=60, help="passes that the medians are taken over")
    kind.set_defaults(measure=_overhead)


def _run(args: argparse.Namespace) -> int:
    """Measure, print and write. Returns 2, after one line on stderr, for a setting or an engine that cannot work."""
    try:
        measured = args.measure(args)
    except (ConfigError, RuntimeError) as error:
        print(f"batchscope bench: {error}", file=sys.stderr)
        return 2
    if args.json:
        results.write_json(args.json, args, measured)
    return 0


def _throughput(args: argparse.Namespace) -> dict[str, Any]:
    measured = throughput.measure(_plan(args), _tell)
    if args.chart:
        from batchscope.bench.chart import draw_throughput

        draw_throughput(measured, args.chart)
    return measured


def _overhead(args: argparse.Namespace) -> dict[str, Any]:
    """Print the median of each phase in microseconds for each row count, and vLLM's for the last if it is named."""
    measured = []
    for rows in args.rows:
        medians = overhead.ours(args.model, rows, args.passes)
        measured.append({"rows": rows, "engine": "batchscope", "microseconds": medians})
        _tell(overhead.line(f"{rows} rows", medians))
    if "vllm" in args.peers:
        model = model_for("vllm", args.model, args.peer_model)
        theirs = overhead.vllm(args.peers["vllm"], model, args.rows[-1], args.passes)
        measured.append({"rows": args.rows[-1], "engine": "vllm", "microseconds": theirs})
        _tell(overhead.line(f"vllm, {args.rows[-1]} rows", theirs))
        _tell(f"batchscope / vllm at {args.rows[-1]} rows: {medians['sum'] / theirs['sum']:.2f}")
    return {"overhead": measured}


def _plan(args: argparse.Namespace) -> Plan:
    return Plan(**{field.name: getattr(args, field.name) for field in fields(Plan)})


def _tell(line: str) -> None:
    print(line, flush=True)


def _names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a reader of comma-separated names, each a known one."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(known)}")
        return names

    return read


def _numbers(text: str) -> list[int]:
    return sorted(int(part) for part in text.split(","))


def _environments(text: str) -> dict[str, Path]:
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    if unknown := pairs.keys() - SCRIPTS.keys():
        raise argparse.ArgumentTypeError(f"unknown engine {', '.join(sorted(unknown))}: there are {PEERS}")
    return {name: Path(environment).expanduser() for name, environment in pairs.items()}

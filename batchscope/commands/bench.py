"""`batchscope bench`: performance as ratios of one run, never as a timed test."""

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from batchscope.bench import machine, overhead, pass_profile, quality, results, startup, throughput, trace_cost
from batchscope.bench.peer import SCRIPTS, VARIANTS, model_for
from batchscope.bench.throughput import Plan
from engine.config import ConfigError, ModelConfig
from engine.core_client import EngineDeadError
from engine.model_source import resolve

PEERS = ",".join(f"{name}=ENV" for name in SCRIPTS)
REPORT_PROFILES = (1, 16, 64)  # rows
REPORT_TRACE_ROWS = 32


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("bench", help="measure, as ratios of one run")
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    words = "decode, prefill, first token and churn, beside other engines"
    _add_throughput(kinds.add_parser("throughput", help=words))
    _add_trace(kinds.add_parser("trace", help="what recording costs, in pairs and with an interval"))
    _add_profile(kinds.add_parser("profile", help="where a pass goes, by phase and by kernel"))
    _add_startup(kinds.add_parser("startup", help="from `batchscope serve` to the first token, and the memory taken"))
    _add_overhead(kinds.add_parser("overhead", help="what a pass costs besides the model, by phase"))
    _add_quality(kinds.add_parser("quality", help="what faster ways to calculate cost: perplexity, beside float32"))
    _add_report(kinds.add_parser("report", help="all of it but overhead, in one run, written as a document"))
    for kind in kinds.choices.values():
        kind.add_argument("--model", default="smollm2")
        kind.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
        kind.set_defaults(run=_run)


def _add_throughput(kind: argparse.ArgumentParser) -> None:
    _add_workloads(kind)
    kind.add_argument("--chart", type=Path, metavar="FILE", help="draw it, as SVG or PNG")
    kind.set_defaults(measure=_throughput)


def _add_workloads(kind: argparse.ArgumentParser) -> None:
    _add_peers(kind)
    _add_variants(kind)
    kind.add_argument("--rows", type=_numbers, default=[1, 8, 16, 32, 64], metavar="N,...", help="row counts to decode")
    kind.add_argument("--prompt-tokens", type=int, default=64)
    kind.add_argument("--new-tokens", type=int, default=128)
    kind.add_argument("--turns", type=int, default=3, help="measured turns of each engine (default: %(default)s)")


def _add_peers(kind: argparse.ArgumentParser) -> None:
    kind.add_argument(
        "--peers", type=_environments, default={}, metavar=PEERS,
        help="engines to compare with, each in a virtual environment of its own: its folder or its python",
    )  # fmt: skip
    kind.add_argument("--peer-model", metavar="DIR", help="the same weights for those that read no GGUF file")
    kind.add_argument("--enforce-eager", action="store_true", help="run vLLM without compilation")


def _add_variants(kind: argparse.ArgumentParser) -> None:
    words = f"of ours, of {', '.join(VARIANTS)} (default: bfloat16)"
    kind.add_argument("--variants", type=_names(VARIANTS), default=["bfloat16"], metavar="NAME,...", help=words)


def _add_trace(kind: argparse.ArgumentParser) -> None:
    _add_variants(kind)
    kind.add_argument("--rows", type=int, default=REPORT_TRACE_ROWS)
    _add_rounds(kind)
    kind.set_defaults(measure=_trace)


def _add_rounds(kind: argparse.ArgumentParser) -> None:
    kind.add_argument(
        "--rounds", type=int, default=16, help="of some 250 passes each, for each way (default: %(default)s)"
    )


def _add_profile(kind: argparse.ArgumentParser) -> None:
    _add_variants(kind)
    kind.add_argument("--rows", type=_numbers, default=[1, 16, 64], metavar="N,...", help="numbers of decoding rows")
    kind.add_argument("--passes", type=int, default=64, help="passes to time (default: %(default)s)")
    kind.add_argument("--chart", type=Path, metavar="FILE", help="draw it, as SVG or PNG")
    kind.set_defaults(measure=_profile)


def _add_startup(kind: argparse.ArgumentParser) -> None:
    _add_variants(kind)
    kind.add_argument("--rows", type=int, default=64, help="rows to take memory for (default: %(default)s)")
    kind.add_argument("--starts", type=int, default=3, help="starts with a warm cache (default: %(default)s)")
    kind.set_defaults(measure=_startup)


def _add_overhead(kind: argparse.ArgumentParser) -> None:
    _add_peers(kind)
    kind.add_argument("--rows", type=_numbers, default=[16, 64, 256], metavar="N,...", help="numbers of decoding rows")
    kind.add_argument("--passes", type=int, default=60, help="passes that the medians are taken over")
    kind.set_defaults(measure=_overhead)


def _add_quality(kind: argparse.ArgumentParser) -> None:
    _add_variants(kind)
    kind.set_defaults(measure=_quality)


def _add_report(kind: argparse.ArgumentParser) -> None:
    kind.add_argument("file", type=Path, help="the document, in Markdown; charts are written beside it")
    _add_workloads(kind)
    _add_rounds(kind)
    kind.set_defaults(measure=_report, starts=3, passes=64)


def _run(args: argparse.Namespace) -> int:
    """Measure, print and write. Returns 2, after one line on stderr, for a setting or an engine that cannot work."""
    try:
        measured = args.measure(args)
    except (ConfigError, EngineDeadError, RuntimeError) as error:
        print(f"batchscope bench: {error}", file=sys.stderr)
        return 2
    if args.json:
        results.write_json(args.json, results.headed(args, measured))
    return 0


def _throughput(args: argparse.Namespace) -> dict[str, Any]:
    plan = Plan(**{field.name: getattr(args, field.name) for field in fields(Plan)})
    measured = throughput.measure(plan, _tell)
    if args.chart:
        from batchscope.bench.chart import draw_throughput

        draw_throughput(measured, args.chart)
    return measured


def _trace(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "traces": [
            {"variant": variant}
            | trace_cost.measure(args.rows, args.rounds, _tell, model=args.model, **VARIANTS[variant])
            for variant in args.variants
        ]
    }


def _profile(args: argparse.Namespace) -> dict[str, Any]:
    profiles = []
    for variant in args.variants:
        for rows in args.rows:
            profiles.append(
                {"variant": variant} | pass_profile.measure(rows, args.passes, model=args.model, **VARIANTS[variant])
            )
            _tell(pass_profile.told(profiles[-1]) + "\n")
    if args.chart:
        from batchscope.bench.chart import draw_profiles

        draw_profiles(profiles, args.chart)
    return {"profiles": profiles}


def _startup(args: argparse.Namespace) -> dict[str, Any]:
    vocab_size = resolve(ModelConfig(model=args.model)).hf_config["vocab_size"]
    starts = []
    for variant in args.variants:
        flags = [word for name, value in VARIANTS[variant].items() for word in (f"--{name}", value)]
        flags += ["--model", args.model]
        starts.append({"variant": variant} | startup.measure(args.rows, args.starts, flags, vocab_size))
        _tell(startup.line(starts[-1]))
    return {"starts": starts}


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


def _quality(args: argparse.Namespace) -> dict[str, Any]:
    measured = quality.measure(args.model, {name: VARIANTS[name] for name in args.variants})
    for result in measured:
        _tell(quality.line(result))
    return {"quality": measured}


def _report(args: argparse.Namespace) -> dict[str, Any]:
    """Measure everything, and write the document, its charts and its numbers."""
    from batchscope.bench.chart import draw_profiles, draw_throughput
    from batchscope.bench.report import write

    plan = argparse.Namespace(**vars(args), chart=None)
    limits = machine.limits()
    measured = {"limits": limits} | _throughput(plan) | _startup(results.changed(plan, rows=max(args.rows)))
    measured |= _profile(results.changed(plan, rows=REPORT_PROFILES))
    measured |= _trace(results.changed(plan, rows=REPORT_TRACE_ROWS, variants=args.variants[:1]))
    charts = [args.file.with_suffix(".svg"), args.file.with_name(f"{args.file.stem}-profile.svg")]
    draw_throughput(measured, charts[0])
    draw_profiles(measured["profiles"], charts[1])
    args.file.write_text(write(results.headed(args, measured), *(chart.name for chart in charts)), encoding="utf-8")
    return measured


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

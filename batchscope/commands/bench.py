"""`batchscope bench`: performance as ratios of one run, never as a timed test."""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from batchscope.bench import overhead
from batchscope.bench.turns import Peer, batchscope_peer, foreign_peer, ratios, take_turns
from engine.config import ModelConfig
from engine.model_source import resolve


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("bench", help="measure, as ratios of one run")
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    throughput = kinds.add_parser("throughput", help="decode, in tokens a second")
    throughput.add_argument("--dtype", default="bfloat16")
    throughput.add_argument("--rows", default="1,16", help="row counts to measure, separated by commas")
    throughput.add_argument("--prompt-tokens", type=int, default=64)
    throughput.add_argument("--new-tokens", type=int, default=128)
    throughput.add_argument("--turns", type=int, default=3, help="measured turns of each engine, after one that is not")
    throughput.add_argument("--enforce-eager", action="store_true", help="run vLLM without compilation")
    throughput.set_defaults(run=run_throughput)
    cost = kinds.add_parser("overhead", help="what a pass costs besides the model, by phase")
    cost.add_argument("--rows", default="16,64,256", help="numbers of decoding rows, separated by commas")
    cost.add_argument("--passes", type=int, default=60, help="passes that the medians are taken over")
    cost.set_defaults(run=run_overhead)
    for kind in (throughput, cost):
        kind.add_argument("--model", default="smollm2")
        kind.add_argument("--vllm", type=Path, metavar="ENV", help="a virtual environment that holds vLLM, to compare")
        kind.add_argument("--vllm-model", type=Path, metavar="DIR", help="the same weights as a Hugging Face folder")
        kind.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")


def run_overhead(args: argparse.Namespace) -> int:
    """Print the median of each phase in microseconds for each row count, and vLLM's for the last if it is named."""
    if _lacks_model(args):
        return 2
    row_counts = [int(rows) for rows in args.rows.split(",")]
    results = []
    for rows in row_counts:
        medians = overhead.ours(args.model, rows, args.passes)
        results.append({"rows": rows, "engine": "batchscope", "microseconds": medians})
        print(_phases(f"{rows} rows", medians), flush=True)
    if args.vllm:
        theirs = overhead.vllm(args.vllm, args.vllm_model, row_counts[-1], args.passes)
        results.append({"rows": row_counts[-1], "engine": "vllm", "microseconds": theirs})
        print(_phases(f"vllm, {row_counts[-1]} rows", theirs))
        print(f"batchscope / vllm at {row_counts[-1]} rows: {medians['sum'] / theirs['sum']:.2f}")
    _write(args, results)
    return 0


def _lacks_model(args: argparse.Namespace) -> bool:
    if args.vllm and not args.vllm_model:
        print("batchscope bench: --vllm needs --vllm-model, a folder with the same weights", file=sys.stderr)
        return True
    return False


def _phases(title: str, medians: dict[str, float]) -> str:
    return f"{title:>16}: " + "  ".join(f"{name} {value:.0f} µs" for name, value in medians.items())


def _write(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    if args.json:
        args.json.write_text(json.dumps({"settings": _settings(args), "results": results}, indent=1) + "\n")


def run_throughput(args: argparse.Namespace) -> int:
    """Measure every engine in turns, print the rates and ratios, and write them to --json if given."""
    if _lacks_model(args):
        return 2
    row_counts = [int(rows) for rows in args.rows.split(",")]
    vocab_size = resolve(ModelConfig(model=args.model)).hf_config["vocab_size"]
    peers = _start(args, max(row_counts))
    results = []
    try:
        for rows in row_counts:
            rates = take_turns(peers, rows, args.turns, args.prompt_tokens, args.new_tokens, vocab_size)
            results.append({"rows": rows, "tokens_per_second": rates, "ratios": ratios(rates)})
            print(_line(rows, rates), flush=True)
    finally:
        for peer in peers:
            peer.close()
    _write(args, results)
    return 0


def _start(args: argparse.Namespace, max_rows: int) -> list[Peer]:
    limits = {"max_num_seqs": max_rows, "max_num_batched_tokens": max(512, max_rows), "max_model_len": 1024}
    common: dict[str, Any] = limits | {"dtype": args.dtype, "enable_prefix_caching": False}
    peers = [batchscope_peer(args.model, common)]
    if args.vllm:
        flags = common | {"block_size": 32, "enforce_eager": args.enforce_eager}
        env = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "2"}
        peers.append(foreign_peer("vllm", args.vllm, str(args.vllm_model), flags, env))
    return peers


def _line(rows: int, rates: dict[str, list[float]]) -> str:
    shown = "  ".join(
        f"{name} {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f}) tok/s"
        for name, values in rates.items()
    )
    compared = "".join(f"  {ratio:.2f}x {name}" for name, ratio in ratios(rates).items())
    return f"{rows:>3} rows: {shown}{compared}"


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    settings = {name: value for name, value in vars(args).items() if name != "run"}
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}

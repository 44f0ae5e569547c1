"""Charts of what was measured. matplotlib comes with the `bench` extra."""

import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchscope.bench.pass_profile import parts

COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#999999")  # told apart by colour-blind eyes too
KINDS = ("decode", "prefill", "first token", "churn")
PIECES = (*COLOURS, "#009e73", "#cc79a7", "#f0e442")
OTHERS = "all others"
HATCHES = ("", "//", "", "..", "xx")


def draw_throughput(measured: dict[str, Any], path: Path) -> None:
    """Draw each engine's medians by workload, with the least and the most, as SVG or whatever the name ends in."""
    engines = list(measured["engines"])
    kinds = [
        [each for each in measured["workloads"] if each["kind"] == kind]
        for kind in ("decode", "prefill", "first token", "churn")
    ]
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes = figure.subplots(1, len(kinds), width_ratios=[max(2, len(each)) for each in kinds])
    for ax, results in zip(axes, kinds, strict=True):
        _draw_bars(ax, results, engines)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(engines), frameon=False)
    figure.savefig(path)


def _draw_bars(ax: Axes, results: list[dict[str, Any]], engines: list[str]) -> None:
    width = 0.8 / len(engines)
    for number, engine in enumerate(engines):
        at, medians, least, most = [], [], [], []
        for place, result in enumerate(results):
            if values := result["values"].get(engine):
                at.append(place + width * (number - (len(engines) - 1) / 2))
                medians.append(statistics.median(values))
                least.append(medians[-1] - min(values))
                most.append(max(values) - medians[-1])
        ax.bar(
            at, medians, width, yerr=[least, most], label=engine, color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number % len(HATCHES)], edgecolor="white", error_kw={"elinewidth": 0.8},
        )  # fmt: skip
    ax.set_title(results[0]["kind"] if results else "", fontsize=10)
    ax.set_xticks(range(len(results)), [_tick(result) for result in results])
    ax.set_ylabel(results[0]["unit"] if results else "")
    ax.spines[["top", "right"]].set_visible(False)


def _tick(result: dict[str, Any]) -> str:
    return f"{result['rows']}" if result["kind"] == "decode" else ""


def draw_profiles(profiles: list[dict[str, Any]], path: Path) -> None:
    """Draw where the time of a pass goes: one bar each by phase, one by kernel, in milliseconds."""
    figure = Figure(figsize=(12, 1.6 + 1.1 * len(profiles)), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, what, part in zip(axes, ("phase", "kernel"), zip(*map(parts, profiles), strict=True), strict=True):
        _draw_stacks(ax, [f"{each['variant']}, {each['rows']} rows" for each in profiles], list(part))
        ax.set_title(f"by {what}, ms a pass", fontsize=10)
    figure.savefig(path)


def _draw_stacks(ax: Axes, titles: list[str], stacks: list[dict[str, float]]) -> None:
    """Draw one stack a line; what is small in all of them is drawn as one piece."""
    large = {name for stack in stacks for name, ms in stack.items() if ms > sum(stack.values()) / 40}
    names = [*sorted(large, key=lambda name: -max(stack.get(name, 0) for stack in stacks)), OTHERS]
    left = [0.0] * len(stacks)
    for number, name in enumerate(names):
        widths = [_piece(stack, name, large) for stack in stacks]
        colour, hatch = PIECES[number % len(PIECES)], HATCHES[number // len(PIECES) % len(HATCHES)]
        ax.barh(titles, widths, left=left, label=name, color=colour, hatch=hatch, edgecolor="white")
        left = [start + width for start, width in zip(left, widths, strict=True)]
    ax.invert_yaxis()
    ax.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)
    ax.spines[["top", "right"]].set_visible(False)


def _piece(stack: dict[str, float], name: str, large: set[str]) -> float:
    return sum(ms for other, ms in stack.items() if other not in large) if name == OTHERS else stack.get(name, 0.0)

"""The document that the bench writes of one run, in Markdown."""

import statistics
from collections.abc import Iterator
from typing import Any

from batchscope.bench import pass_profile, startup
from batchscope.bench.floor import decode_floor
from batchscope.bench.trace_cost import BUNCHED, MODES, PATIENT, QUICK, Cost
from batchscope.bench.turns import is_ours
from batchscope.tables import Table

HEAD = """\
# Benchmarks

`{command}` measured this and wrote this file, on {date}. Only ratios of one run mean anything: the same machine is
faster on another day."""

FLOOR = """\
## How close to the floor

A pass must read the weights once, and each row's KV, and multiply by them. This is how long that takes at the machine's
measured bandwidth and arithmetic, how long a pass took, and what share of it the longer of the two is."""

NOT_TAKEN = "not taken"

METHOD = """\
## Method

Every engine runs in processes and an environment of its own, on all cores, with its own defaults but for bfloat16
weights, room for {rows} rows and, in vLLM, 2 GB of KV cache and the core that it would leave to its other processes.
The engines take turns: each is measured once, then each once more in the opposite order, {turns} times in all; one runs
at a time, and the others are stopped by a signal meanwhile. A number is the median of the turns, with the least and the
most behind it. Prompts are random token ids, the same for every engine and new in every turn, so that no prefix cache
has them; sampling is greedy, nothing is detokenized, and every request gets exactly as many tokens as it asks for.

- **decode**: prompts of {prompt_tokens} tokens and {new_tokens} new ones each, all at once: the time of all new tokens
  less that of the first.
- **prefill**: prompts of 512 tokens, one after the other, to their first token.
- **first token**: a request alone.
- **churn**: requests of 16 to 256 prompt tokens and 16 to 128 new ones, which arrive faster than they are done: all
  their tokens over the time from the first arrival to the last answer. transformers' `generate` takes no arrivals, and
  llama.cpp's Python interface one prompt at a time.

The floor takes memory bandwidth as what a dot product over 1 GiB reads a second, and arithmetic as what a bfloat16
product of two 2048 by 2048 matrices does, each the best of five. A pass is profiled in an engine as `batchscope serve`
runs it; each call of a kernel is timed, which makes that pass about 1% longer. Recording is switched on and off in one
engine process, while nobody looks at the page, every {on} passes (every {off} for what the bench can tell apart); where
a file is written, every {patient}. The first {on_late} of them, and {patient_late} where a file is written, do not
count: in them is done what the stretch before has left to other processes. What is gathered for /metrics once a second
falls on both. The cost is the mean over four such stretches each (off, on, on, off, or the other way round, so that
what grows steadily cancels out), with a 95% interval from a bootstrap over them."""


def write(measured: dict[str, Any], chart: str, profile_chart: str) -> str:
    """Return the document. `measured` is what `bench report` puts into its JSON file; charts go by their names."""
    return "\n\n".join(_sections(measured, chart, profile_chart)) + "\n"


def _sections(measured: dict[str, Any], chart: str, profile_chart: str) -> Iterator[str]:
    settings = measured["settings"]
    yield HEAD.format(command="batchscope bench report", date=measured["date"][:10])
    yield "## Machine"
    yield str(_machine(measured))
    yield "## Throughput"
    yield f"![medians by workload]({chart})"
    yield str(_rates(measured))
    if ratios := _ratios(measured):
        yield "How many times as good as theirs ours is:"
        yield str(ratios)
    yield FLOOR
    yield str(_floors(measured))
    yield "## Where a pass goes"
    yield f"![phases of a pass]({profile_chart})"
    yield from map(pass_profile.told, measured["profiles"])
    for each in measured["traces"]:
        yield f"## What tracing costs: {each['variant']}"
        yield str(_tracing(each))
    yield "## Start and memory"
    for each in measured["starts"]:
        yield f"**{each['variant']}:** {startup.line(each)}."
    yield METHOD.format(
        rows=max(settings["rows"]), turns=settings["turns"], prompt_tokens=settings["prompt_tokens"],
        new_tokens=settings["new_tokens"], off=QUICK.stretch, on=BUNCHED.stretch,
        on_late=BUNCHED.late, patient=PATIENT.stretch, patient_late=PATIENT.late,
    )  # fmt: skip


def _machine(measured: dict[str, Any]) -> Table:
    machine, limits = measured["machine"], measured["limits"]
    facts = {
        "processor": f"{machine['processor']}, {machine['cores']} cores",
        "memory": f"{machine['memory_bytes'] / 2**30:.0f} GiB, read at {limits['bytes_per_second'] / 1e9:.1f} GB/s",
        "arithmetic": f"{limits['flops_per_second'] / 1e9:.0f} GFLOP/s in bfloat16",
        "system": machine["system"],
        "ours": ", ".join(f"{name} {version}" for name, version in machine["versions"].items()),
        "others": ", ".join(f"{name} {version}" for name, version in measured["engines"].items() if not is_ours(name)),
    }
    return Table(("", ""), [(name, text) for name, text in facts.items() if text])


def _rates(measured: dict[str, Any]) -> Table:
    engines = list(measured["engines"])
    rows = [
        (each["name"], each["unit"], *(_spread(each["values"].get(engine)) for engine in engines))
        for each in measured["workloads"]
    ]
    return Table(("", "unit", *engines), rows)


def _spread(values: list[float] | None) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else NOT_TAKEN


def _ratios(measured: dict[str, Any]) -> Table | None:
    engines = list(measured["engines"])
    pairs = [(ours, other) for ours in engines for other in engines if is_ours(ours) and not is_ours(other)]
    rows = [
        (each["name"], *(_times(each["ratios"].get(ours, {}).get(other)) for ours, other in pairs))
        for each in measured["workloads"]
    ]
    return Table(("", *(f"{ours} / {other}" for ours, other in pairs)), rows) if pairs else None


def _times(ratio: float | None) -> str:
    return NOT_TAKEN if ratio is None else f"{ratio:.2f}x"


def _floors(measured: dict[str, Any]) -> Table:
    settings, limits = measured["settings"], measured["limits"]
    context = settings["prompt_tokens"] + settings["new_tokens"] / 2
    rows = []
    for each in measured["workloads"]:
        for name in filter(is_ours, each["values"] if each["kind"] == "decode" else ()):
            floor = decode_floor(settings["model"], name.split()[-1], each["rows"], context, limits)
            took = each["rows"] / statistics.median(each["values"][name])
            shown = (f"{1000 * seconds:.2f}" for seconds in (floor.memory_s, floor.arithmetic_s, took))
            rows.append((name, each["rows"], *shown, floor.bound_by, f"{100 * max(floor) / took:.0f}%"))
    return Table(("", "rows", "memory, ms", "arithmetic, ms", "a pass took, ms", "bound by", "reached"), rows)


def _tracing(measured: dict[str, Any]) -> Table:
    rows = [
        (mode, str(Cost(*(measured[mode][field] for field in Cost._fields))), len(measured[mode]["pairs"]), what)
        for mode, what in MODES.items()
    ]
    return Table((f"at {measured['rows']} rows", "throughput falls by", "pairs", "meaning"), rows)

"""`bench profile`: where a decode pass goes, by phase and by kernel, in an engine as `batchscope serve` runs it."""

from typing import Any

import msgspec

from batchscope.bench.live import live_engine
from batchscope.tables import Table
from tracer.phases import Phase
from webui.profiling import profile_passes

WARM_UP_TOKENS = 8
TIMEOUT_S = 120.0
MODEL_PHASES = (Phase.FORWARD, Phase.PARK_LOGITS, Phase.SAMPLE_TOKENS)  # the rest is bookkeeping
BETWEEN_PASSES = "between passes"
LEAST_SHARE = 0.0005
OUTSIDE_KERNELS = "outside kernels"


def measure(rows: int, passes: int, **settings: Any) -> dict[str, Any]:
    """Return the Profile of passes in which `rows` rows decode one token each, as plain values, with `rows`."""
    with live_engine(rows, **settings) as engine:
        engine.decode_rate(rows, WARM_UP_TOKENS, seed=0)
        streams = engine.start_rows(rows, passes + 3 * WARM_UP_TOKENS, seed=1)
        profile = profile_passes(engine.llm, passes, TIMEOUT_S)
        for stream in streams:
            stream.cancel()
    return {"rows": rows} | msgspec.to_builtins(profile)


def bookkeeping_share(profile: dict[str, Any]) -> float:
    """Return the share of all time, that between passes included, which is neither the model's nor the sampler's."""
    whole = profile["pass_ns"] + profile["between_ns"]
    return 1 - sum(profile["phases"].get(phase, 0) for phase in MODEL_PHASES) / whole


def told(profile: dict[str, Any]) -> str:
    """Return it as text, bookkeeping first."""
    title = f"{profile['variant']}, {profile['rows']} rows, {profile['passes']} passes"
    share = f"Bookkeeping, all but the forward pass, the head and sampling, takes {bookkeeping_share(profile):.1%}."
    return "\n\n".join((f"**{title}.** {share}", *map(str, tables(profile))))


def parts(profile: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return milliseconds a pass by phase and by kernel; each adds up to all the time from pass to pass."""
    between = {BETWEEN_PASSES: profile["between_ns"]}
    kernels = {kernel["name"]: kernel["ns"] for kernel in profile["kernels"]}
    kernels[OUTSIDE_KERNELS] = profile["pass_ns"] - sum(kernels.values())
    by_phase, by_kernel = profile["phases"] | between, kernels | between
    scale = 1e6 * profile["passes"]
    return {name: ns / scale for name, ns in by_phase.items()}, {name: ns / scale for name, ns in by_kernel.items()}


def tables(profile: dict[str, Any]) -> list[Table]:
    """Return `parts` as tables, in milliseconds a pass and as shares; what takes next to nothing is left out."""
    return [_table(what, spent) for what, spent in zip(("phase", "kernel"), parts(profile), strict=True)]


def _table(what: str, spent: dict[str, float]) -> Table:
    whole = sum(spent.values())
    shown = [(name, f"{ms:.3f}", f"{ms / whole:.1%}") for name, ms in spent.items() if ms >= whole * LEAST_SHARE]
    return Table((what, "ms a pass", "share"), shown)

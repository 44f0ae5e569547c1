"""`bench profile`: where a decode pass goes, by phase and by kernel, in an engine as `batchscope serve` runs it."""

from typing import Any

import msgspec

from batchscope.bench.live import live_engine
from batchscope.tables import Table
from tracer.pass_times import BETWEEN_PHASES
from tracer.phases import Phase
from webui.profiling import profile_passes

WARM_UP_TOKENS = 8
TIMEOUT_S = 120.0
MODEL_PHASES = (Phase.FORWARD, Phase.PARK_LOGITS, Phase.SAMPLE_TOKENS)  # the rest is bookkeeping
BETWEEN_PASSES = "between passes"
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


def tables(profile: dict[str, Any]) -> list[Table]:
    """Return the profile by phase and by kernel, in milliseconds a pass and as shares of the time of all passes."""
    title = f"{profile['rows']} rows, {profile['passes']} passes"
    kernels = {kernel["name"]: kernel["ns"] for kernel in profile["kernels"]}
    kernels[OUTSIDE_KERNELS] = profile["pass_ns"] - sum(kernels.values())
    phases = profile["phases"] | {BETWEEN_PASSES: profile["between_ns"]}
    return [
        _table("phase", f"{title}, by phase", phases, profile),
        _table("kernel", f"{title}, by kernel", kernels, profile),
    ]


def _table(what: str, title: str, spent: dict[str, int], profile: dict[str, Any]) -> Table:
    whole = profile["pass_ns"] + profile["between_ns"]
    rows = [
        (name, f"{ns / profile['passes'] / 1e6:.3f}", f"{100 * ns / whole:.1f}%")
        for name, ns in spent.items()
        if ns >= whole / 2000 or name == BETWEEN_PHASES
    ]
    return Table((what, "ms a pass", "share"), rows, title)

"""Logits to token ids: greedy, and random with vLLM's filters and a random number that belongs to the token.

The random number of a row is a hash of its seed and of the position of the token it draws, so that a request draws the
same tokens alone or in a batch, in any row, in chunks of any size and after a preemption. Each row's result is
calculated from that row alone; sums run in float64, in a fixed order.
"""

import numpy as np
import torch
from torch.nn import functional

from kernels.cpu import as_numpy, run
from kernels.sampling_cpu import BLOCK, greedy_rows, sample_rows

# Below this a temperature means greedy, as in vLLM.
SMALLEST_TEMPERATURE = 1e-5
# Numbers of highest logits to try before a top_p row is sorted whole.
_NUCLEUS_SIZES = (256, 4096)

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX2 = 0x94D049BB133111EB - (1 << 64)


def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
    """Return the id of each row's highest logit, the lowest of equal ones. logits: [R, V]. Result: int64 [R]."""
    if not logits.is_cpu or logits.dtype is not torch.float32:
        return logits.max(dim=-1).indices
    drawn = torch.empty(len(logits), dtype=torch.int64)
    run(greedy_rows, logits.numel(), as_numpy(logits.contiguous()), as_numpy(drawn))
    return drawn


def random_sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor | np.ndarray,
    counters: torch.Tensor | np.ndarray,
) -> torch.Tensor:
    """Draw a token id for each row. logits: float32 [R, V], not changed. Result: int64 [R].

    temperature, top_p, min_p: float [R]; top_k, seeds, counters: integers [R]; tensors or numpy arrays. Temperature
    below 1e-5 or top_k 1 is greedy; top_k below 1 or above V, top_p 1 and min_p 0 are off. Order: temperature, min_p,
    top_k, top_p. Of equal logits the lower ids pass a filter first. counters: the position of the token to be drawn.
    """
    device, vocab = logits.device, logits.shape[1]
    per_row = (torch.as_tensor(x, device=device) for x in (temperature, top_k, top_p, min_p, seeds, counters))
    temperature, top_k, top_p, min_p, seeds, counters = per_row
    top_k = top_k.to(torch.int64).where((top_k > 0) & (top_k < vocab), vocab)
    if logits.is_cpu:
        return _random_sample_cpu(logits, temperature, top_k, top_p, min_p, uniform(seeds, counters))
    return _random_sample_torch(logits, temperature, top_k, top_p, min_p, uniform(seeds, counters))


def _random_sample_cpu(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
) -> torch.Tensor:
    temperature = temperature.to(torch.float32).where(temperature >= SMALLEST_TEMPERATURE, 0)
    arrays = logits.contiguous(), temperature, top_k, top_p.to(torch.float32), min_p.to(torch.float32), uniforms
    drawn = torch.empty(len(logits), dtype=torch.int64)
    run(sample_rows, logits.numel(), *map(as_numpy, arrays), as_numpy(drawn))
    return drawn


def _random_sample_torch(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
) -> torch.Tensor:
    random = torch.nonzero((temperature >= SMALLEST_TEMPERATURE) & (top_k > 1)).flatten()
    if len(random) == 0:
        return greedy_sample(logits)
    if len(random) == len(logits):
        return _draw(_weights(logits, temperature, top_k, top_p, min_p), uniforms)
    rows = (x[random] for x in (logits, temperature, top_k, top_p, min_p))
    return greedy_sample(logits).index_copy_(0, random, _draw(_weights(*rows), uniforms[random]))


def uniform(seeds: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Return float64 numbers in [0, 1), each a hash (splitmix64) of its seed and counter. All [R], int64."""
    stream = _mix(seeds.to(torch.int64) + _GOLDEN)
    bits = _mix(stream + (counters.to(torch.int64) + 1) * _GOLDEN)
    return _shift_right(bits, 11).to(torch.float64) * 2.0**-53


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift as if x were unsigned."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """splitmix64's finalizer, in int64 arithmetic that wraps."""
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return x ^ _shift_right(x, 31)


def _weights(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """Return what each id weighs, not normalized: 0 where a filter takes it out. float32 [R, V], at most 1."""
    scaled = (logits - logits.amax(-1, keepdim=True)).div_(temperature.to(logits.dtype)[:, None])
    if bool((min_p > 0).any()):
        floor = min_p.to(torch.float32).log()[:, None]  # the highest weight is exp(0), so min_p is its own threshold
        scaled = scaled.masked_fill_(scaled < floor, -torch.inf)
    weights = scaled.exp()
    filtered = torch.nonzero((top_k < logits.shape[1]) | (top_p < 1)).flatten()
    if len(filtered):
        rows = (x[filtered] for x in (scaled, weights, top_k, top_p))
        weights[filtered] = _filter_top(*rows)
    return weights


def _filter_top(scaled: torch.Tensor, weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep each row's highest top_k, of these the fewest whose share reaches top_p, and zero the other weights."""
    values, kept = _count_kept(scaled, weights, top_k, top_p)
    threshold = values.gather(1, kept[:, None] - 1)
    equal = scaled == threshold
    equal_kept = kept - (values > threshold).sum(-1)
    if bool((equal.sum(-1) > equal_kept).any()):
        equal &= equal.cumsum(-1) <= equal_kept[:, None]
    return weights.where((scaled > threshold) | equal, 0)


def _count_kept(
    scaled: torch.Tensor, weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's highest values in falling order, at least as many as are kept, and how many those are."""
    vocab = scaled.shape[1]
    limited = top_k < vocab
    whole = _block_sums(weights).cumsum(-1)[:, -1] if bool((~limited).any()) else None
    least = int(top_k.where(limited, 1).max())
    for size in (*(n for n in _NUCLEUS_SIZES if least <= n < vocab), vocab):
        values = scaled.topk(size, dim=-1).values
        sums = values.exp().cumsum(-1, dtype=torch.float64)
        total = sums.gather(1, top_k.clamp(max=size)[:, None] - 1).squeeze(1)
        total = total if whole is None else total.where(limited, whole)
        before = (sums < (top_p * total)[:, None]).sum(-1)  # ids before the one that reaches the share
        kept = torch.minimum(before + 1, top_k).clamp(min=1)
        if size == vocab or not bool((kept > size).any()):
            break
    return values, kept.clamp(max=vocab)


def _draw(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Invert each row's cumulative weights at its uniform number: first find the block, then the id in it.

    An id of weight 0 is never drawn. No float64 copy of all weights is made: its fresh pages cost more than the sums.
    """
    vocab = weights.shape[1]
    reached = _block_sums(weights).cumsum(-1)
    target = uniforms[:, None] * reached[:, -1:]
    block = _first_above(reached, target)
    target = target - reached.gather(1, (block - 1).clamp(min=0)).where(block > 0, 0)
    ids = block * BLOCK + torch.arange(BLOCK, device=weights.device)
    inside = weights.gather(1, ids.clamp(max=vocab - 1)).where(ids < vocab, 0).cumsum(-1, dtype=torch.float64)
    return (block * BLOCK + _first_above(inside, target)).clamp(max=vocab - 1).squeeze(1)


def _first_above(sums: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return [R, 1], where each row of rising sums first passes its target, or its end if rounding hides that."""
    found = torch.searchsorted(sums, target, right=True)
    last = torch.searchsorted(sums, sums[:, -1:].contiguous())
    return torch.minimum(found, last).clamp_(max=sums.shape[1] - 1)


def _block_sums(weights: torch.Tensor) -> torch.Tensor:
    """Return the float64 sum of each BLOCK of a row's weights, [R, ceil(V / BLOCK)]."""
    padded = functional.pad(weights, (0, -weights.shape[1] % BLOCK))
    return padded.view(len(weights), -1, BLOCK).sum(-1, dtype=torch.float64)


def random_sample_reference(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, counter: int
) -> int:
    """Say what random_sample means for one row of logits [V], one id after the other."""
    ids = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))
    if temperature < SMALLEST_TEMPERATURE or top_k == 1:
        return ids[0]
    highest = float(logits[ids[0]])
    weights = {i: float(np.exp((float(logits[i]) - highest) / temperature)) for i in ids}
    kept = [i for i in ids if weights[i] >= min_p]
    kept = kept[:top_k] if top_k > 0 else kept
    total, before = sum(weights[i] for i in kept), 0.0
    nucleus: list[int] = []
    for i in kept:
        if before < top_p * total or not nucleus:
            nucleus.append(i)
        before += weights[i]
    target = float(uniform(torch.tensor([seed]), torch.tensor([counter]))[0]) * sum(weights[i] for i in nucleus)
    for i in sorted(nucleus):
        target -= weights[i]
        if target < 0:
            return i
    return max(nucleus)

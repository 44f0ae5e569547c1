"""random_sample on the CPU: one row after the other, in as few passes over its logits as there are.

Nothing is sorted but a boundary: the smallest kept logit is found by counting and weighing the logits in bins between
the lowest and the highest, then only those in the bin where top_k or top_p is reached, and so on.
"""

import numpy as np
from numba import prange

from kernels.cpu import exp, jit, jit_both

BLOCK = 256  # ids whose weights are summed at once
_NUM_BINS = 1024
_SORTED_AT_ONCE = 64
_LOWEST = np.float32(-87.0)  # e**x of less is not a normal number: such an id weighs nothing


@jit()
def highest_of(row):
    """Return the highest logit. Lanes let the compiler vectorize."""
    lanes = np.full(16, -np.inf, np.float32)
    whole = len(row) // 16 * 16
    for start in range(0, whole, 16):
        for lane in range(16):
            x = row[start + lane]
            lanes[lane] = x if x > lanes[lane] else lanes[lane]
    highest = lanes.max()
    for i in range(whole, len(row)):
        highest = max(highest, row[i])
    return highest


@jit()
def _first(row, value):
    for i in range(len(row)):
        if row[i] == value:
            return i
    return 0


@jit()
def weigh(row, highest, scale, floor, weights):
    """Write each id's weight, at most 1, and 0 where min_p (as `floor`) takes it out."""
    for i in range(len(row)):
        scaled = (row[i] - highest) * scale
        weight = exp(scaled)
        weights[i] = weight if (scaled >= _LOWEST) & (weight >= floor) else np.float32(0.0)


@jit()
def sum_blocks(weights, sums):
    """Write the sum of each block of weights; return the sum of all."""
    total = 0.0
    for block in range(len(sums)):
        of_block = 0.0
        for i in range(block * BLOCK, min((block + 1) * BLOCK, len(weights))):
            of_block += weights[i]
        sums[block] = of_block
        total += of_block
    return total


@jit()
def _split(values, weights, count, most, share, taken, weight):
    """Narrow the first `count` values down to the bin in which `most` or `share` is reached.

    taken and weight: number and weight of the values above those given. Returns them for the bin, and its count.
    """
    high = np.float64(values[:count].max())
    width = high - np.float64(values[:count].min())
    if width == 0:
        return 0, taken, weight
    scale = (_NUM_BINS - 1) / width
    counts, masses = np.zeros(_NUM_BINS, np.int64), np.zeros(_NUM_BINS)
    for i in range(count):
        where = int((high - values[i]) * scale)
        counts[where] += 1
        masses[where] += weights[i]
    where, left = 0, count
    while taken + counts[where] < most and weight + masses[where] < share and left > counts[where]:
        taken += counts[where]
        weight += masses[where]
        left -= counts[where]
        where += 1
    kept = 0
    for i in range(count):
        if int((high - values[i]) * scale) == where:
            values[kept], weights[kept] = values[i], weights[i]
            kept += 1
    return kept, taken, weight


@jit()
def _boundary(values, weights, count, most, share):
    """Find where values, taken from the highest down, reach `most` in number or `share` in weight, whichever is first.

    values and weights [count] are changed. Returns the value there, how many equal to it are taken, and the weight of
    all that are taken.
    """
    taken, weight = 0, 0.0
    while count > _SORTED_AT_ONCE:
        kept, taken, weight = _split(values, weights, count, most, share, taken, weight)
        if kept == 0:  # all are equal
            break
        count = kept
    threshold, equal = np.float32(np.inf), 0
    for i in np.argsort(-values[:count]):
        equal = equal + 1 if values[i] == threshold else 1
        threshold = values[i]
        taken += 1
        weight += weights[i]
        if taken >= most or weight >= share:
            break
    return threshold, equal, weight


@jit()
def at_least(row, count):
    """Return a bound that `count` or more logits reach: the highest of each block are so many logits already."""
    num_blocks = len(row) // BLOCK
    if count > num_blocks:
        return np.float32(-np.inf)
    highest = np.empty(num_blocks, np.float32)
    for block in range(num_blocks):
        highest[block] = highest_of(row[block * BLOCK : (block + 1) * BLOCK])
    return np.sort(highest)[num_blocks - count]


@jit()
def _gather(row, weights, least, lightest, values, gathered):
    """Copy the logits from `least` up whose weights are above `lightest`, and these weights; return how many."""
    count = 0
    for i in range(len(row)):
        values[count], gathered[count] = row[i], weights[i]
        count += (row[i] >= least) & (weights[i] > lightest)
    return count


@jit()
def _zero_below(row, weights, threshold, equal):
    """Zero the weights of logits below the threshold, and of those equal to it all but the first `equal`."""
    ties = 0
    for i in range(len(row)):
        weights[i] = weights[i] if row[i] >= threshold else np.float32(0.0)
        ties += row[i] == threshold
    if ties > equal:
        for i in range(len(row)):
            if row[i] == threshold:
                equal -= 1
                if equal < 0:
                    weights[i] = 0


@jit()
def _filter_top(row, weights, top_k, top_p, total):
    """Zero all weights but those of the top_k highest, and of these the fewest whose share reaches top_p.

    Of equal logits the lower ids are kept.
    """
    vocab = len(row)
    values, gathered = np.empty(vocab, np.float32), np.empty(vocab, np.float32)
    if top_k < vocab:
        count = _gather(row, weights, at_least(row, top_k), np.float32(0), values, gathered)
        threshold, equal, total = _boundary(values, gathered, count, top_k, np.inf)
        _zero_below(row, weights, threshold, equal)
    if top_p < 1:
        # All ids as light as this are together too light to be needed.
        lightest = np.float32(0.5 * (1 - np.float64(top_p)) * total / vocab)
        count = _gather(row, weights, np.float32(-np.inf), lightest, values, gathered)
        threshold, equal, total = _boundary(values, gathered, count, vocab, np.float64(top_p) * total)
        _zero_below(row, weights, threshold, equal)


@jit()
def _draw(weights, sums, target):
    """Return the id at which the weights, summed from id 0 up, pass the target. One of weight 0 is never drawn."""
    block = 0
    for i in range(len(sums)):
        if sums[i] > 0:
            block = i
            if target < sums[i]:
                break
            target -= sums[i]
    drawn = block * BLOCK
    for i in range(block * BLOCK, min((block + 1) * BLOCK, len(weights))):
        if weights[i] > 0:
            drawn = i
            if target < weights[i]:
                break
            target -= weights[i]
    return drawn


@jit_both
def greedy_rows(logits, drawn):
    """Write the id of each row's highest logit, the lowest of equal ones. logits: float32 [R, V], drawn: int64 [R]."""
    for r in prange(len(drawn)):
        drawn[r] = _first(logits[r], highest_of(logits[r]))


@jit_both
def sample_rows(logits, temperature, top_k, top_p, min_p, uniforms, drawn):
    """Draw an id for each row into drawn, int64 [R]; rows with temperature 0 or top_k 1 are greedy.

    logits: float32 [R, V]; temperature, top_p, min_p: float32 [R]; top_k: int64 [R], V for off; uniforms: float64 [R].
    """
    vocab = logits.shape[1]
    for r in prange(len(drawn)):
        row = logits[r]
        highest = highest_of(row)
        if temperature[r] == 0 or top_k[r] == 1:
            drawn[r] = _first(row, highest)
        else:
            weights, sums = np.empty(vocab, np.float32), np.empty((vocab + BLOCK - 1) // BLOCK)
            weigh(row, highest, np.float32(1.0) / temperature[r], min_p[r], weights)
            total = sum_blocks(weights, sums)
            if top_k[r] < vocab or top_p[r] < 1:
                _filter_top(row, weights, top_k[r], top_p[r], total)
                total = sum_blocks(weights, sums)
            drawn[r] = _draw(weights, sums, uniforms[r] * total)

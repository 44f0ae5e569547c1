"""Attention of runs of tokens in bfloat16 by tiles (kernels.tiles): prompts, and chunks of them.

The queries that share keys, those of a kv head's group for as many tokens in a row as fit, are the 16 columns of a
tile. The scores of the whole context are made first, then each column's softmax, then its weighted sum of values, 32
at a time, by weights that are rounded to bfloat16. A column is calculated alike whatever stands beside it.

By AMX, two cores, 9 heads, microseconds of a layer through torch's fused attention of gathered blocks / this: 128
tokens 213 / 92, 512 tokens 1,247 / 600; and torch's would need the layers one by one.
"""

import math

import numpy as np

from kernels.cpu import array_at, jit
from kernels.tiles import TILE_INPUTS, TILE_ROWS, multiply_column, multiply_two_by_column
from kernels.vectors import (
    add,
    floats_at,
    greater,
    multiply,
    multiply_add,
    power_of_two,
    quotient,
    spread,
    store,
    store_bfloat16s,
    store_pairs,
)

LOG2_E, HIDDEN = np.float32(math.log2(math.e)), np.float32(-1e30)


@jit()
def lay_out_queries(query, query_step, num_tokens, group, tiles):
    """Make the tiles of the queries [G, D] of some tokens: row p of tile c holds their pairs p from input 32 c on."""
    for token in range(num_tokens):
        words = array_at(query + token * query_step, (group, tiles.shape[0], TILE_ROWS), np.uint32(0))
        for g in range(group):
            for c in range(tiles.shape[0]):
                for p in range(TILE_ROWS):
                    tiles[c, p, token * group + g] = words[g, c, p]


@jit()
def score_tile(keys, tiles, scores):
    """scores[t, i] = keys[t] . queries[i] for 16 keys, [16, D]."""
    multiply_column(keys, 64 * tiles.shape[0], tiles.ctypes.data, tiles.shape[0], scores)


@jit()
def _hide(scores, num_tokens, group, context):
    """Make low the scores of keys that a column does not see, up to whole tiles, so that they weigh nothing."""
    end = (context + TILE_INPUTS - 1) // TILE_INPUTS * TILE_INPUTS
    for token in range(num_tokens):
        for t in range(context - num_tokens + 1 + token, end):
            for i in range(token * group, (token + 1) * group):
                scores[t, i] = HIDDEN


@jit()
def _highest(at, num_keys):
    """Return each column's highest score; four keys at a time, so that one comparison need not wait for the other."""
    a = b = c = d = floats_at(at)
    for t in range(0, num_keys, 4):
        a, b = greater(a, floats_at(at + 64 * t)), greater(b, floats_at(at + 64 * t + 64))
        c, d = greater(c, floats_at(at + 64 * t + 128)), greater(d, floats_at(at + 64 * t + 192))
    return greater(greater(a, b), greater(c, d))


@jit()
def _softmax(scores, scale, num_tokens, group, context, totals, pairs):
    """Make weights of a run's scores [keys, 16], at most 1, rounded to bfloat16: a row of pairs has those of two keys.

    totals [16] get their sums before they are rounded.
    """
    at, num_keys = scores.ctypes.data, (context + TILE_INPUTS - 1) // TILE_INPUTS * TILE_INPUTS
    _hide(scores, num_tokens, group, context)
    factor, total = spread(scale * LOG2_E), spread(np.float32(0))
    shift = multiply(_highest(at, num_keys), spread(-scale * LOG2_E))
    for t in range(0, num_keys, 2):
        first = power_of_two(multiply_add(floats_at(at + 64 * t), factor, shift))
        second = power_of_two(multiply_add(floats_at(at + 64 * (t + 1)), factor, shift))
        total = add(total, add(first, second))
        store_pairs(pairs.ctypes.data + 32 * t, first, second)
    store(totals.ctypes.data, total)


@jit()
def turn_values(values, block_step, block_size, table, context, turned):
    """turned[d, t] = values[t, d] of a head; from `context` on 0, up to whole tiles."""
    dim = turned.shape[0]
    for start in range(0, context, block_size):
        block = array_at(values + table[start // block_size] * block_step, (block_size, dim), np.uint16(0))
        for t in range(0, min(block_size, context - start), TILE_ROWS):
            for d in range(dim):
                for i in range(TILE_ROWS):
                    turned[d, start + t + i] = block[t + i, d]
    turned[:, context : (context + TILE_INPUTS - 1) // TILE_INPUTS * TILE_INPUTS] = 0


@jit()
def _sum_values(turned, context, pairs, sums):
    """sums[d, i] = turned[d] . weights of column i, whose pairs are in column i of `pairs`."""
    step, num_tiles = 2 * turned.shape[1], (context + TILE_INPUTS - 1) // TILE_INPUTS
    for d in range(0, turned.shape[0], 2 * TILE_ROWS):
        at, target = turned.ctypes.data + d * step, sums.ctypes.data + 64 * d
        multiply_two_by_column(
            at, at + TILE_ROWS * step, step, pairs.ctypes.data, num_tiles, target, target + 64 * TILE_ROWS
        )


@jit()
def _write(sums, totals, num_columns, group, rounded, out, out_step):
    """Write a run's columns of sums [D, 16], divided by the totals of their weights."""
    dim = sums.shape[0]
    inverse = quotient(spread(np.float32(1)), floats_at(totals.ctypes.data))
    for d in range(dim):
        store_bfloat16s(rounded.ctypes.data + 32 * d, multiply(floats_at(sums.ctypes.data + 64 * d), inverse))
    for i in range(num_columns):
        target = array_at(out + i // group * out_step + 2 * (i % group) * dim, dim, np.uint16(0))
        for d in range(dim):
            target[d] = rounded[d, i]


@jit()
def attend_run(
    query, query_step, num_tokens, keys, block_step, block_size, table, context, scale, group, out, out_step, memory,
):  # fmt: skip
    """Attend one kv head's queries of some tokens in a row, the last of which sees `context` keys.

    keys are those of the head in block 0, its values are turned; query and out begin at the first of the tokens.
    """
    tiles, scores, totals, pairs, turned, sums, rounded = memory
    lay_out_queries(query, query_step, num_tokens, group, tiles)
    for start in range(0, context, block_size):
        block = keys + table[start // block_size] * block_step
        for t in range(0, min(block_size, context - start), TILE_ROWS):
            score_tile(block + 2 * t * turned.shape[0], tiles, scores.ctypes.data + 64 * (start + t))
    _softmax(scores, scale, num_tokens, group, context, totals, pairs)
    _sum_values(turned, context, pairs, sums)
    _write(sums, totals, num_tokens * group, group, rounded, out, out_step)

"""Paged attention in bfloat16 by AMX tiles: the scores of 16 keys with a whole group of queries at once.

Keys lie in their blocks as a tile of x wants its rows, and stay there; a group's queries, as pairs, are the tile of
weights. The scores of a token's whole context are made first, then its softmax, then the weighted sum of values, four
heads at a time, so that each value is widened once. Weights and sums are float32.
"""

import numpy as np
import torch
from numba import prange

from kernels.amx import (
    TILE_BYTES,
    TILE_INPUTS,
    TILE_ROWS,
    has_amx,
    tile_dot,
    tile_load,
    tile_release,
    tile_setup,
    tile_store,
    tile_zero,
)
from kernels.cpu import PARALLEL_SECTION, array_at, exp, is_dense, jit, narrow, set_threads
from kernels.paged_attention_long import is_long
from kernels.vectors import WIDTH, bfloat16s_at, floats_at, greater, greatest, multiply_add, prefetch, spread, store

HEADS = 4  # whose values are summed at once


def fits_tiles(query: torch.Tensor, key_cache: torch.Tensor) -> bool:
    """Say whether queries and cache have the dtype and the shapes that this kernel takes, on this machine."""
    _, num_kv_heads, block_size, dim = key_cache.shape
    return (
        query.dtype is torch.bfloat16
        and dim % TILE_INPUTS == 0
        and block_size % TILE_ROWS == 0
        and query.shape[1] // num_kv_heads <= TILE_ROWS
        and has_amx()
    )


def attend_tiles(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> int:
    """Do paged_attention for the rows that are not long; return how many are."""
    if not (is_dense(query) and is_dense(out)):
        raise ValueError("the heads of a row must be dense; call .contiguous() first")
    _, num_kv_heads, block_size, dim = key_cache.shape
    with PARALLEL_SECTION:
        num_long = attend_tokens(
            query.data_ptr(), 2 * query.stride(0), key_cache.data_ptr(), value_cache.data_ptr(), num_kv_heads,
            query.shape[1] // num_kv_heads, block_size, dim, len(seq_lens), block_table.data_ptr(),
            block_table.stride(0), query_start_loc.data_ptr(), seq_lens.data_ptr(), scale, out.data_ptr(),
            2 * out.stride(0), set_threads(),
        )  # fmt: skip
    return int(num_long)


@jit()
def _lay_out_queries(query, group, tiles):
    """Make the tiles of a group's queries [G, D]: row p of tile c holds their pairs p from input 32 c on."""
    words = array_at(query, (group, tiles.shape[0], TILE_ROWS), np.uint32(0))
    for g in range(group):
        for c in range(tiles.shape[0]):
            for p in range(TILE_ROWS):
                tiles[c, p, g] = words[g, c, p]


@jit()
def _score(keys, tiles, scores, weights, at):
    """weights[g, at + t] = keys[t] . queries[g] for 16 keys, [16, D]."""
    num_tiles = tiles.shape[0]
    tile_zero(0)
    for c in range(num_tiles):
        tile_load(4, keys + 64 * c, 64 * num_tiles)
        tile_load(6, tiles.ctypes.data + TILE_BYTES * c, 64)
        tile_dot(0, 4, 6)
    tile_store(0, scores.ctypes.data, 64)
    for g in range(weights.shape[0]):
        target = weights[g, at : at + TILE_ROWS]
        for t in range(TILE_ROWS):
            target[t] = scores[t, g]


@jit()
def _softmax(weights, scale):
    """Turn scores into weights, at most 1; return their sum."""
    whole = len(weights) // WIDTH * WIDTH
    highest = weights[0]
    if whole:
        top = floats_at(weights.ctypes.data)
        for t in range(WIDTH, whole, WIDTH):
            top = greater(top, floats_at(weights.ctypes.data + 4 * t))
        highest = greatest(top)
    for t in range(whole, len(weights)):
        highest = max(highest, weights[t])
    for t in range(len(weights)):
        weights[t] = exp((weights[t] - highest) * scale)
    total = np.float32(0)
    for t in range(len(weights)):
        total += weights[t]
    return total


@jit()
def _add_values(values, count, weights, at, sums):
    """sums[h] += weights[h, at:] . values for four heads and count values, [count, D]."""
    dim = sums.shape[1]
    for d in range(0, dim, WIDTH):
        first = sums.ctypes.data + 4 * d
        second, third, fourth = first + 4 * dim, first + 8 * dim, first + 12 * dim
        a, b, c, e = floats_at(first), floats_at(second), floats_at(third), floats_at(fourth)
        for t in range(count):
            value = bfloat16s_at(values + 2 * (t * dim + d))
            a = multiply_add(spread(weights[0, at + t]), value, a)
            b = multiply_add(spread(weights[1, at + t]), value, b)
            c = multiply_add(spread(weights[2, at + t]), value, c)
            e = multiply_add(spread(weights[3, at + t]), value, e)
        store(first, a)
        store(second, b)
        store(third, c)
        store(fourth, e)


@jit()
def _fetch(address, size):
    """Have a run of bytes read ahead."""
    for offset in range(0, size, 64):
        prefetch(address + offset)


@jit()
def _attend_group(query, keys, values, block_step, block_size, table, context, scale, group, out, memory):
    """Attend one token's queries of one kv head; keys and values are those of the head in block 0."""
    tiles, scores, weights, sums, totals = memory
    dim = sums.shape[1]
    num_blocks = (context + block_size - 1) // block_size
    _lay_out_queries(query, group, tiles)
    for index in range(num_blocks):
        block = keys + table[index] * block_step
        _fetch(values + table[index] * block_step, 2 * block_size * dim)
        if index + 1 < num_blocks:
            _fetch(keys + table[index + 1] * block_step, 2 * block_size * dim)
        for t in range(0, min(block_size, context - index * block_size), TILE_ROWS):
            _score(block + 2 * t * dim, tiles, scores, weights[:group], index * block_size + t)
    for start in range(0, group, HEADS):
        num_heads, heads = min(HEADS, group - start), weights[start : start + HEADS]
        sums[:] = 0
        for h in range(num_heads):
            totals[h] = _softmax(heads[h, :context], scale)
        for index in range(num_blocks):
            count, at = min(block_size, context - index * block_size), index * block_size
            if index == 0:
                _fetch(keys + 2 * block_size * dim + table[0] * block_step, 2 * block_size * dim)
            _add_values(values + table[index] * block_step, count, heads, at, sums)
        for h in range(num_heads):
            target, inverse = out[(start + h) * dim :][:dim], np.float32(1) / totals[h]
            for d in range(dim):
                target[d] = narrow(sums[h, d] * inverse, target[0])


@jit()
def amount(starts, contexts, num_kv_heads):
    """Return the keys that all rows read which are not long, the longest context of these, and how many rows are."""
    work, longest, num_long = 0, 0, 0
    for row in range(len(contexts)):
        num_queries = starts[row + 1] - starts[row]
        if is_long(num_queries, contexts[row]):
            num_long += 1
        else:
            work += num_kv_heads * (num_queries * contexts[row] - num_queries * (num_queries - 1) // 2)
            longest = max(longest, contexts[row])
    return work, longest, num_long


@jit()
def count_long(num_rows, starts_at, contexts_at):
    """Return how many rows are long."""
    starts, contexts = array_at(starts_at, num_rows + 1, np.int32(0)), array_at(contexts_at, num_rows, np.int32(0))
    return amount(starts, contexts, 1)[2]


@jit(parallel=True)
def attend_tokens(
    query, query_step, key_cache, value_cache, num_kv_heads, group, block_size, dim, num_rows, table_at, table_width,
    starts_at, contexts_at, scale, out, out_step, workers,
):  # fmt: skip
    """Deal the (token, kv head) pairs of all rows that are not long to the workers, by the keys they read."""
    starts, contexts = array_at(starts_at, num_rows + 1, np.int32(0)), array_at(contexts_at, num_rows, np.int32(0))
    tables = array_at(table_at, (num_rows, table_width), np.int32(0))
    work, longest, num_long = amount(starts, contexts, num_kv_heads)
    head_step, group_step, scale = 2 * block_size * dim, 2 * group * dim, np.float32(scale)
    for worker in prange(workers):
        tile_setup(TILE_ROWS)
        memory = (
            np.zeros((dim // TILE_INPUTS, TILE_ROWS, TILE_ROWS), np.uint32),
            np.empty((TILE_ROWS, TILE_ROWS), np.float32),
            np.zeros(((group + HEADS - 1) // HEADS * HEADS, longest + block_size), np.float32),
            np.empty((HEADS, dim), np.float32),
            np.empty(HEADS, np.float32),
        )
        first, last = work * worker // workers, work * (worker + 1) // workers
        done = 0
        for row in range(num_rows):
            if is_long(starts[row + 1] - starts[row], contexts[row]):
                continue
            for token in range(starts[row], starts[row + 1]):
                context = contexts[row] - (starts[row + 1] - 1 - token)
                for head in range(num_kv_heads):
                    if first <= done < last:
                        target = array_at(out + token * out_step + head * group_step, group * dim, np.uint16(0))
                        _attend_group(
                            query + token * query_step + head * group_step, key_cache + head * head_step,
                            value_cache + head * head_step, num_kv_heads * head_step, block_size, tables[row], context,
                            scale, group, target, memory,
                        )  # fmt: skip
                    done += context
        tile_release()
    return num_long

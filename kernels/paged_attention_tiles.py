"""Paged attention in bfloat16 by tiles (kernels.tiles): the scores of 16 keys with up to 16 queries at once.

Keys lie in their blocks as a tile of x wants its rows, and stay there; queries, as pairs, are the tile of weights. A
row of one token is a tile of a kv head's group of queries; rows of more tokens have a kernel of their own
(paged_attention_run.py). The scores of a token's whole context are made first, then its softmax, then the weighted sum
of values, four heads at a time, so that each value is widened once. Weights and sums are float32.
"""

import numpy as np
import torch
from numba import prange

from kernels.cpu import PARALLEL_SECTION, array_at, exp, is_dense, jit, narrow, set_threads
from kernels.paged_attention_run import attend_run, lay_out_queries, turn_values
from kernels.tiles import TILE_INPUTS, TILE_ROWS, begin_tiles, end_tiles, has_tiles, multiply_keys, tile_rows
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
        and has_tiles()
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
) -> None:
    """Do paged_attention."""
    if not (is_dense(query) and is_dense(out)):
        raise ValueError("the heads of a row must be dense; call .contiguous() first")
    _, num_kv_heads, block_size, dim = key_cache.shape
    with PARALLEL_SECTION:
        attend_tokens(
            query.data_ptr(), 2 * query.stride(0), key_cache.data_ptr(), value_cache.data_ptr(), num_kv_heads,
            query.shape[1] // num_kv_heads, block_size, dim, len(seq_lens), block_table.data_ptr(),
            block_table.stride(0), query_start_loc.data_ptr(), seq_lens.data_ptr(), scale, out.data_ptr(),
            2 * out.stride(0), set_threads(),
        )  # fmt: skip


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
    """sums[h] += weights[h, at:] . values for four heads and count values, [count, D].

    32 of D at a time: eight sums that need not wait for each other.
    """
    dim = sums.shape[1]
    step = 4 * dim
    for d in range(0, dim, 2 * WIDTH):
        left = sums.ctypes.data + 4 * d
        right = left + 4 * WIDTH
        a, b, c, e = floats_at(left), floats_at(left + step), floats_at(left + 2 * step), floats_at(left + 3 * step)
        i, j, k, m = floats_at(right), floats_at(right + step), floats_at(right + 2 * step), floats_at(right + 3 * step)
        for t in range(count):
            place = values + 2 * (t * dim + d)
            value, other = bfloat16s_at(place), bfloat16s_at(place + 2 * WIDTH)
            weight = spread(weights[0, at + t])
            a, i = multiply_add(weight, value, a), multiply_add(weight, other, i)
            weight = spread(weights[1, at + t])
            b, j = multiply_add(weight, value, b), multiply_add(weight, other, j)
            weight = spread(weights[2, at + t])
            c, k = multiply_add(weight, value, c), multiply_add(weight, other, k)
            weight = spread(weights[3, at + t])
            e, m = multiply_add(weight, value, e), multiply_add(weight, other, m)
        store(left, a)
        store(left + step, b)
        store(left + 2 * step, c)
        store(left + 3 * step, e)
        store(right, i)
        store(right + step, j)
        store(right + 2 * step, k)
        store(right + 3 * step, m)


@jit()
def _fetch(address, size):
    """Have a run of bytes read ahead."""
    for offset in range(0, size, 64):
        prefetch(address + offset)


@jit()
def _attend_group(query, keys, values, block_step, block_size, table, context, scale, group, out, memory):
    """Attend one token's queries of one kv head; keys and values are those of the head in block 0."""
    tiles, scores, weights, sums, totals = memory
    dim, weights_step = sums.shape[1], 4 * weights.shape[1]
    num_blocks = (context + block_size - 1) // block_size
    lay_out_queries(query, 0, 1, group, tiles)
    for index in range(num_blocks):
        block = keys + table[index] * block_step
        _fetch(values + table[index] * block_step, 2 * block_size * dim)
        if index + 1 < num_blocks:
            _fetch(keys + table[index + 1] * block_step, 2 * block_size * dim)
        for t in range(0, min(block_size, context - index * block_size), TILE_ROWS):
            target = weights.ctypes.data + 4 * (index * block_size + t)
            multiply_keys(
                block + 2 * t * dim, query, tiles.ctypes.data, group, tiles.shape[0], scores.ctypes.data, target,
                weights_step,
            )  # fmt: skip
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
def _amount(starts, contexts, most, num_kv_heads):
    """Return the keys that all runs of up to `most` tokens read, and the longest context of rows of one and of more."""
    work, longest, longest_run = 0, 0, 0
    for row in range(len(contexts)):
        if starts[row + 1] - starts[row] > 1:
            longest_run = max(longest_run, contexts[row])
        else:
            longest = max(longest, contexts[row])
        for token in range(starts[row], starts[row + 1], most):
            last = min(token + most, starts[row + 1]) - 1
            work += num_kv_heads * (contexts[row] - (starts[row + 1] - 1 - last))
    return work, longest, longest_run


@jit()
def _memory(dim, group, longest):
    """What _attend_group takes, for contexts up to `longest` with their last blocks."""
    return (
        tile_rows(dim // 2).view(np.uint32).reshape(dim // TILE_INPUTS, TILE_ROWS, TILE_ROWS),
        tile_rows(TILE_ROWS),
        np.zeros(((group + HEADS - 1) // HEADS * HEADS, longest), np.float32),
        np.empty((HEADS, dim), np.float32),
        np.empty(HEADS, np.float32),
    )


@jit()
def _memory_for_runs(dim, longest):
    """What attend_run takes, for contexts up to `longest`."""
    num_tiles = (longest + TILE_INPUTS - 1) // TILE_INPUTS
    width = num_tiles // 2 * 2 + 1  # odd, so that what is turned does not all lie in the same sets of the cache
    return (
        tile_rows(dim // 2).view(np.uint32).reshape(dim // TILE_INPUTS, TILE_ROWS, TILE_ROWS),
        tile_rows(num_tiles * TILE_INPUTS),
        np.empty(TILE_ROWS, np.float32),
        tile_rows(num_tiles * TILE_ROWS).view(np.uint32),
        tile_rows(dim * width).view(np.uint16).reshape(dim, width * TILE_INPUTS),
        tile_rows(dim),
        np.empty((dim, TILE_ROWS), np.uint16),
    )


@jit(parallel=True)
def attend_tokens(
    query, query_step, key_cache, value_cache, num_kv_heads, group, block_size, dim, num_rows, table_at, table_width,
    starts_at, contexts_at, scale, out, out_step, workers,
):  # fmt: skip
    """Deal the kv heads of all rows, run of tokens by run, to the workers, by the keys they read."""
    starts, contexts = array_at(starts_at, num_rows + 1, np.int32(0)), array_at(contexts_at, num_rows, np.int32(0))
    tables = array_at(table_at, (num_rows, table_width), np.int32(0))
    most = TILE_ROWS // group
    work, longest, longest_run = _amount(starts, contexts, most, num_kv_heads)
    head_step, group_step, scale = 2 * block_size * dim, 2 * group * dim, np.float32(scale)
    block_step = num_kv_heads * head_step
    for worker in prange(workers):
        begin_tiles(TILE_ROWS)
        memory = _memory(dim, group, longest + block_size)
        memory_for_runs = _memory_for_runs(dim, longest_run)
        first, last = work * worker // workers, work * (worker + 1) // workers
        done = 0
        for row in range(num_rows):
            begin, end, table = starts[row], starts[row + 1], tables[row]
            for head in range(num_kv_heads):
                keys, values, at = key_cache + head * head_step, value_cache + head * head_step, head * group_step
                turned = False
                for token in range(begin, end, most):
                    num_tokens = min(most, end - token)
                    context = contexts[row] - (end - token - num_tokens)
                    mine, done = first <= done < last, done + context
                    if not mine:
                        continue
                    source, target = query + token * query_step + at, out + token * out_step + at
                    if end - begin == 1:
                        _attend_group(
                            source, keys, values, block_step, block_size, table, context, scale, group,
                            array_at(target, group * dim, np.uint16(0)), memory,
                        )  # fmt: skip
                        continue
                    if not turned:
                        turn_values(values, block_step, block_size, table, contexts[row], memory_for_runs[4])
                        turned = True
                    attend_run(
                        source, query_step, num_tokens, keys, block_step, block_size, table, context, scale, group,
                        target, out_step, memory_for_runs,
                    )  # fmt: skip
        end_tiles()

"""Paged attention's CPU version.

A token's keys are read in their blocks, where they lie, and nothing is padded: each (token, kv head) is one piece of
work, its scores are made a block at a time for the head's whole group of queries, and the running softmax is rescaled
once a block. The pieces are dealt to the threads by their context lengths; how one is calculated never depends on its
neighbours, its row or the number of threads.

bfloat16 has a kernel of its own where there are tiles (paged_attention_tiles.py). Elsewhere rows with many queries have
one (paged_attention_long.py). On two cores a decode step of 30 layers with 128 tokens of context takes, for 16 rows, 5
ms, for 64 rows 23 ms with the cache in bfloat16, 7 and 28 ms in float32.
"""

import numpy as np
import torch
from numba import prange

from kernels.cpu import PARALLEL_SECTION, as_numpy, as_rows, cast, exp, jit, narrow, scratch, set_threads, widen
from kernels.paged_attention_long import attend_long_rows, is_long
from kernels.paged_attention_tiles import attend_tiles, fits_tiles


def paged_attention_cpu(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Do paged_attention on CPU tensors."""
    arguments = query, key_cache, value_cache, block_table, query_start_loc, seq_lens, scale, out
    if fits_tiles(query, key_cache):
        attend_tiles(*arguments)
    elif _attend_short_rows(*arguments):
        attend_long_rows(*arguments)


def _attend_short_rows(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> int:
    """Attend the rows that are not long; return how many are."""
    starts, contexts = as_numpy(query_start_loc), as_numpy(seq_lens)
    tables = as_numpy(block_table.contiguous())
    queries, caches, outs = as_rows(query), (as_numpy(key_cache), as_numpy(value_cache)), as_rows(out)
    group = query.shape[1] // key_cache.shape[1]
    with PARALLEL_SECTION:
        return int(_attend_tokens(*queries, *caches, tables, starts, contexts, scale, *outs, group, set_threads()))


@jit()
def _scores(keys, count, queries, weights):
    """weights[g, t] = keys[t] . queries[g] for a block's first count keys, four at a time to share loads."""
    group, dim = queries.shape
    zero = cast(0, queries[0, 0])
    for g in range(group):
        t = 0
        while t + 4 <= count:
            s0, s1, s2, s3 = zero, zero, zero, zero
            for d in range(dim):
                q = queries[g, d]
                s0 += q * widen(keys[t, d])
                s1 += q * widen(keys[t + 1, d])
                s2 += q * widen(keys[t + 2, d])
                s3 += q * widen(keys[t + 3, d])
            weights[g, t], weights[g, t + 1], weights[g, t + 2], weights[g, t + 3] = s0, s1, s2, s3
            t += 4
        while t < count:
            s0 = zero
            for d in range(dim):
                s0 += queries[g, d] * widen(keys[t, d])
            weights[g, t] = s0
            t += 1


@jit()
def _softmax_block(weights, count, running):
    """Turn a block's scores into weights; bring each head's running maximum, total and rescaling factor up to date."""
    for g in range(weights.shape[0]):
        maximum = running[g, 0]
        for t in range(count):
            maximum = max(maximum, weights[g, t])
        total = cast(0, maximum)
        for t in range(count):
            weights[g, t] = exp(weights[g, t] - maximum)
        for t in range(count):
            total += weights[g, t]
        factor = exp(running[g, 0] - maximum)
        running[g, 0], running[g, 1], running[g, 2] = maximum, running[g, 1] * factor + total, factor


@jit()
def _add_values(values, count, weights, running, sums):
    """sums[g] = sums[g] * factor[g] + weights[g] . values for a block's first count values, four at a time."""
    group, dim = sums.shape
    for g in range(group):
        for d in range(dim):
            sums[g, d] *= running[g, 2]
        t = 0
        while t + 4 <= count:
            w0, w1, w2, w3 = weights[g, t], weights[g, t + 1], weights[g, t + 2], weights[g, t + 3]
            for d in range(dim):
                sums[g, d] += (
                    w0 * widen(values[t, d])
                    + w1 * widen(values[t + 1, d])
                    + w2 * widen(values[t + 2, d])
                    + w3 * widen(values[t + 3, d])
                )
            t += 4
        while t < count:
            for d in range(dim):
                sums[g, d] += weights[g, t] * widen(values[t, d])
            t += 1


@jit()
def _attend_group(query, key_cache, value_cache, head, table, context, scale, out, queries, sums, weights, running):
    """Attend one token's queries of one kv head, query [G * D], over the context's blocks."""
    group, dim = queries.shape
    block_size = key_cache.shape[2]
    for g in range(group):
        for d in range(dim):
            queries[g, d] = widen(query[g * dim + d]) * scale
            sums[g, d] = 0
        running[g, 0], running[g, 1] = -np.inf, 0
    for index in range((context + block_size - 1) // block_size):
        count = min(block_size, context - index * block_size)
        block = table[index]
        _scores(key_cache[block, head], count, queries, weights)
        _softmax_block(weights, count, running)
        _add_values(value_cache[block, head], count, weights, running, sums)
    for g in range(group):
        inverse = cast(1, running[g, 1]) / running[g, 1]
        for d in range(dim):
            out[g * dim + d] = narrow(sums[g, d] * inverse, out[0])


@jit(parallel=True)
def _attend_tokens(
    query, query_step, key_cache, value_cache, block_table, starts, contexts, scale, out, out_step, group, workers
):
    """Deal the (token, kv head) pairs of all rows that are not long to the workers, by the keys they read.

    Returns the number of long rows, which are left to the caller.
    """
    num_kv_heads, block_size, dim = key_cache.shape[1:]
    width = group * dim
    work, num_long = 0, 0
    for row in range(contexts.shape[0]):
        num_queries = starts[row + 1] - starts[row]
        if is_long(num_queries, contexts[row]):
            num_long += 1
        else:
            work += num_kv_heads * (num_queries * contexts[row] - num_queries * (num_queries - 1) // 2)
    for worker in prange(workers):
        like = widen(key_cache[0, 0, 0, 0])
        queries, sums = scratch((group, dim), like), scratch((group, dim), like)
        weights, running = scratch((group, block_size), like), scratch((group, 3), like)
        first, last = work * worker // workers, work * (worker + 1) // workers
        done = 0
        for row in range(contexts.shape[0]):
            if is_long(starts[row + 1] - starts[row], contexts[row]):
                continue
            for token in range(starts[row], starts[row + 1]):
                context = contexts[row] - (starts[row + 1] - 1 - token)
                for head in range(num_kv_heads):
                    if first <= done < last:
                        q = query[token * query_step + head * width :][:width]
                        o = out[token * out_step + head * width :][:width]
                        table = block_table[row]
                        _attend_group(
                            q, key_cache, value_cache, head, table, context, scale, o, queries, sums, weights, running
                        )
                    done += context
    return num_long

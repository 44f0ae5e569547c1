"""The products of kernels.tiles by AMX."""

import numpy as np

from kernels.amx import TILE_BYTES, TILE_ROWS, tile_dot, tile_load, tile_release, tile_setup, tile_store, tile_zero
from kernels.cpu import array_at, jit
from kernels.vectors import prefetch

BLOCK_ROWS, BLOCKS_AT_ONCE, PANEL_BYTES = 16, 2, 1 << 19
_SUM_STEP = 2 * 64  # bytes from row to row of the sums by two columns
_AHEAD = 4  # tiles that are fetched before their use


begin_tiles = tile_setup


@jit()
def end_tiles():
    tile_release()


@jit()
def multiply_block(x, x_step, num_rows, first, second, num_tiles, sums):
    tile_zero(0)
    tile_zero(1)
    for _ in range(num_tiles):
        tile_load(4, x, x_step)
        tile_load(6, first, 64)
        tile_dot(0, 4, 6)
        tile_load(7, second, 64)
        tile_dot(1, 4, 7)
        x, first, second = x + 64, first + TILE_BYTES, second + TILE_BYTES
    tile_store(0, sums, _SUM_STEP)
    tile_store(1, sums + 64, _SUM_STEP)


@jit()
def multiply_blocks(x, other, x_step, num_rows, first, second, num_tiles, sums, other_sums):
    tile_zero(0)
    tile_zero(1)
    tile_zero(2)
    tile_zero(3)
    for _ in range(num_tiles):
        tile_load(4, x, x_step)
        tile_load(6, first, 64)
        tile_dot(0, 4, 6)
        tile_load(7, second, 64)
        tile_dot(1, 4, 7)
        tile_load(5, other, x_step)
        tile_dot(2, 5, 6)
        tile_dot(3, 5, 7)
        for row in range(TILE_ROWS):
            prefetch(first + 64 * row + TILE_BYTES * _AHEAD)
            prefetch(second + 64 * row + TILE_BYTES * _AHEAD)
        x, other, first, second = x + 64, other + 64, first + TILE_BYTES, second + TILE_BYTES
    tile_store(0, sums, _SUM_STEP)
    tile_store(1, sums + 64, _SUM_STEP)
    tile_store(2, other_sums, _SUM_STEP)
    tile_store(3, other_sums + 64, _SUM_STEP)


@jit()
def multiply_column(x, x_step, column, num_tiles, sums):
    tile_zero(0)
    for c in range(num_tiles):
        tile_load(4, x + 64 * c, x_step)
        tile_load(6, column + TILE_BYTES * c, 64)
        tile_dot(0, 4, 6)
    tile_store(0, sums, 64)


@jit()
def multiply_two_by_column(x, other, x_step, column, num_tiles, sums, other_sums):
    tile_zero(0)
    tile_zero(1)
    for _ in range(num_tiles):
        tile_load(4, x, x_step)
        tile_load(5, other, x_step)
        tile_load(6, column, 64)
        tile_dot(0, 4, 6)
        tile_dot(1, 5, 6)
        x, other, column = x + 64, other + 64, column + TILE_BYTES
    tile_store(0, sums, 64)
    tile_store(1, other_sums, 64)


@jit()
def multiply_keys(keys, queries, tiles, num_queries, num_tiles, scores, out, out_step):
    multiply_column(keys, 64 * num_tiles, tiles, num_tiles, scores)
    found = array_at(scores, (TILE_ROWS, TILE_ROWS), np.float32(0))
    for q in range(num_queries):
        target = array_at(out + q * out_step, TILE_ROWS, np.float32(0))
        for t in range(TILE_ROWS):
            target[t] = found[t, q]


@jit()
def multiply_each(x, x_step, num_rows, tiles, count, sums):
    for i in range(0, count - 1, 2):  # two at a time, so that one need not wait for the other
        tile_load(4, x + i * 64, x_step)
        tile_load(6, tiles + i * TILE_BYTES, 64)
        tile_zero(0)
        tile_dot(0, 4, 6)
        tile_load(5, x + i * 64 + 64, x_step)
        tile_load(7, tiles + i * TILE_BYTES + TILE_BYTES, 64)
        tile_zero(1)
        tile_dot(1, 5, 7)
        tile_store(0, sums + i * TILE_BYTES, 64)
        tile_store(1, sums + i * TILE_BYTES + TILE_BYTES, 64)
    if count % 2:
        last = count - 1
        tile_load(4, x + last * 64, x_step)
        tile_load(6, tiles + last * TILE_BYTES, 64)
        tile_zero(0)
        tile_dot(0, 4, 6)
        tile_store(0, sums + last * TILE_BYTES, 64)

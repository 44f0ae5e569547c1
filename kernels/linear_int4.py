"""Products with 4-bit weights as GGUF's Q4_0 and Q4_1 keep them: blocks of 32 inputs with a scale and a minimum.

A weight is scale * q + minimum, q from 0 to 15. By tiles (kernels.tiles) a block is one row of a tile: its numbers are
unpacked to bfloat16 as 128 + q, by two integer instructions for 32 of them, multiplied with x, and the sums scaled in
float32, so that the weights are the file's own, exactly. Without tiles torch's int4 product is used, whose scales are
bfloat16.

By AMX on two cores, all 120 products of a pass of SmolLM2, ms: 1 row 5.2 (torch's int4 5.4, bfloat16 tiles 11.5), 8
rows 8.6 (15.0, 11.5), 16 rows 12 (22, 11.4).
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from kernels.cpu import PARALLEL_SECTION, array_at, intrinsic, jit, set_threads, widen
from kernels.linear_tiles import add_bias_and_round, fits_tiles
from kernels.tiles import (
    TILE_BYTES,
    TILE_INPUTS,
    TILE_ROWS,
    TILES_BY,
    begin_tiles,
    end_tiles,
    multiply_each,
)
from kernels.vectors import all_of, floats_at, halves_at, ints, ints_at, multiply_add, prefetch, spread, store

BLOCK = TILE_INPUTS  # inputs that share a scale and a minimum
MOST_ROWS = 12  # from here on bfloat16 is as fast
_AT_ONCE = 8  # blocks unpacked and multiplied before their sums are scaled
_AHEAD = 8  # blocks fetched ahead of use
_BITS = np.uint16(0)  # stands for bfloat16
_WORDS, _SCALE_BYTES, _BLOCK_BYTES = 64, 64, 256


class Int4Weight(NamedTuple):
    """Weights [out, in] in 4 bits; without tiles, what torch's int4 product takes."""

    blocks: torch.Tensor  # int32 [out / 16, in / 32, 64]
    scales: torch.Tensor  # float16 [out / 16, in / 32, 2, 16]: scales, then minima


def prepare_int4(q: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor) -> Int4Weight:
    """Lay out weights scale * q + minimum. q: uint8 [out, in], 0 to 15; scale, minimum: float16 [out, in / 32]."""
    if fits_tiles(*q.shape):
        return _pack_blocks(q, scale, minimum)
    blocks = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int(), 1)
    zeros = minimum.float() + 8 * scale.float()  # torch's q counts from -8
    return Int4Weight(blocks, torch.stack([scale.float(), zeros], dim=-1).transpose(0, 1).contiguous().bfloat16())


def linear_int4(x: torch.Tensor, weight: Int4Weight, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return x @ weight.T + bias in bfloat16. x: bfloat16 [T, in], weight: from prepare_int4, bias: bfloat16 [out]."""
    if weight.blocks.dtype is not torch.int32:
        product = torch.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), weight.blocks, BLOCK, weight.scales)
        return product if bias is None else product + bias
    num_rows, (num_columns, num_blocks, _) = x.shape[0], weight.blocks.shape
    x = x if x.stride(-1) == 1 else x.contiguous()
    out = x.new_empty(num_rows, num_columns * TILE_ROWS)
    if num_rows:
        bias_at = bias.data_ptr() if bias is not None else 0
        with PARALLEL_SECTION:
            multiply_int4(
                x.data_ptr(), 2 * x.stride(0), num_rows, weight.blocks.data_ptr(), weight.scales.data_ptr(), bias_at,
                out.data_ptr(), num_columns, num_blocks, set_threads(),
            )  # fmt: skip
    return out


def layout_int4(weight: Int4Weight) -> str:
    """Name the way in which `linear_int4` multiplies by this weight, for the record of a pass."""
    return f"4-bit {TILES_BY}" if weight.blocks.dtype is torch.int32 else "4-bit torch"


def linear_int4_reference(
    x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Say what linear_int4 means, of what prepare_int4 is given: float64, rounded once to x's dtype."""
    wide_scale, wide_minimum = (part.double().repeat_interleave(BLOCK, dim=1) for part in (scale, minimum))
    product = x.double() @ (wide_scale * q.double() + wide_minimum).t()
    return (product if bias is None else product + bias.double()).to(x.dtype)


def _pack_blocks(q: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor) -> Int4Weight:
    """Order a tile's numbers so that a shift and a mask make a row of pairs of 16 words.

    Word [4 groups, 16 outputs] holds the pairs of four rows: bits 4 r and 16 + 4 r are the pair of the group's row r.
    """
    columns, steps = q.shape[0] // TILE_ROWS, q.shape[1] // BLOCK
    pairs = q.int().view(columns, TILE_ROWS, steps, 4, 4, 2)  # output, block, group, row, half
    shifts = (4 * torch.arange(4)[:, None] + torch.tensor([0, 16])).int()
    words = (pairs << shifts).sum(dim=(-2, -1), dtype=torch.int32)  # no two share a bit
    halves = torch.stack([scale, minimum]).half().view(2, columns, TILE_ROWS, steps)
    return Int4Weight(
        words.permute(0, 2, 3, 1).reshape(columns, steps, _WORDS).contiguous(), halves.permute(1, 3, 0, 2).contiguous()
    )


@intrinsic(prefer_literal=True)
def _pairs(typingctx, words, row):
    """Return a row of a tile: two of the words' eight numbers, as the bfloat16 of 128 + q."""
    shift = 4 * row.literal_value

    def codegen(context, builder, signature, args):
        pairs = builder.and_(builder.lshr(args[0], all_of(ints.kind, shift)), all_of(ints.kind, 0x000F000F))
        return builder.or_(pairs, all_of(ints.kind, 0x43004300))  # 128.0, whose last four bits count by one

    return ints(ints, row), codegen


@jit()
def _sum_blocks(x, x_step, num_rows, x_sums):
    """x_sums[block, row] = the sum of a block of x's inputs."""
    for row in range(num_rows):
        inputs = array_at(x + row * x_step, x_sums.shape[0] * BLOCK, np.uint16(0))
        for block in range(x_sums.shape[0]):
            total = np.float32(0)
            for i in range(block * BLOCK, (block + 1) * BLOCK):
                total += widen(inputs[i])
            x_sums[block, row] = total


@jit()
def _unpack_blocks(blocks, count, tiles):
    """Make a tile of each block: its 256 bytes to 16 rows of pairs."""
    for i in range(count):
        for line in range(4):
            words = ints_at(blocks + i * _BLOCK_BYTES + 64 * line)
            prefetch(blocks + (i + _AHEAD) * _BLOCK_BYTES + 64 * line)
            rows = tiles + i * TILE_BYTES + 256 * line
            store(rows, _pairs(words, 0))
            store(rows + 64, _pairs(words, 1))
            store(rows + 128, _pairs(words, 2))
            store(rows + 192, _pairs(words, 3))


@jit()
def _add_scaled(totals, sums, scales, x_sums, num_rows):
    """totals[r] += scale * sums[r] + (minimum - 128 * scale) * x_sums[r], for 16 outputs of each row."""
    scale = halves_at(scales)
    rest = multiply_add(scale, spread(np.float32(-128)), halves_at(scales + 32))
    for row in range(num_rows):
        total = multiply_add(rest, spread(x_sums[row]), floats_at(totals + 64 * row))
        store(totals + 64 * row, multiply_add(scale, floats_at(sums + 64 * row), total))


@jit(parallel=True)
def multiply_int4(x, x_step, num_rows, blocks, scales, bias, out, num_columns, num_blocks, workers):
    """Deal columns of 16 outputs to the workers. Groups of rows are equally long; the last may overlap another."""
    num_groups = (num_rows + TILE_ROWS - 1) // TILE_ROWS
    rows = (num_rows + num_groups - 1) // num_groups
    x_sums = np.empty((num_blocks, num_rows), np.float32)
    _sum_blocks(x, x_step, num_rows, x_sums)
    for worker in prange(workers):
        begin_tiles(rows)
        memory = np.empty(64 + 2 * _AT_ONCE * TILE_BYTES, np.uint8)
        tiles = (memory.ctypes.data + 63) // 64 * 64
        sums = tiles + _AT_ONCE * TILE_BYTES
        totals = np.empty((num_groups, rows, TILE_ROWS), np.float32)
        for column in range(num_columns * worker // workers, num_columns * (worker + 1) // workers):
            totals[:] = 0
            for block in range(0, num_blocks, _AT_ONCE):
                count, at = min(_AT_ONCE, num_blocks - block), column * num_blocks + block
                _unpack_blocks(blocks + at * _BLOCK_BYTES, count, tiles)
                for group in range(num_groups):
                    row = min(group * rows, num_rows - rows)
                    multiply_each(x + row * x_step + block * 64, x_step, rows, tiles, count, sums)
                    for i in range(count):
                        scale = scales + (at + i) * _SCALE_BYTES
                        _add_scaled(
                            totals[group].ctypes.data, sums + i * TILE_BYTES, scale, x_sums[block + i, row:], rows
                        )
            added = bias + 2 * column * TILE_ROWS if bias else 0
            for group in range(num_groups):
                target = out + 2 * (min(group * rows, num_rows - rows) * num_columns + column) * TILE_ROWS
                add_bias_and_round(
                    totals[group].ctypes.data, rows, TILE_ROWS, added, target, 2 * num_columns * TILE_ROWS, _BITS
                )
        memory[0] = totals[0, 0, 0] = 0  # still in use: their addresses are all that the loop has seen
        end_tiles()

"""Products of bfloat16 by tiles (kernels.tiles), for any number of rows from one copy of the weights.

By AMX on two cores, all 120 products of a pass of SmolLM2 (212 MB of weights), ms here / oneDNN's packed weights: 1 row
9.2 / 14.9, 16 rows 9.9 / 15.2, 64 rows 15.6 / 21.2, 512 rows 65 / 72. A call costs 5 us beside the work, theirs 22.
With silu(gate) * up at once, 512 rows take 7 ms less than with a kernel of its own for it. By AVX512 a product is as
fast as oneDNN's, and the gain is that all layers are one call (decoder_layers.py).
"""

import torch
from numba import prange

from kernels.cpu import LIKE, PARALLEL_SECTION, jit, set_threads, size_of
from kernels.silu_and_mul import gated
from kernels.tiles import (
    BLOCK_ROWS,
    BLOCKS_AT_ONCE,
    PANEL_BYTES,
    TILE_BYTES,
    TILE_INPUTS,
    TILE_ROWS,
    begin_tiles,
    end_tiles,
    has_tiles,
    multiply_block,
    multiply_blocks,
    tile_rows,
)
from kernels.vectors import WIDTH, add, bfloat16s_at, floats_at, rounded, store_as, store_bfloat16s

STRIP = 32  # outputs made at once: two tiles of weights side by side
_SUM_STEP = STRIP * 4  # bytes from row to row of the sums


def fits_tiles(num_outputs: int, num_inputs: int) -> bool:
    """Say whether weights of this shape can be laid out in tiles, on this machine."""
    return num_outputs % STRIP == 0 and num_inputs % TILE_INPUTS == 0 and has_tiles()


def pack_tiles(weight: torch.Tensor) -> torch.Tensor:
    """Lay out bfloat16 [out, in] as [out / 16, in / 32, 16 pairs, 16 outputs, 2], where each tile is one run."""
    num_outputs, num_inputs = weight.shape
    pairs = weight.contiguous().view(torch.int32)  # moved as one
    tiles = pairs.view(num_outputs // TILE_ROWS, TILE_ROWS, num_inputs // TILE_INPUTS, TILE_ROWS)
    return tiles.permute(0, 2, 3, 1).contiguous().view(torch.bfloat16).unflatten(-1, (TILE_ROWS, 2))


def linear_tiles(
    x: torch.Tensor,
    tiles: torch.Tensor,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype = torch.bfloat16,
    memory: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return x @ weight.T + bias in bfloat16 or float32, as it is summed. x: bfloat16 [T, in], tiles: from pack_tiles.

    bias: bfloat16 [out]. memory: out_dtype [T or more, out], contiguous, which the result is put into.
    """
    num_rows, num_tiles = x.shape[0], tiles.shape[1]
    x = x if x.stride(-1) == 1 else x.contiguous()
    shape = num_rows, tiles.shape[0] * TILE_ROWS
    out = x.new_empty(shape, dtype=out_dtype) if memory is None else memory[:num_rows]
    assert out.shape == shape
    assert out.dtype is out_dtype
    assert out.is_contiguous()
    if num_rows:
        bias_at = bias.data_ptr() if bias is not None else 0
        with PARALLEL_SECTION:
            multiply_tiles(
                x.data_ptr(), 2 * x.stride(0), num_rows, tiles.data_ptr(), num_tiles, bias_at, LIKE[out_dtype],
                out.data_ptr(), out.shape[1], False, set_threads(),
            )  # fmt: skip
    return out


@jit()
def add_bias_and_round(sums, num_rows, width, bias, out, out_step, like):
    """Write sums [rows, width] where out points, rounded to the type of `like`. bias: 0 for none."""
    size = size_of(like)
    for _ in range(num_rows):
        for i in range(0, width, WIDTH):
            total = floats_at(sums + 4 * i)
            if bias:
                total = add(total, bfloat16s_at(bias + 2 * i))
            store_as(out + size * i, total, like)
        sums, out = sums + 4 * width, out + out_step


@jit()
def _activate_and_round(sums, num_rows, gate_bias, up_bias, out, out_step):
    """Write silu(gate) * up of sums [rows, 32], 16 gates beside their ups, as bfloat16 where out points."""
    for _ in range(num_rows):
        gate, up = floats_at(sums), floats_at(sums + 64)
        if gate_bias:
            gate, up = add(gate, bfloat16s_at(gate_bias)), add(up, bfloat16s_at(up_bias))
        store_bfloat16s(out, gated(rounded(gate), rounded(up)))
        sums, out = sums + _SUM_STEP, out + out_step


@jit()
def _write(sums, num_rows, bias, second_bias, out, out_step, like, activates):
    if activates:
        _activate_and_round(sums, num_rows, bias, second_bias, out, out_step)
    else:
        add_bias_and_round(sums, num_rows, STRIP, bias, out, out_step, like)


@jit(parallel=True)
def multiply_tiles(x, x_step, num_rows, tiles, num_tiles, bias, like, out, num_outputs, activates, workers):
    """Deal the strips to the workers. Blocks of rows are equally long; the last may overlap the one before it.

    A panel of strips stays in the second-level cache while all rows pass it. activates: the weights are gates and, as
    many, ups; a strip is 16 of both, and out gets silu(gate) * up in bfloat16.
    """
    columns, num_blocks = 1 if activates else 2, (num_rows + BLOCK_ROWS - 1) // BLOCK_ROWS  # columns of tiles in a step
    num_strips, column_bytes = num_outputs // (columns * TILE_ROWS), num_tiles * TILE_BYTES
    apart = num_strips if activates else 1  # columns from a strip's first to its second
    rows = (num_rows + num_blocks - 1) // num_blocks
    width = max(1, PANEL_BYTES // (2 * column_bytes))
    size = size_of(like)
    out_step, strip_bytes, bias_step = num_outputs * size, columns * TILE_ROWS * size, 2 * TILE_ROWS if bias else 0
    for worker in prange(workers):
        begin_tiles(rows)
        memory = tile_rows(4 * rows)
        sums = memory.ctypes.data
        other_sums = sums + rows * _SUM_STEP
        last = num_strips * (worker + 1) // workers
        for panel in range(num_strips * worker // workers, last, width):
            for block in range(0, num_blocks, BLOCKS_AT_ONCE):
                row, other = min(block * rows, num_rows - rows), min((block + 1) * rows, num_rows - rows)
                for strip in range(panel, min(panel + width, last)):
                    first = tiles + strip * columns * column_bytes
                    second = first + apart * column_bytes
                    target, added = out + strip * strip_bytes, bias + strip * columns * bias_step
                    added_second = added + apart * bias_step
                    if BLOCKS_AT_ONCE == 2 and block + 1 < num_blocks:
                        multiply_blocks(
                            x + row * x_step, x + other * x_step, x_step, rows, first, second, num_tiles, sums,
                            other_sums,
                        )  # fmt: skip
                        _write(
                            other_sums, rows, added, added_second, target + other * out_step, out_step, like, activates
                        )
                    else:
                        multiply_block(x + row * x_step, x_step, rows, first, second, num_tiles, sums)
                    _write(sums, rows, added, added_second, target + row * out_step, out_step, like, activates)
        memory[0, 0] = 0  # still in use: its addresses are all that the loop has seen
        end_tiles()

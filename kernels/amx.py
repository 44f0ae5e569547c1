"""AMX in compiled kernels: eight tiles of up to 16 rows of 64 bytes, and a product of two added to a third.

How a product of x [rows, in] with weights [out, in] in bfloat16 lies in tiles:
- a tile of x: up to 16 rows of 32 inputs, read where they stand in x
- a tile of weights: 16 outputs side by side, 32 of their inputs as 16 rows of pairs, 1,024 bytes
- a tile of sums: up to 16 rows of 16 outputs, float32

Each thread configures its own tiles before use and releases them after, or torch's next product finds them configured.
Tile numbers are constants in the instructions: give literals. Addresses are integers, steps are bytes from row to row.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernels.cpu import intrinsic, jit

TILE_ROWS, TILE_BYTES = 16, 1024
TILE_INPUTS = 32  # of a tile of weights or of x

_BYTE, _WORD, _POINTER = ir.IntType(8), ir.IntType(64), ir.IntType(8).as_pointer()


def _instruction(name: str, tiles: tuple[Any, ...], num_words: int) -> tuple[Any, Callable[..., Any]]:
    """Return what numba's intrinsic needs for an instruction on tiles (literals) and words, the first an address."""
    numbers = [ir.Constant(_BYTE, tile.literal_value) for tile in tiles]

    def codegen(context, builder, signature, args):
        words = list(args[len(tiles) :])
        if words:
            words[0] = builder.inttoptr(words[0], _POINTER)
        operands = [*numbers, *words]
        kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), operands)
        return context.get_dummy_value()

    return types.void(*tiles, *[types.intp] * num_words), codegen


@intrinsic(prefer_literal=True)
def tile_load(typingctx, tile, address, step):
    """Fill a tile from rows that lie step bytes apart."""
    return _instruction("tileloadd64", (tile,), 2)


@intrinsic(prefer_literal=True)
def tile_store(typingctx, tile, address, step):
    """Write a tile's rows, step bytes apart."""
    return _instruction("tilestored64", (tile,), 2)


@intrinsic(prefer_literal=True)
def tile_zero(typingctx, tile):
    """Clear a tile."""
    return _instruction("tilezero", (tile,), 0)


@intrinsic(prefer_literal=True)
def tile_dot(typingctx, sums, x, weights):
    """sums += x @ weights, products and sums in float32."""
    return _instruction("tdpbf16ps", (sums, x, weights), 0)


@intrinsic
def _tile_config(typingctx, config):
    """Take the array itself: one of which only the address is used would be freed too early."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        kind = ir.FunctionType(ir.VoidType(), [_POINTER])
        load = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.ldtilecfg")
        builder.call(load, [builder.bitcast(data, _POINTER)])
        return context.get_dummy_value()

    return types.void(config), codegen


@intrinsic
def tile_release(typingctx):
    """Give the tiles back."""
    return _instruction("tilerelease", (), 0)


@jit()
def tile_rows(count):
    """Allocate rows of a tile, [count, 16] float32, each one line of the cache: one across two takes twice as long."""
    memory = np.empty((count + 1) * TILE_ROWS, np.float32)
    skip = -memory.ctypes.data % 64 // 4
    return memory[skip : skip + count * TILE_ROWS].reshape(count, TILE_ROWS)


@jit()
def tile_setup(num_rows):
    """Configure this thread's tiles: 0 to 5 (sums and x) with num_rows rows, 6 and 7 (weights) with 16."""
    config = np.zeros(64, np.uint8)
    config[0] = 1  # the palette: eight tiles
    for tile in range(8):
        config[16 + 2 * tile] = 64  # bytes of a row
        config[48 + tile] = num_rows if tile < 6 else TILE_ROWS
    _tile_config(config)

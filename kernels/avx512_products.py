"""The products of kernels.tiles by AVX512's bfloat16 instruction, for processors without AMX.

A tile's row of pairs, 16 outputs by two inputs, is one register; an instruction multiplies it with a pair of x, which
is read into all 16 places, and adds to 16 sums.
"""

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils

from kernels.amx import TILE_BYTES
from kernels.cpu import intrinsic, jit
from kernels.vectors import PINNED

BLOCK_ROWS, BLOCKS_AT_ONCE, PANEL_BYTES = 8, 1, 1 << 18
TILE_PAIRS, PAIR_BYTES = 16, 64
AHEAD = 4  # tiles that are fetched before their use
MOST_SUMS = 16  # of 16 at once: registers for more are lacking, fewer would wait for their last products

_WORD, _PAIR, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
_SUMS, _PAIRS = ir.VectorType(ir.FloatType(), 16), ir.VectorType(_PAIR, 16)


@functools.cache
def has_bfloat16_dot() -> bool:
    """Say whether this processor has the instruction."""
    return bool(binding.get_host_cpu_features().get("avx512bf16"))


@intrinsic(prefer_literal=True)
def _dot(typingctx, num_columns, num_rows, x, x_step, first, second, num_tiles, sums):
    """sums[r, 16 c:] = x[r] . column c of tiles; num_columns: 1 or 2, a literal; as many rows as MOST_SUMS allows."""
    columns = num_columns.literal_value

    def codegen(context, builder, signature, args):
        num_rows, x, x_step, *at, num_tiles, sums = args[1:]
        after = builder.append_basic_block("after")
        unreachable = builder.append_basic_block("other")
        switch = builder.switch(num_rows, unreachable)
        for rows in range(1, MOST_SUMS // columns + 1):
            case = builder.append_basic_block(f"rows_{rows}")
            switch.add_case(ir.Constant(_WORD, rows), case)
            builder.position_at_end(case)
            _dot_some(builder, rows, x, x_step, at[:columns], num_tiles, sums)
            builder.branch(after)
        builder.position_at_end(unreachable)
        builder.unreachable()
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(num_columns, *[types.intp] * 7), codegen


def _dot_some(builder: Any, rows: int, x: Any, x_step: Any, at: list[Any], num_tiles: Any, sums: Any) -> None:
    """Build the product of one number of rows."""
    dot, columns, none = _dot_instruction(builder), len(at), ir.Constant(_PAIRS, [0] * 16)
    x_rows = [_pointer(builder, x, builder.mul(x_step, ir.Constant(_WORD, r))) for r in range(rows)]
    tiles = [_pointer(builder, column, ir.Constant(_WORD, 0)) for column in at]

    def add(number: Any, totals: list[Any]) -> list[Any]:
        in_row, in_column = (builder.mul(number, ir.Constant(_WORD, size)) for size in (PAIR_BYTES, TILE_BYTES))
        for pair in range(TILE_PAIRS):
            weights = [_load(builder, tile, in_column, PAIR_BYTES * pair, _PAIRS) for tile in tiles]
            for tile in tiles:
                _prefetch(builder, tile, in_column, PAIR_BYTES * pair + TILE_BYTES * AHEAD)
            for r in range(rows):
                one = _load(builder, x_rows[r], in_row, 4 * pair, _PAIR)
                spread = builder.shuffle_vector(builder.insert_element(none, one, ir.Constant(_PAIR, 0)), none, none)
                for c in range(columns):
                    totals[r * columns + c] = builder.call(dot, [totals[r * columns + c], weights[c], spread])
        return totals

    for place, total in enumerate(_each_tile(builder, num_tiles, rows * columns, add)):
        builder.store(total, _sums_at(builder, sums, 64 * place), align=4)


@intrinsic
def _dot_keys(typingctx, keys, query, num_tiles, out):
    """out[t] = keys[t] . query for 16 keys that lie one after the other: 32 products of each at once, summed last."""

    def codegen(context, builder, signature, args):
        keys, query, num_tiles, out = args
        dot, step = _dot_instruction(builder), builder.mul(num_tiles, ir.Constant(_WORD, PAIR_BYTES))
        rows = [_pointer(builder, keys, builder.mul(step, ir.Constant(_WORD, t))) for t in range(16)]
        asked = _pointer(builder, query, ir.Constant(_WORD, 0))

        def add(number: Any, totals: list[Any]) -> list[Any]:
            offset = builder.mul(number, ir.Constant(_WORD, PAIR_BYTES))
            inputs = _load(builder, asked, offset, 0, _PAIRS)
            return [
                builder.call(dot, [total, inputs, _load(builder, row, offset, 0, _PAIRS)])
                for row, total in zip(rows, totals, strict=True)
            ]

        sums = _each_tile(builder, num_tiles, 16, add)
        builder.store(_sums_of_all(builder, sums), _sums_at(builder, out, 0), align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


def _sums_of_all(builder: Any, vectors: list[Any]) -> Any:
    """Return the vector of the sums of 16 vectors' elements: each round adds halves of two, side by side."""
    for half in (8, 4, 2, 1):
        firsts = [2 * half * (place // half) + place % half for place in range(16)]
        chosen = [ir.Constant(_PAIRS, [place + more for place in firsts]) for more in (0, half)]
        vectors = [
            builder.fadd(*(builder.shuffle_vector(a, b, places) for places in chosen), flags=PINNED)
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _each_tile(builder: Any, num_tiles: Any, count: int, add: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Build a loop over the tiles that adds to `count` sums; return these."""
    before, loop, after = builder.block, builder.append_basic_block("tile"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    number = builder.phi(_WORD)
    number.add_incoming(ir.Constant(_WORD, 0), before)
    begun = [builder.phi(_SUMS) for _ in range(count)]
    totals = add(number, list(begun))
    following = builder.add(number, ir.Constant(_WORD, 1))
    number.add_incoming(following, loop)
    for phi, total in zip(begun, totals, strict=True):
        phi.add_incoming(ir.Constant(_SUMS, [0.0] * 16), before)
        phi.add_incoming(total, loop)
    builder.cbranch(builder.icmp_signed("<", following, num_tiles), loop, after)
    builder.position_at_end(after)
    return totals


def _dot_instruction(builder: Any) -> Any:
    kind = ir.FunctionType(_SUMS, [_SUMS, _PAIRS, _PAIRS])
    return cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")


def _sums_at(builder: Any, address: Any, offset: int) -> Any:
    return builder.inttoptr(builder.add(address, ir.Constant(_WORD, offset)), _SUMS.as_pointer())


def _pointer(builder: Any, address: Any, offset: Any) -> Any:
    return builder.inttoptr(builder.add(address, offset), _BYTE.as_pointer())


def _prefetch(builder: Any, base: Any, offset: Any, more: int) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _PAIR, _PAIR, _PAIR])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    read, keep, data = (ir.Constant(_PAIR, n) for n in (0, 3, 1))
    builder.call(fetch, [builder.gep(base, [builder.add(offset, ir.Constant(_WORD, more))]), read, keep, data])


def _load(builder: Any, base: Any, offset: Any, more: int, kind: Any) -> Any:
    pointer = builder.gep(base, [builder.add(offset, ir.Constant(_WORD, more))])
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


@jit()
def begin_tiles(num_rows):
    """Nothing need be set up."""


@jit()
def end_tiles():
    """Nothing need be given back."""


@jit()
def multiply_block(x, x_step, num_rows, first, second, num_tiles, sums):
    _two_columns(x, x_step, num_rows, first, second, num_tiles, sums)


@jit()
def multiply_blocks(x, other, x_step, num_rows, first, second, num_tiles, sums, other_sums):
    _two_columns(x, x_step, num_rows, first, second, num_tiles, sums)
    _two_columns(other, x_step, num_rows, first, second, num_tiles, other_sums)


@jit()
def multiply_column(x, x_step, column, num_tiles, sums):
    _dot(1, 16, x, x_step, column, column, num_tiles, sums)


@jit()
def multiply_two_by_column(x, other, x_step, column, num_tiles, sums, other_sums):
    multiply_column(x, x_step, column, num_tiles, sums)
    multiply_column(other, x_step, column, num_tiles, other_sums)


@jit()
def multiply_keys(keys, queries, tiles, num_queries, num_tiles, scores, out, out_step):
    for q in range(num_queries):
        _dot_keys(keys, queries + q * 64 * num_tiles, num_tiles, out + q * out_step)


@jit()
def multiply_each(x, x_step, num_rows, tiles, count, sums):
    for i in range(count):
        tile = tiles + i * TILE_BYTES
        _dot(1, num_rows, x + i * 64, x_step, tile, tile, 1, sums + i * TILE_BYTES)


@jit()
def _two_columns(x, x_step, num_rows, first, second, num_tiles, sums):
    while num_rows > 0:
        count = num_rows if num_rows <= MOST_SUMS // 2 else (num_rows + 1) // 2
        _dot(2, count, x, x_step, first, second, num_tiles, sums)
        x, sums, num_rows = x + count * x_step, sums + count * 128, num_rows - count

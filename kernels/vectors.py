"""Vectors of 16 numbers in compiled kernels, for loops that the compiler would not vectorize well by itself.

A vector lives in a register (AVX512) or in two or four. Addresses are integers; nothing need be aligned.
"""

import math
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import models, overload, register_model

from kernels.cpu import intrinsic

WIDTH = 16
# 2**x is 2**whole times a polynomial of what is left of x, as in kernels.cpu.
LOWEST_EXPONENT, HIGHEST_EXPONENT = -126.0, 128.0  # the highest makes infinity
POWER_TERMS = [math.log(2) ** k / math.factorial(k) for k in range(7)]
# numba lets operations without flags of their own be reordered, here so and there otherwise.
PINNED = ("nsz",)
_FLOATS, _INTS, _HALVES, _SHORTS = (
    ir.VectorType(kind, WIDTH) for kind in (ir.FloatType(), ir.IntType(32), ir.HalfType(), ir.IntType(16))
)


_FEATURES = binding.get_host_cpu_features()
_HAS_ROUNDING = _FEATURES.get("avx512bf16", False)  # an instruction for 16 bfloat16 of 16 float32
_HAS_SCALING = _FEATURES.get("avx512f", False)  # and one for 16 float32 times powers of two


class Vector(types.Type):
    """numba's type of a vector."""

    def __init__(self, name: str, kind: ir.VectorType) -> None:
        super().__init__(name=f"{name} x {WIDTH}")
        self.kind = kind


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """In memory as in a register."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.kind)


floats, ints = Vector("float32", _FLOATS), Vector("uint32", _INTS)


def all_of(kind: ir.VectorType, value: float) -> ir.Constant:
    """Return the vector whose elements are all this constant."""
    return ir.Constant(kind, [value] * WIDTH)


def load(builder: Any, address: Any, kind: ir.VectorType, align: int) -> Any:
    """Read a vector of this kind."""
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = align
    return loaded


@intrinsic
def floats_at(typingctx, address):
    """Read 16 float32."""
    return floats(types.intp), lambda context, builder, signature, args: load(builder, args[0], _FLOATS, 4)


@intrinsic
def bfloat16s_at(typingctx, address):
    """Read 16 bfloat16 as float32."""

    def codegen(context, builder, signature, args):
        wide = builder.zext(load(builder, args[0], _SHORTS, 2), _INTS)
        return builder.bitcast(builder.shl(wide, all_of(_INTS, 16)), _FLOATS)

    return floats(types.intp), codegen


@intrinsic
def halves_at(typingctx, address):
    """Read 16 float16 as float32."""
    return floats(types.intp), lambda context, builder, signature, args: builder.fpext(
        load(builder, args[0], _HALVES, 2), _FLOATS
    )


@intrinsic
def ints_at(typingctx, address):
    """Read 16 uint32."""
    return ints(types.intp), lambda context, builder, signature, args: load(builder, args[0], _INTS, 4)


@intrinsic
def store(typingctx, address, vector):
    """Write a vector."""

    def codegen(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(types.intp, vector), codegen


def _rounded(builder: Any, vector: Any) -> Any:
    """Return the bfloat16 bits of 16 float32 in 16 uint16, rounded as `narrow` rounds.

    A processor's own instruction makes zeros of what is below 1e-38, and keeps more bits of a NaN.
    """
    if _HAS_ROUNDING:
        kind = ir.FunctionType(_SHORTS, [_FLOATS])
        name = "llvm.x86.avx512bf16.cvtneps2bf16.512"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])
    bits = builder.bitcast(vector, _INTS)
    odd = builder.and_(builder.lshr(bits, all_of(_INTS, 16)), all_of(_INTS, 1))
    rounded = builder.lshr(builder.add(builder.add(bits, all_of(_INTS, 0x7FFF)), odd), all_of(_INTS, 16))
    chosen = builder.select(builder.fcmp_ordered("ord", vector, vector), rounded, all_of(_INTS, 0x7FC0))
    return builder.trunc(chosen, _SHORTS)


@intrinsic
def store_bfloat16s(typingctx, address, vector):
    """Write 16 float32 as bfloat16."""

    def codegen(context, builder, signature, args):
        builder.store(_rounded(builder, args[1]), builder.inttoptr(args[0], _SHORTS.as_pointer())).align = 2
        return context.get_dummy_value()

    return types.void(types.intp, floats), codegen


@intrinsic
def rounded(typingctx, vector):
    """Round 16 float32 to bfloat16 and widen them again: what storing and loading them gives."""

    def codegen(context, builder, signature, args):
        wide = builder.zext(_rounded(builder, args[0]), _INTS)
        return builder.bitcast(builder.shl(wide, all_of(_INTS, 16)), _FLOATS)

    return floats(floats), codegen


@intrinsic
def store_pairs(typingctx, address, first, second):
    """Write 16 pairs of bfloat16, each of one float32 of the first vector and one of the second, rounded."""

    def codegen(context, builder, signature, args):
        low, high = (builder.zext(_rounded(builder, vector), _INTS) for vector in args[1:])
        pairs = builder.or_(low, builder.shl(high, all_of(_INTS, 16)))
        builder.store(pairs, builder.inttoptr(args[0], _INTS.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(types.intp, floats, floats), codegen


def store_as(address, vector, like):
    """Write 16 float32 in the type of `like`: bfloat16 bits or float32."""
    raise NotImplementedError("store_as is for compiled kernels")


@overload(store_as)
def _store_as(address, vector, like):
    if isinstance(like, types.Integer):
        return lambda address, vector, like: store_bfloat16s(address, vector)
    return lambda address, vector, like: store(address, vector)


@intrinsic
def add(typingctx, a, b):
    """Return a + b."""
    return floats(floats, floats), lambda context, builder, signature, args: builder.fadd(*args, flags=PINNED)


@intrinsic
def spread(typingctx, x):
    """Return the vector whose elements are all x, a float32."""

    def codegen(context, builder, signature, args):
        first = builder.insert_element(all_of(_FLOATS, 0.0), args[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, first, all_of(_INTS, 0))

    return floats(types.float32), codegen


@intrinsic
def multiply_add(typingctx, a, b, c):
    """Return a * b + c."""

    def codegen(context, builder, signature, args):
        return builder.fadd(builder.fmul(*args[:2], flags=["contract"]), args[2], flags=["contract"])

    return floats(floats, floats, floats), codegen


@intrinsic
def multiply(typingctx, a, b):
    """Return a * b."""
    return floats(floats, floats), lambda context, builder, signature, args: builder.fmul(*args, flags=PINNED)


@intrinsic
def quotient(typingctx, a, b):
    """Return a / b, each rounded once, never by way of an estimate."""
    return floats(floats, floats), lambda context, builder, signature, args: builder.fdiv(*args, flags=PINNED)


def _call(builder: Any, name: str, *operands: Any) -> Any:
    kind = ir.FunctionType(_FLOATS, [operand.type for operand in operands])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}"), operands)


def _scaled(builder: Any, power: Any, whole: Any) -> Any:
    """Return power * 2**whole."""
    if _HAS_SCALING:
        mask, rounding = ir.Constant(ir.IntType(16), -1), ir.Constant(ir.IntType(32), 4)
        return _call(builder, "x86.avx512.mask.scalef.ps.512", power, whole, power, mask, rounding)
    lowest, highest = all_of(_FLOATS, LOWEST_EXPONENT), all_of(_FLOATS, HIGHEST_EXPONENT)
    whole = builder.select(builder.fcmp_ordered("<", whole, lowest), lowest, whole)
    whole = builder.select(builder.fcmp_ordered(">", whole, highest), highest, whole)
    exponent = builder.add(builder.fptosi(whole, _INTS), all_of(_INTS, 127))
    return builder.fmul(power, builder.bitcast(builder.shl(exponent, all_of(_INTS, 23)), _FLOATS), flags=PINNED)


@intrinsic
def power_of_two(typingctx, x):
    """Return 2**x, element by element, good to float32's last bit, rounded alike wherever it is compiled into."""

    def codegen(context, builder, signature, args):
        whole = _call(builder, "roundeven.v16f32", args[0])
        rest = builder.fsub(args[0], whole, flags=PINNED)
        power = all_of(_FLOATS, POWER_TERMS[-1])
        for term in POWER_TERMS[-2::-1]:
            power = _call(builder, "fma.v16f32", rest, power, all_of(_FLOATS, term))
        return _scaled(builder, power, whole)

    return floats(floats), codegen


@intrinsic
def greater(typingctx, a, b):
    """Return, element by element, the greater of the two."""
    return floats(floats, floats), lambda context, builder, signature, args: builder.select(
        builder.fcmp_ordered(">", *args), *args
    )


@intrinsic
def greatest(typingctx, vector):
    """Return the greatest element."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.FloatType(), [_FLOATS])
        reduce = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.fmax.v16f32")
        return builder.call(reduce, [args[0]])

    return types.float32(floats), codegen


@intrinsic
def prefetch(typingctx, address):
    """Have the 64 bytes around an address read ahead of their use."""

    def codegen(context, builder, signature, args):
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(args[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.intp), codegen

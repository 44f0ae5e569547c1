"""The gated activation of the MLP: silu(gate) * up, from one fused product."""

import math

import numpy as np
import torch
from numba import prange, types
from numba.extending import overload

from kernels.cpu import LIKE, PARALLEL_INSIDE_FROM, array_at, cast, exp, jit, jit_both, narrow, run, size_of, widen
from kernels.vectors import (
    WIDTH,
    add,
    bfloat16s_at,
    multiply,
    power_of_two,
    quotient,
    rounded,
    spread,
    store_bfloat16s,
)


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up. gate_up: [T, 2 * N], gate first. Result: [T, N], same dtype.

    silu is calculated in float32 (float64 for float64) and rounded before up multiplies it, as HF's Llama does.
    """
    if not gate_up.is_cpu:
        return silu_and_mul_reference(gate_up)
    gate_up = gate_up.contiguous()
    out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
    run(_silu_and_mul_cpu, out.numel(), LIKE[out.dtype], *out.shape, gate_up.data_ptr(), out.data_ptr())
    return out


_MINUS_LOG2_E = np.float32(-math.log2(math.e))


@jit()
def gated(gate, up):
    """Return silu(gate) * up of vectors of bfloat16, to be rounded."""
    share = quotient(gate, add(spread(np.float32(1)), power_of_two(multiply(gate, spread(_MINUS_LOG2_E)))))
    return multiply(rounded(share), up)


def _whole_vectors(gate_at, up_at, out_at, width, like):
    """Calculate what whole vectors there are of a row, if the type has any; return how many numbers they held."""
    raise NotImplementedError("_whole_vectors is for compiled kernels")


@overload(_whole_vectors)
def _whole_vectors_of_a_type(gate_at, up_at, out_at, width, like):
    if not isinstance(like, types.Integer):
        return lambda gate_at, up_at, out_at, width, like: 0

    def of_bfloat16(gate_at, up_at, out_at, width, like):
        whole = width // WIDTH * WIDTH
        for i in range(0, whole, WIDTH):
            store_bfloat16s(out_at + 2 * i, gated(bfloat16s_at(gate_at + 2 * i), bfloat16s_at(up_at + 2 * i)))
        return whole

    return of_bfloat16


@jit_both
def _silu_and_mul_cpu(like, num_rows, width, gate_up_at, out_at):
    gate_up, out = array_at(gate_up_at, (num_rows, 2 * width), like), array_at(out_at, (num_rows, width), like)
    size = width * size_of(like)
    for row in prange(num_rows):
        gate_at = gate_up_at + 2 * row * size
        for i in range(_whole_vectors(gate_at, gate_at + size, out_at + row * size, width, like), width):
            gate = widen(gate_up[row, i])
            activated = narrow(gate / (cast(1, gate) + exp(-gate)), gate_up[0, 0])
            out[row, i] = narrow(widen(activated) * widen(gate_up[row, width + i]), gate_up[0, 0])


_serial, _parallel = _silu_and_mul_cpu


@jit()
def activate(like, num_rows, width, gate_up_at, out_at):
    """Do silu_and_mul for a compiled caller, which holds PARALLEL_SECTION."""
    if num_rows * width < PARALLEL_INSIDE_FROM:
        _serial(like, num_rows, width, gate_up_at, out_at)
    else:
        _parallel(like, num_rows, width, gate_up_at, out_at)


def silu_and_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """Say what silu_and_mul means."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up

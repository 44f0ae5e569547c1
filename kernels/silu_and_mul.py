"""The gated activation of the MLP: silu(gate) * up, from one fused product."""

import torch
from numba import prange

from kernels.cpu import LIKE, PARALLEL_INSIDE_FROM, array_at, cast, exp, jit, jit_both, narrow, run, widen


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


@jit_both
def _silu_and_mul_cpu(like, num_rows, width, gate_up_at, out_at):
    gate_up, out = array_at(gate_up_at, (num_rows, 2 * width), like), array_at(out_at, (num_rows, width), like)
    for row in prange(num_rows):
        gates, ups = gate_up[row, :width], gate_up[row, width:]
        for i in range(width):
            gate = widen(gates[i])
            activated = narrow(gate / (cast(1, gate) + exp(-gate)), gate_up[0, 0])
            out[row, i] = narrow(widen(activated) * widen(ups[i]), gate_up[0, 0])


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

"""Root-mean-square normalization, alone and fused with the residual addition before it."""

import math

import torch
from numba import prange
from numba.extending import register_jitable

from kernels.cpu import LIKE, PARALLEL_INSIDE_FROM, array_at, cast, compute_dtype, jit, jit_both, narrow, run, widen


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / rms(x) * weight over the last dimension, as HF's Llama rounds it.

    x: [..., N], weight: [N], one dtype. The mean square and the quotient are float32 (float64 for float64);
    the quotient is rounded to x's dtype before the weight multiplies it.
    """
    if not x.is_cpu:
        return rms_norm_reference(x, weight, eps)
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype)
    run(
        _rms_norm_cpu, rows.numel(), LIKE[x.dtype], rows.shape[0], width, rows.data_ptr(), rows.stride(0),
        weight.data_ptr(), eps, out.data_ptr(),
    )  # fmt: skip
    return out


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rms_norm(x + residual), x + residual); the sum is rounded to x's dtype first.

    x, residual: [T, N], contiguous on the CPU; neither is changed.
    """
    if not x.is_cpu:
        return fused_add_rms_norm_reference(x, residual, weight, eps)
    out, total = torch.empty_like(x), torch.empty_like(x)
    run(
        _fused_add_rms_norm_cpu, x.numel(), LIKE[x.dtype], *x.shape, x.data_ptr(), residual.data_ptr(),
        weight.data_ptr(), eps, out.data_ptr(), total.data_ptr(),
    )  # fmt: skip
    return out, total


@register_jitable(inline="always")  # or its sums would depend on whether it came from the disk cache
def _normalize(x, weight, eps, out):
    width = len(x)
    squares = cast(0, widen(weight[0]))
    for i in range(width):
        squares += widen(x[i]) * widen(x[i])
    inverse = cast(1 / math.sqrt(squares / width + eps), squares)
    for i in range(width):
        quotient = narrow(widen(x[i]) * inverse, weight[0])
        out[i] = narrow(widen(quotient) * widen(weight[i]), weight[0])


@jit_both
def _rms_norm_cpu(like, num_rows, width, x_at, step, weight_at, eps, out_at):
    x, weight = array_at(x_at, num_rows * step, like), array_at(weight_at, width, like)
    out = array_at(out_at, (num_rows, width), like)
    for row in prange(num_rows):
        _normalize(x[row * step :][:width], weight, eps, out[row])


@jit_both
def _fused_add_rms_norm_cpu(like, num_rows, width, x_at, residual_at, weight_at, eps, out_at, total_at):
    x, residual = array_at(x_at, (num_rows, width), like), array_at(residual_at, (num_rows, width), like)
    weight, shape = array_at(weight_at, width, like), (num_rows, width)
    out, total = array_at(out_at, shape, like), array_at(total_at, shape, like)
    for row in prange(num_rows):
        for i in range(width):
            total[row, i] = narrow(widen(x[row, i]) + widen(residual[row, i]), weight[0])
        _normalize(total[row], weight, eps, out[row])


_add_serial, _add_parallel = _fused_add_rms_norm_cpu


@jit()
def add_and_norm(like, num_rows, width, x_at, residual_at, weight_at, eps, out_at, total_at):
    """Do fused_add_rms_norm for a compiled caller, which holds PARALLEL_SECTION."""
    if num_rows * width < PARALLEL_INSIDE_FROM:
        _add_serial(like, num_rows, width, x_at, residual_at, weight_at, eps, out_at, total_at)
    else:
        _add_parallel(like, num_rows, width, x_at, residual_at, weight_at, eps, out_at, total_at)


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Say what rms_norm means."""
    wide = x.to(compute_dtype(x))
    normalized = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return normalized.to(x.dtype) * weight


def fused_add_rms_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Say what fused_add_rms_norm means."""
    total = x + residual
    return rms_norm_reference(total, weight, eps), total

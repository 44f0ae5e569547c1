"""Root-mean-square normalization, alone and fused with the residual addition before it."""

import math

import torch
from numba import prange

from kernels.cpu import as_numpy, as_rows, cast, compute_dtype, is_dense, jit_both, narrow, run, widen


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / rms(x) * weight over the last dimension, as HF's Llama rounds it.

    x: [..., N], weight: [N], one dtype. The mean square and the quotient are float32 (float64 for float64);
    the quotient is rounded to x's dtype before the weight multiplies it.
    """
    if not x.is_cpu:
        return rms_norm_reference(x, weight, eps)
    rows = x.reshape(-1, x.shape[-1])
    flat, step = as_rows(rows if is_dense(rows) else rows.contiguous())
    out = torch.empty(x.shape, dtype=x.dtype)
    run(_rms_norm_cpu, rows.numel(), flat, step, as_numpy(weight), eps, as_numpy(out.view(rows.shape)))
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
    arrays = (as_numpy(tensor) for tensor in (x, residual, weight))
    run(_fused_add_rms_norm_cpu, x.numel(), *arrays, eps, as_numpy(out), as_numpy(total))
    return out, total


@jit_both
def _rms_norm_cpu(x, step, weight, eps, out):
    num_rows, width = out.shape
    for row in prange(num_rows):
        x_row = x[row * step :][:width]
        squares = cast(0, widen(weight[0]))
        for i in range(width):
            squares += widen(x_row[i]) * widen(x_row[i])
        inverse = cast(1 / math.sqrt(squares / width + eps), squares)
        for i in range(width):
            quotient = narrow(widen(x_row[i]) * inverse, weight[0])
            out[row, i] = narrow(widen(quotient) * widen(weight[i]), weight[0])


@jit_both
def _fused_add_rms_norm_cpu(x, residual, weight, eps, out, total):
    num_rows, width = out.shape
    for row in prange(num_rows):
        squares = cast(0, widen(weight[0]))
        for i in range(width):
            total[row, i] = narrow(widen(x[row, i]) + widen(residual[row, i]), weight[0])
            squares += widen(total[row, i]) * widen(total[row, i])
        inverse = cast(1 / math.sqrt(squares / width + eps), squares)
        for i in range(width):
            quotient = narrow(widen(total[row, i]) * inverse, weight[0])
            out[row, i] = narrow(widen(quotient) * widen(weight[i]), weight[0])


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

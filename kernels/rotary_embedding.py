"""Rotary position embedding in the neox style: element i turns with element i + D / 2."""

import numpy as np
import torch
from numba import prange

from kernels.cpu import LIKE, PARALLEL_INSIDE_FROM, array_at, is_dense, jit, jit_both, narrow, product, run, widen


def make_cos_sin(max_len: int, head_dim: int, theta: float) -> torch.Tensor:
    """Return the float32 table [max_len, head_dim]: for each position its cosines, then its sines."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    angles = torch.arange(max_len, dtype=torch.int64).float()[:, None] * (1.0 / theta**exponents)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def rotary_embedding(positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor) -> None:
    """Turn query [T, H, D] and key [T, KH, D] in place by their positions [T] (int64).

    Rows may lie apart (slices of a fused product). cos_sin: from make_cos_sin, float32. Arithmetic is float32 (float64
    for float64), rounded once. Raises ValueError if the heads of a row are not dense; positions must be below max_len.
    """
    if query.is_cpu:
        _rotate_on_cpu(positions, query, key, cos_sin)
    else:
        rotary_embedding_reference(positions, query, key, cos_sin)


def _rotate_on_cpu(positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor) -> None:
    if not (is_dense(query) and is_dense(key)):
        raise ValueError("the heads of a row must be dense; call .contiguous() first")
    positions = positions.contiguous()
    run(
        _rotate_cpu, query.numel() + key.numel(), LIKE[query.dtype], len(positions), positions.data_ptr(),
        query.data_ptr(), query.stride(0), query.shape[1], key.data_ptr(), key.stride(0), key.shape[1],
        cos_sin.data_ptr(), *cos_sin.shape,
    )  # fmt: skip


@jit_both
def _rotate_cpu(
    like, num_tokens, positions_at, query_at, query_step, num_heads, key_at, key_step, num_kv_heads, cos_sin_at,
    max_len, dim,
):  # fmt: skip
    positions = array_at(positions_at, num_tokens, np.int64(0))
    cos_sin = array_at(cos_sin_at, (max_len, dim), np.float32(0))
    query, key = array_at(query_at, num_tokens * query_step, like), array_at(key_at, num_tokens * key_step, like)
    half = dim // 2
    for token in prange(num_tokens):
        cos, sin = cos_sin[positions[token], :half], cos_sin[positions[token], half:]
        for head in range(num_heads + num_kv_heads):
            if head < num_heads:
                row = query[token * query_step + head * dim :]
            else:
                row = key[token * key_step + (head - num_heads) * dim :]
            first, second = row[:half], row[half:dim]
            for i in range(half):
                a, b = widen(first[i]), widen(second[i])
                first[i] = narrow(a * cos[i] - product(b, sin[i]), row[0])
                second[i] = narrow(b * cos[i] + product(a, sin[i]), row[0])


_serial, _parallel = _rotate_cpu


@jit()
def rotate(
    like, num_tokens, positions_at, query_at, query_step, num_heads, key_at, key_step, num_kv_heads, cos_sin_at,
    max_len, dim,
):  # fmt: skip
    """Do rotary_embedding for a compiled caller, which holds PARALLEL_SECTION."""
    if num_tokens * (num_heads + num_kv_heads) * dim < PARALLEL_INSIDE_FROM:
        _serial(
            like, num_tokens, positions_at, query_at, query_step, num_heads, key_at, key_step, num_kv_heads, cos_sin_at,
            max_len, dim,
        )  # fmt: skip
    else:
        _parallel(
            like, num_tokens, positions_at, query_at, query_step, num_heads, key_at, key_step, num_kv_heads, cos_sin_at,
            max_len, dim,
        )  # fmt: skip


def rotary_embedding_reference(
    positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor
) -> None:
    """Say what rotary_embedding means."""
    cos, sin = cos_sin[positions][:, None].chunk(2, dim=-1)
    for x in (query, key):
        a, b = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
        x.copy_(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1))

"""Rotary position embedding in the neox style: element i turns with element i + D / 2."""

import numpy as np
import torch
from numba import prange

from kernels.cpu import LIKE, array_at, is_dense, jit, jit_both, narrow, product, run, size_of, widen


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
        cos_sin.data_ptr(), cos_sin.shape[1],
    )  # fmt: skip


@jit()
def rotate_token(like, query_at, num_heads, key_at, num_kv_heads, cos_sin_at, dim):
    """Turn one token's query [H, D] and key [KH, D], each dense, by its row [D] of cosines and sines."""
    half, size = dim // 2, dim * size_of(like)
    cos, sin = array_at(cos_sin_at, (2, half), np.float32(0))
    for head in range(num_heads + num_kv_heads):
        at = query_at + head * size if head < num_heads else key_at + (head - num_heads) * size
        first, second = array_at(at, (2, half), like)
        for i in range(half):
            a, b = widen(first[i]), widen(second[i])
            first[i] = narrow(a * cos[i] - product(b, sin[i]), first[0])
            second[i] = narrow(b * cos[i] + product(a, sin[i]), first[0])


@jit_both
def _rotate_cpu(
    like, num_tokens, positions_at, query_at, query_step, num_heads, key_at, key_step, num_kv_heads, cos_sin_at, dim,
):  # fmt: skip
    positions, size = array_at(positions_at, num_tokens, np.int64(0)), size_of(like)
    for token in prange(num_tokens):
        rotate_token(
            like, query_at + token * query_step * size, num_heads, key_at + token * key_step * size, num_kv_heads,
            cos_sin_at + 4 * positions[token] * dim, dim,
        )  # fmt: skip


def rotary_embedding_reference(
    positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor
) -> None:
    """Say what rotary_embedding means."""
    cos, sin = cos_sin[positions][:, None].chunk(2, dim=-1)
    for x in (query, key):
        a, b = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
        x.copy_(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1))

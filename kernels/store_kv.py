"""A pass's keys and values of one layer into their slots of the paged cache [blocks, kv_heads, block_size, dim]."""

import numpy as np
import torch

from kernels.cpu import LIKE, array_at, is_dense, jit, size_of
from kernels.triton_support import tl, triton


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write token t's key and value to slot slot_mapping[t]; slot -1 (padding) writes nothing.

    key, value: [T, KH, D], rows may lie apart (slices of a fused product). Caches: [B, KH, block_size, D] of the same
    dtype, contiguous. slot_mapping: int64, T or fewer: further tokens are padding. Raises ValueError on a cache that
    is not contiguous.
    """
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        raise ValueError("the KV cache must be contiguous: [num_blocks, num_kv_heads, block_size, head_dim]")
    if key.is_cuda and triton is not None:
        store_kv_triton(key, value, key_cache, value_cache, slot_mapping)
    elif key.is_cpu:
        _store_kv_on_cpu(key, value, key_cache, value_cache, slot_mapping)
    else:
        _store_kv_torch(key, value, key_cache, value_cache, slot_mapping)


def _store_kv_on_cpu(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    key, value = (x if is_dense(x) else x.contiguous() for x in (key, value))
    slots = slots.contiguous()
    _store(
        LIKE[key.dtype], len(slots), key.data_ptr(), key.stride(0), value.data_ptr(), value.stride(0),
        *key_cache.shape[1:], key_cache.data_ptr(), value_cache.data_ptr(), slots.data_ptr(),
    )  # fmt: skip


@jit()
def store_token(like, key_at, value_at, slot, num_heads, block_size, dim, key_cache_at, value_cache_at):
    """Copy one token's key and value [KH, D], each dense, into a slot that exists."""
    size = dim * size_of(like)
    target = (slot // block_size * num_heads * block_size + slot % block_size) * size
    for head in range(num_heads):
        at = target + head * block_size * size
        keys, key_slots = array_at(key_at + head * size, dim, like), array_at(key_cache_at + at, dim, like)
        values, value_slots = array_at(value_at + head * size, dim, like), array_at(value_cache_at + at, dim, like)
        for d in range(dim):
            key_slots[d] = keys[d]
        for d in range(dim):
            value_slots[d] = values[d]


@jit()
def _store(
    like, num_tokens, key_at, key_step, value_at, value_step, num_heads, block_size, dim, key_cache_at, value_cache_at,
    slots_at,
):  # fmt: skip
    slots, size = array_at(slots_at, num_tokens, np.int64(0)), size_of(like)
    for token in range(num_tokens):
        if slots[token] >= 0:
            store_token(
                like, key_at + token * key_step * size, value_at + token * value_step * size, slots[token], num_heads,
                block_size, dim, key_cache_at, value_cache_at,
            )  # fmt: skip


def _store_kv_torch(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    kept = torch.nonzero(slots >= 0).flatten()
    blocks = slots[kept] // key_cache.shape[2]
    offsets = slots[kept] % key_cache.shape[2]
    key_cache[blocks, :, offsets] = key[kept]
    value_cache[blocks, :, offsets] = value[kept]


def store_kv_reference(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Say what store_kv means, token by token."""
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, key_cache.shape[2])
            key_cache[block, :, offset] = key[token]
            value_cache[block, :, offset] = value[token]


if triton is not None:
    from kernels.flat_index import flat_index_triton

    @triton.jit
    def store_kv_kernel(
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        key_stride,
        value_stride,
        num_heads,
        block_size,
        DIM: tl.constexpr,
        PADDED_DIM: tl.constexpr,
    ):
        """One program a (token, head)."""
        token, head = tl.program_id(0), tl.program_id(1)
        slot = tl.load(slot_mapping + token)
        if slot >= 0:
            d = tl.arange(0, PADDED_DIM)
            mask = d < DIM
            row = flat_index_triton(slot // block_size, head, num_heads) * block_size + slot % block_size
            target = row * DIM + d
            k = tl.load(key + flat_index_triton(token, head * DIM, key_stride) + d, mask=mask)
            v = tl.load(value + flat_index_triton(token, head * DIM, value_stride) + d, mask=mask)
            tl.store(key_cache + target, k, mask=mask)
            tl.store(value_cache + target, v, mask=mask)

    def store_kv_triton(
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Launch the kernel: store_kv on the GPU, without a wait for it."""
        num_heads, block_size, dim = key_cache.shape[1:]
        key, value = (x if is_dense(x) else x.contiguous() for x in (key, value))
        store_kv_kernel[(slot_mapping.shape[0], num_heads)](
            key,
            value,
            key_cache,
            value_cache,
            slot_mapping,
            key.stride(0),
            value.stride(0),
            num_heads,
            block_size,
            DIM=dim,
            PADDED_DIM=triton.next_power_of_2(dim),
        )

"""Causal attention of a pass's queries over the paged KV cache: grouped query heads, rows of any length.

The CPU version is in paged_attention_cpu.py; CUDA uses torch's fused attention over gathered blocks.
"""

import torch
from torch.nn import functional

from kernels.paged_attention_cpu import paged_attention_cpu
from kernels.paged_attention_long import gather_blocks


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Write each token's attention over its row's context, itself included, into out.

    query, out: [T, H, D]; rows may lie apart. Caches: [B, KH, block_size, D] of query's dtype, contiguous, H a multiple
    of KH. block_table: int32 [R, max_blocks]; entries and slots behind a row's last token are never read.
    query_start_loc: int32 [R + 1]. seq_lens: int32 [R], context including this pass's tokens, all of which are stored
    already. Tokens past query_start_loc[R] are padding, left alone. Raises ValueError on another layout.
    """
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        raise ValueError("the KV cache must be contiguous: [num_blocks, num_kv_heads, block_size, head_dim]")
    if query.is_cpu:
        attend = paged_attention_cpu
    else:
        attend = paged_attention_torch
    attend(query, key_cache, value_cache, block_table, query_start_loc, seq_lens, scale, out)


def paged_attention_torch(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Do the same with torch alone, on any device: rows are padded to the longest, their blocks gathered and masked."""
    starts, query_lens = query_start_loc[:-1].long(), query_start_loc.diff().long()
    block_size, rows, most = key_cache.shape[2], block_table.shape[0], int(query_lens.max())
    blocks = block_table[:, : -(-int(seq_lens.max()) // block_size)]
    keys_at = torch.arange(blocks.shape[1] * block_size, device=query.device)
    steps = torch.arange(most, device=query.device)
    real = steps < query_lens[:, None]  # [R, Q]
    tokens = (starts[:, None] + steps).where(real, 0)
    inside = keys_at < seq_lens[:, None]  # [R, K]
    last_key = (seq_lens - query_lens)[:, None] + steps
    mask = (keys_at <= last_key[..., None]) & inside[:, None] | ~real[..., None]
    blocks = blocks.where(inside.view(rows, -1, block_size)[..., 0], 0)
    keys, values = (
        gather_blocks(cache, blocks).masked_fill(~inside[:, None, :, None], 0) for cache in (key_cache, value_cache)
    )
    attended = functional.scaled_dot_product_attention(
        query[tokens].transpose(1, 2), keys, values, attn_mask=mask[:, None], scale=scale, enable_gqa=True
    )
    out[tokens[real]] = attended.transpose(1, 2)[real]


def paged_attention_reference(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Say what paged_attention means: token by token and head by head, in float64, rounded once."""
    block_size, group = key_cache.shape[2], query.shape[1] // key_cache.shape[1]
    for row in range(len(seq_lens)):
        end = int(query_start_loc[row + 1])
        for token in range(int(query_start_loc[row]), end):
            context = int(seq_lens[row]) - (end - 1 - token)
            slots = [divmod(position, block_size) for position in range(context)]
            for head in range(query.shape[1]):
                at = [(int(block_table[row, block]), head // group, offset) for block, offset in slots]
                keys = torch.stack([key_cache[index] for index in at]).double()
                values = torch.stack([value_cache[index] for index in at]).double()
                weights = torch.softmax(keys @ query[token, head].double() * scale, dim=0)
                out[token, head] = (weights @ values).to(out.dtype)

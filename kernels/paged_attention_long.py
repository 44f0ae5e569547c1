"""Attention of rows with many queries (long chunks of a prompt): their blocks gathered once, torch's fused attention.

On two cores, bfloat16, 9 heads, microseconds of paged_attention_cpu.py / of this: 32 queries of 32 tokens 50 / 95, 128
of 128 370 / 170, 8 of 512 180 / 185, 64 of 512 1300 / 390.
"""

import torch
from torch.nn import functional

from kernels.cpu import jit

# A row goes to torch's attention from this many queries and (query, key) pairs on.
LONG_QUERY_LEN = 16
LONG_PAIRS = 8192


@jit()
def is_long(num_queries, context):
    """Say whether torch's attention is faster. It looks at the row alone, so that neighbours change nothing."""
    return num_queries >= LONG_QUERY_LEN and num_queries * context >= LONG_PAIRS


def attend_long_rows(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Do paged_attention for the rows that are long."""
    starts = query_start_loc.tolist()
    for row, context in enumerate(seq_lens.tolist()):
        tokens = slice(starts[row], starts[row + 1])
        if is_long(tokens.stop - tokens.start, context):
            blocks = block_table[row, : -(-context // key_cache.shape[2])]
            _attend_long_row(query[tokens], key_cache, value_cache, blocks, context, scale, out[tokens])


def _attend_long_row(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    blocks: torch.Tensor,
    context: int,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Attend one row's queries [Q, H, D], the last Q tokens of the context, over its gathered blocks."""
    num_queries = query.shape[0]
    keys, values = (gather_blocks(cache, blocks)[:, :, :context] for cache in (key_cache, value_cache))
    whole = num_queries == context  # a prompt from its beginning: half of the products can be left out
    mask = None if whole else torch.ones(num_queries, context, dtype=torch.bool).tril_(context - num_queries)
    attended = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None], keys, values, attn_mask=mask, is_causal=whole, scale=scale, enable_gqa=True
    )
    out.copy_(attended[0].transpose(0, 1))


def gather_blocks(cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Copy blocks [..., N] of the cache to [rows, KH, N * block_size, D], one row per leading index."""
    rows = cache[blocks.reshape(-1, blocks.shape[-1]).long()]  # [rows, N, KH, block_size, D]
    return rows.transpose(1, 2).flatten(2, 3)

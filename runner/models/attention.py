"""Attention over the paged key/value cache."""

from typing import Any

import torch
from torch import nn

from kernels.paged_attention import paged_attention
from kernels.rotary_embedding import rotary_embedding
from kernels.store_kv import store_kv
from runner.forward_context import get_forward_context
from runner.models.layers import Linear, RMSNorm
from runner.models.weights import Weights


class Attention(nn.Module):
    """Grouped-query attention. Its slots and block tables come from the forward context, not from arguments."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = arch["num_attention_heads"], arch["num_key_value_heads"]
        self.head_dim, hidden_size = arch["head_dim"], arch["hidden_size"]
        self.scale = self.head_dim**-0.5
        widths = {"q_proj": self.num_heads, "k_proj": self.num_kv_heads, "v_proj": self.num_kv_heads}
        widths = {name: heads * self.head_dim for name, heads in widths.items()}
        self.qkv_proj = Linear(hidden_size, widths, bias=arch["attention_bias"])
        self.o_proj = Linear(widths["q_proj"], {"o_proj": hidden_size}, bias=arch["attention_out_bias"])
        self.q_norm = self.k_norm = None
        if arch["model_type"] == "qwen3":
            self.q_norm = RMSNorm(self.head_dim, arch["rms_norm_eps"])
            self.k_norm = RMSNorm(self.head_dim, arch["rms_norm_eps"])

    def load_weights(self, weights: Weights, prefix: str, cos_sin: torch.Tensor) -> None:
        """Take the projections (and the norms of Qwen3); `cos_sin` is shared by all layers."""
        self.cos_sin = cos_sin
        self.qkv_proj.load_weights(weights, prefix)
        self.o_proj.load_weights(weights, prefix)
        if self.q_norm is not None and self.k_norm is not None:
            self.q_norm.load_weights(weights, f"{prefix}q_norm")
            self.k_norm.load_weights(weights, f"{prefix}k_norm")

    def bind_kv_cache(self, key_cache: torch.Tensor, value_cache: torch.Tensor) -> None:
        """Use this layer's caches, each [num_blocks, num_kv_heads, block_size, head_dim]."""
        self.key_cache, self.value_cache = key_cache, value_cache

    def forward(self, positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """positions [T], hidden [T, hidden_size] -> [T, hidden_size]."""
        num_tokens = hidden.shape[0]
        heads = self.qkv_proj(hidden).view(num_tokens, -1, self.head_dim)
        query, key, value = heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        rotary_embedding(positions, query, key, self.cos_sin)
        metadata = get_forward_context().attn_metadata
        # Every row's keys and values are stored before any row attends: rows may share blocks.
        store_kv(key, value, self.key_cache, self.value_cache, metadata.slot_mapping)
        out = hidden.new_empty(num_tokens, self.num_heads, self.head_dim)
        paged_attention(
            query, self.key_cache, self.value_cache,
            metadata.block_table, metadata.query_start_loc, metadata.seq_lens, self.scale, out,
        )  # fmt: skip
        return self.o_proj(out.view(num_tokens, -1))

"""A model's decoder layers as one compiled call, where their kernels allow it."""

from collections.abc import Sequence

import torch

from kernels.decoder_layers import DecoderLayers, Layer, Product, Shape, fits_layers
from runner.forward_context import get_forward_context
from runner.models.decoder_layer import DecoderLayer
from runner.models.layers import Linear, RMSNorm


class FusedLayers:
    """Runs all layers; like an attention layer, it fetches slots and block tables from the forward context."""

    def __init__(self, compiled: DecoderLayers) -> None:
        self.compiled = compiled

    def forward(self, positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """positions [T], embeddings [T, hidden_size] -> normed hidden states [T, hidden_size]."""
        metadata = get_forward_context().attn_metadata
        return self.compiled.forward(
            hidden, positions, metadata.slot_mapping, metadata.block_table, metadata.query_start_loc, metadata.seq_lens
        )


def fuse(layers: Sequence[DecoderLayer], norm: RMSNorm, intermediate_size: int) -> FusedLayers | None:
    """Return the layers and the norm after them as one; None where they are to be called one by one.

    That is on a GPU, in another dtype than bfloat16, without kernels.tiles, and with Qwen3's norms of queries and keys.
    """
    attention = layers[0].self_attn
    cache = attention.key_cache
    if cache.dtype is not torch.bfloat16 or not cache.is_cpu or attention.q_norm is not None:
        return None
    shape = Shape(
        norm.size, intermediate_size, attention.num_heads, attention.num_kv_heads, attention.head_dim, norm.eps
    )
    parts = [_parts(layer) for layer in layers]
    if not fits_layers(parts, shape):
        return None
    return FusedLayers(DecoderLayers(parts, shape, attention.cos_sin, norm.weight))


def _parts(layer: DecoderLayer) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    products = (attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj)
    return Layer(
        layer.input_layernorm.weight, layer.post_attention_layernorm.weight, attention.key_cache, attention.value_cache,
        *map(_product, products),
    )  # fmt: skip


def _product(linear: Linear) -> Product:
    return Product(linear.packed, linear.int4, linear.bias)

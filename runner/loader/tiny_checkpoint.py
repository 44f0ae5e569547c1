"""Weights of the tiny test model: random, made on the spot, the same on every machine."""

from typing import Any

import numpy as np
import torch

SEED = 20_240_613
SPREAD = 2.0  # of a product's output for inputs of size 1: enough that greedy output varies


class TinyCheckpoint:
    """Random tensors by name, from a fixed seed, in float64: every dtype is cast from the same numbers."""

    source = "tiny"

    def __init__(self, arch: dict[str, Any]) -> None:
        self._tensors = {name: torch.from_numpy(values) for name, values in _draw(arch).items()}

    def names(self) -> set[str]:
        """Return the name of every tensor."""
        return set(self._tensors)

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor, float64."""
        return self._tensors[name]


def _draw(arch: dict[str, Any]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    tensors = {}
    for name, shape in _shapes(arch).items():
        if len(shape) == 1:
            tensors[name] = np.ones(shape)
        else:
            spread = 1.0 if name.startswith("model.embed") else SPREAD / np.sqrt(shape[1])
            tensors[name] = rng.standard_normal(shape) * spread
    return tensors


def _shapes(arch: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return each tensor's shape, in the order in which they are drawn."""
    hidden, inner, vocab = arch["hidden_size"], arch["intermediate_size"], arch["vocab_size"]
    query, kv = (arch[name] * arch["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    layers = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(arch["num_hidden_layers"])
        for name, shape in layer.items()
    }
    outer: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }
    return layers | outer

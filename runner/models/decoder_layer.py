"""One layer of the decoder: attention, then the gated feed-forward network."""

from typing import Any

import torch
from torch import nn

from kernels.silu_and_mul import silu_and_mul
from runner.models.attention import Attention
from runner.models.layers import Linear, RMSNorm
from runner.models.weights import Weights


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)), with gate and up in one product."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, {"gate_proj": intermediate_size, "up_proj": intermediate_size}, bias)
        self.down_proj = Linear(intermediate_size, {"down_proj": hidden_size}, bias)

    def load_weights(self, weights: Weights, prefix: str) -> None:
        self.gate_up_proj.load_weights(weights, prefix)
        self.down_proj.load_weights(weights, prefix)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(silu_and_mul(self.gate_up_proj(x)))


class DecoderLayer(nn.Module):
    """Norm, attention, norm, MLP; the sum that runs past them travels separately, as the residual."""

    def __init__(self, arch: dict[str, Any]) -> None:
        super().__init__()
        hidden_size, eps = arch["hidden_size"], arch["rms_norm_eps"]
        self.input_layernorm = RMSNorm(hidden_size, eps)
        self.self_attn = Attention(arch)
        self.post_attention_layernorm = RMSNorm(hidden_size, eps)
        self.mlp = MLP(hidden_size, arch["intermediate_size"], arch["mlp_bias"])

    def load_weights(self, weights: Weights, prefix: str, cos_sin: torch.Tensor) -> None:
        self.input_layernorm.load_weights(weights, f"{prefix}input_layernorm")
        self.self_attn.load_weights(weights, f"{prefix}self_attn.", cos_sin)
        self.post_attention_layernorm.load_weights(weights, f"{prefix}post_attention_layernorm")
        self.mlp.load_weights(weights, f"{prefix}mlp.")

    def forward(
        self, positions: torch.Tensor, hidden: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden [T, hidden_size]; residual is None before the first layer. Returns the pair for the next layer."""
        if residual is None:
            hidden, residual = self.input_layernorm(hidden), hidden
        else:
            hidden, residual = self.input_layernorm.add_and_norm(hidden, residual)
        hidden = self.self_attn(positions, hidden)
        hidden, residual = self.post_attention_layernorm.add_and_norm(hidden, residual)
        return self.mlp(hidden), residual

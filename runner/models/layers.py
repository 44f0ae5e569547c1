"""The small layers a decoder is made of."""

from collections.abc import Mapping

import torch
from torch import nn

from kernels.linear import linear, prepare_weight
from kernels.rms_norm import fused_add_rms_norm, rms_norm
from runner.models.weights import Weights


class Linear(nn.Module):
    """One or several projections of the same input, stacked into one product: x [n, in] -> [n, sum of outputs]."""

    def __init__(self, in_features: int, outputs: Mapping[str, int], bias: bool) -> None:
        """`outputs` gives each stacked projection's name and width, in order."""
        super().__init__()
        self.in_features, self.outputs, self.has_bias = in_features, dict(outputs), bias
        self.bias: torch.Tensor | None = None

    def load_weights(self, weights: Weights, prefix: str) -> None:
        parts = [weights.take(f"{prefix}{name}.weight", n, self.in_features) for name, n in self.outputs.items()]
        self.packed = prepare_weight(parts[0] if len(parts) == 1 else torch.cat(parts))
        if self.has_bias:
            self.bias = torch.cat([weights.take(f"{prefix}{name}.bias", n) for name, n in self.outputs.items()])

    def tie(self, weight: torch.Tensor) -> None:
        """Use a weight [out, in] that another layer owns."""
        self.packed = prepare_weight(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.packed, self.bias)

    def extra_repr(self) -> str:
        outputs = " + ".join(f"{name} {n}" for name, n in self.outputs.items())
        return f"{self.in_features} -> {outputs}, bias={self.has_bias}"


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, after adding the residual where one is given."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.size, self.eps = size, eps

    def load_weights(self, weights: Weights, prefix: str) -> None:
        self.weight = weights.take(f"{prefix}.weight", self.size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def add_and_norm(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (norm(x + residual), x + residual)."""
        return fused_add_rms_norm(x, residual, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.size}, eps={self.eps}"

"""The small layers a decoder is made of."""

from collections.abc import Mapping

import torch
from torch import nn

from kernels.linear import layout, linear, prepare_weight
from kernels.linear_int4 import MOST_ROWS, Int4Weight, layout_int4, linear_int4
from kernels.rms_norm import fused_add_rms_norm, rms_norm
from runner.models.weights import Weights


class Linear(nn.Module):
    """One or several projections of the same input, stacked into one product: x [n, in] -> [n, sum of outputs].

    Weights that are also there in 4 bits multiply few rows in 4 bits, where reading them is what takes the time.
    """

    def __init__(self, in_features: int, outputs: Mapping[str, int], bias: bool) -> None:
        """`outputs` gives each stacked projection's name and width, in order."""
        super().__init__()
        self.in_features, self.outputs, self.has_bias = in_features, dict(outputs), bias
        self.bias: torch.Tensor | None = None
        self.int4: Int4Weight | None = None

    def load_weights(self, weights: Weights, prefix: str) -> None:
        parts = [weights.take(f"{prefix}{name}.weight", n, self.in_features) for name, n in self.outputs.items()]
        self.packed = prepare_weight(parts[0] if len(parts) == 1 else torch.cat(parts))
        self.int4 = weights.stacked_int4([f"{prefix}{name}.weight" for name in self.outputs])
        if self.has_bias:
            self.bias = torch.cat([weights.take(f"{prefix}{name}.bias", n) for name, n in self.outputs.items()])

    def tie(self, weight: torch.Tensor) -> None:
        """Use a weight [out, in] that another layer owns."""
        self.packed = prepare_weight(weight)

    def forward(
        self, x: torch.Tensor, out_dtype: torch.dtype | None = None, memory: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See kernels.linear."""
        if self.int4 is not None and x.shape[0] <= MOST_ROWS:
            return linear_int4(x, self.int4, self.bias).to(out_dtype or x.dtype)
        return linear(x, self.packed, self.bias, out_dtype, memory)

    def path(self, num_rows: int) -> str:
        """Name how a pass of so many rows is multiplied."""
        return layout_int4(self.int4) if self.int4 is not None and num_rows <= MOST_ROWS else layout(self.packed)

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

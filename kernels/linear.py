"""Products with weights, each weight laid out once at load time for the machine it runs on.

On the CPU, bfloat16 weights take one of three layouts:
- with AMX or AVX512's bfloat16 instructions, where the shape allows: tiles for our own kernel (linear_tiles.py).
- with AVX512's, where it does not: packed by oneDNN. 16 rows by [3072, 576] on two cores: 60 us packed, 125 plain, 355
  in float32. Packing for 1 row was as good or better than for more, from 1 to 512 rows.
- without either: a float32 copy. Plain bfloat16 there is 4 (AVX512) to 10 times (AVX2) slower than float32.
float32 and float64 are exactly torch.nn.functional.linear.
"""

import functools

import torch
from torch.nn import functional

from kernels.linear_tiles import fits_tiles, linear_tiles, pack_tiles
from kernels.tiles import TILES_BY


def prepare_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight [out, in] in the layout that `linear` wants here; the original may be dropped.

    The result is opaque: a tensor that may be of another dtype or layout. It shares memory with weight where nothing is
    gained by a copy.
    """
    weight = weight.detach()
    if not weight.is_cpu or weight.dtype is not torch.bfloat16:
        return weight
    if fits_tiles(*weight.shape):
        return pack_tiles(weight)
    if _packs_bfloat16():
        return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)
    return weight.float()


def linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    memory: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return x @ weight.T + bias, [T, out], in out_dtype (None: x's).

    x: [T, in], packed: from prepare_weight, bias: [out] in x's dtype. memory: out_dtype [T or more, out], which the
    result is put into.
    """
    out_dtype = out_dtype or x.dtype
    if packed.dim() == 5:
        return linear_tiles(x, packed, bias, out_dtype, memory)
    if packed.is_mkldnn:
        product = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")
    else:
        x, bias = x.to(packed.dtype), None if bias is None else bias.to(packed.dtype)
        if memory is not None and bias is None and packed.dtype is out_dtype:
            return torch.mm(x, packed.t(), out=memory[: x.shape[0]])
        product = functional.linear(x, packed, bias)
    return product.to(out_dtype) if memory is None else memory[: x.shape[0]].copy_(product)


def layout(packed: torch.Tensor) -> str:
    """Name the way in which `linear` multiplies by this weight, for the record of a pass."""
    if packed.dim() == 5:
        return f"bfloat16 {TILES_BY}"
    return "bfloat16 oneDNN" if packed.is_mkldnn else str(packed.dtype).removeprefix("torch.")


def linear_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Say what linear means: products and sum in float64, rounded once to x's dtype."""
    product = x.double() @ weight.double().t()
    return (product if bias is None else product + bias.double()).to(x.dtype)


@functools.cache
def _packs_bfloat16() -> bool:
    """Try once whether this torch and this processor can multiply by packed bfloat16 weights, and gain by it."""
    try:
        if not torch.cpu._is_avx512_bf16_supported():
            return False
        packed = torch.ops.mkldnn._reorder_linear_weight(torch.ones(16, 16, dtype=torch.bfloat16), 1)
        product = torch.ops.mkldnn._linear_pointwise(
            torch.ones(2, 16, dtype=torch.bfloat16), packed, None, "none", [], ""
        )
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool((product == 16).all())

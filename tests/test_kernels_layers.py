"""Norms, activation, rotation and products against what they mean."""

import pytest
import torch

from kernels import linear as linear_module
from kernels import linear_int4 as linear_int4_module
from kernels.cpu import PARALLEL_FROM
from kernels.linear import linear, linear_reference, prepare_weight
from kernels.linear_int4 import linear_int4, linear_int4_reference, prepare_int4
from kernels.rms_norm import fused_add_rms_norm, fused_add_rms_norm_reference, rms_norm, rms_norm_reference
from kernels.rotary_embedding import make_cos_sin, rotary_embedding, rotary_embedding_reference
from kernels.silu_and_mul import silu_and_mul, silu_and_mul_reference

# bfloat16: one rounding step apart, where float32 sums differ in their last bit.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float64: 1e-13}
ROWS = [0, 1, 5, PARALLEL_FROM // 96 + 1]


def assert_close(actual, expected):
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rms_norm_and_its_fused_form_equal_the_reference(dtype, num_rows):
    x, residual = (torch.randn(num_rows, 96).to(dtype) * 3 for _ in range(2))
    weight = torch.nn.Parameter(torch.rand(96).to(dtype))
    assert_close(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5).detach())
    before = residual.clone()
    y, total = fused_add_rms_norm(x, residual, weight, 1e-5)
    expected_y, expected_total = fused_add_rms_norm_reference(x, residual, weight, 1e-5)
    assert_close(y, expected_y.detach())
    assert torch.equal(total, expected_total)
    assert torch.equal(residual, before)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_token_gets_the_same_bits_alone_and_among_many(dtype):
    torch.manual_seed(0)
    rows, heads, dim = PARALLEL_FROM // 576 + 1, 9, 64
    positions, cos_sin = torch.randint(2048, (rows,)), make_cos_sin(2048, dim, 1e4)
    x, residual, gate_up = (torch.randn(rows, n).to(dtype) for n in (heads * dim, heads * dim, 2 * heads * dim))
    weight = torch.rand(heads * dim).to(dtype)

    def calculate(which):
        turned = x[which].view(-1, heads, dim).clone()
        rotary_embedding(positions[which], turned[:, 3:], turned[:, :3], cos_sin)
        normed = rms_norm(x[which], weight, 1e-5)
        return (
            turned.flatten(1),
            normed,
            *fused_add_rms_norm(normed, residual[which], weight, 1e-5),
            silu_and_mul(gate_up[which]),
        )

    alone = zip(*[calculate(slice(row, row + 1)) for row in range(rows)], strict=True)
    for among_many, one_by_one in zip(calculate(slice(None)), alone, strict=True):
        assert torch.equal(among_many, torch.cat(one_by_one))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rms_norm_takes_the_heads_of_a_fused_product(dtype):
    fused = torch.randn(7, 100).to(dtype)
    heads = fused[:, 4:68].view(7, 4, 16)
    assert_close(
        rms_norm(heads, torch.ones(16).to(dtype), 1e-6), rms_norm_reference(heads, torch.ones(16).to(dtype), 1e-6)
    )


def test_rms_norm_rounds_before_the_weight_as_hf_llama_does():
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    theirs = LlamaRMSNorm(576, eps=1e-5).to(torch.bfloat16)
    theirs.weight.data = torch.randn(576).bfloat16()
    x = torch.randn(40, 576).bfloat16()
    same = rms_norm(x, theirs.weight, 1e-5) == theirs(x)
    assert same.float().mean() > 0.999


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_silu_and_mul_equals_the_reference_also_far_from_zero(dtype, num_rows):
    gate_up = torch.randn(num_rows, 192).to(dtype) * 8
    gate_up[:1, :4] = torch.tensor([-120.0, 120.0, -88.0, 0.0])
    assert_close(silu_and_mul(gate_up), silu_and_mul_reference(gate_up))


def test_nan_stays_nan_for_its_own_row():
    for dtype in TOLERANCE:
        x = torch.randn(3, 32).to(dtype)
        x[1, 5] = torch.nan
        for result in (silu_and_mul(x), rms_norm(x, x[0], 1e-5), fused_add_rms_norm(x, x, x[0], 1e-5)[0]):
            assert result.isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rotation_in_place_equals_the_reference(dtype, num_rows):
    fused = torch.randn(num_rows, (6 + 2 + 2) * 16).to(dtype)
    expected = fused.clone()
    positions, table = torch.randint(0, 500, (num_rows,)), make_cos_sin(500, 16, 10000.0)
    for version, x in ((rotary_embedding, fused), (rotary_embedding_reference, expected)):
        version(positions, x[:, :96].view(-1, 6, 16), x[:, 96:128].view(-1, 2, 16), table)
    assert_close(fused, expected)


def test_rotation_equals_hf_llama_in_float32():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, rope_parameters={"rope_theta": 1e5, "rope_type": "default"}
    )
    positions = torch.randint(0, 2000, (9,))
    query, key = torch.randn(9, 4, 16), torch.randn(9, 2, 16)
    cos, sin = LlamaRotaryEmbedding(config)(query, positions[None])
    expected = apply_rotary_pos_emb(query.transpose(0, 1)[None], key.transpose(0, 1)[None], cos, sin)
    rotary_embedding(positions, query, key, make_cos_sin(2048, 16, 1e5))
    for ours, theirs in zip((query, key), expected, strict=True):
        torch.testing.assert_close(ours, theirs[0].transpose(0, 1), atol=2e-6, rtol=1e-5)


def test_rotation_refuses_heads_that_are_not_dense():
    query = torch.randn(3, 16, 4).transpose(1, 2)
    with pytest.raises(ValueError, match="dense"):
        rotary_embedding(torch.arange(3), query, torch.randn(3, 1, 16), make_cos_sin(8, 16, 1e4))


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("num_rows", [0, 1, 16, 70])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_linear_equals_the_reference_in_every_layout(dtype, num_rows, packs, monkeypatch):
    if not packs:
        monkeypatch.setattr(linear_module, "_packs_bfloat16", lambda: False)
    x, weight = torch.randn(num_rows, 48).to(dtype), torch.randn(80, 48).to(dtype)
    packed = prepare_weight(torch.nn.Parameter(weight))
    for bias in (None, torch.randn(80).to(dtype)):
        result = linear(x, packed, bias)
        assert result.dtype is dtype
        tolerance = max(TOLERANCE[dtype], 1e-5 if dtype is torch.float32 else 0)
        torch.testing.assert_close(result, linear_reference(x, weight, bias), atol=2 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("num_rows", [0, 1, 16, 17, 40, 70])
def test_linear_in_tiles_equals_the_reference(num_rows):
    x, weight = torch.randn(num_rows, 128)[:, :64].bfloat16(), torch.randn(96, 64).bfloat16()
    for bias in (None, torch.randn(96).bfloat16()):
        result = linear(x, prepare_weight(weight), bias)
        torch.testing.assert_close(result, linear_reference(x, weight, bias), atol=3.2e-2, rtol=1.6e-2)


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("num_rows", [0, 1, 12, 17])
def test_linear_in_4_bits_equals_the_reference(num_rows, tiled, monkeypatch):
    if not tiled:
        monkeypatch.setattr(linear_int4_module, "fits_tiles", lambda *shape: False)
    x, q = torch.randn(num_rows, 320).bfloat16(), torch.randint(0, 16, (96, 320), dtype=torch.uint8)
    scale, minimum = torch.rand(96, 10).half() / 8, torch.randn(96, 10).half() / 4
    for bias in (None, torch.randn(96).bfloat16()):
        result = linear_int4(x, prepare_int4(q, scale, minimum), bias)
        expected = linear_int4_reference(x, q, scale, minimum, bias)
        tolerance = 2e-2 if tiled else 1e-1  # torch rounds the scales to bfloat16
        torch.testing.assert_close(result, expected, atol=4 * tolerance, rtol=tolerance)


def test_linear_in_float32_is_exactly_torch():
    x, weight = torch.randn(5, 48), torch.randn(80, 48)
    assert torch.equal(linear(x, prepare_weight(weight)), torch.nn.functional.linear(x, weight))

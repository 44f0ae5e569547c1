"""All layers in one call give what the layers give one by one, bit for bit."""

import pytest
import torch
from helpers import paged_driver
from helpers.paged_driver import PagedDriver

from engine.config import ModelConfig
from engine.model_source import resolve
from kernels.linear_int4 import BLOCK, MOST_ROWS
from kernels.tiles import has_tiles
from runner.loader.tiny_checkpoint import TinyCheckpoint
from runner.models.llama import LlamaForCausalLM
from runner.models.weights import Weights

SIZES = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 32,
}  # fmt: skip
LENGTHS = [220, 40, 5, 45, 20]
PASSES = [
    [(0, 100)],  # one prompt
    [(1, 38), (0, 112), (2, 1)],
    [(3, 25), (0, 1), (4, 14)],
    [(0, 1)],
    *[[(4, 1), (1, 1), (0, 1), (3, 1)]] * 2,
]


class Tensors:
    """A checkpoint of tensors that are there already."""

    source = "a test"

    def __init__(self, tensors):
        self.tensors = tensors

    def names(self):
        return set(self.tensors)

    def read(self, name):
        return self.tensors[name]


def biased(checkpoint):
    tensors = {name: checkpoint.read(name) for name in checkpoint.names()}
    for name in [name for name in sorted(tensors) if name.endswith(tuple(f"{x}_proj.weight" for x in "qkv"))]:
        tensors[name.replace("weight", "bias")] = torch.randn(len(tensors[name]), dtype=torch.float64)
    return Tensors(tensors)


def in_4_bits(checkpoint):
    """The MLP's weights at random, the others not in 4 bits: a file may mix them."""
    tensors = {}
    for name in [name for name in sorted(checkpoint.names()) if ".mlp." in name]:
        out, width = checkpoint.read(name).shape
        tensors[f"{name}.q"] = torch.randint(256, (out, width // 2), dtype=torch.uint8)
        tensors[f"{name}.scale"] = torch.rand(out, width // BLOCK).half() / 8
        tensors[f"{name}.minimum"] = -torch.rand(out, width // BLOCK).half()
    return Tensors(tensors)


def driver(monkeypatch, with_int4, **changes):
    monkeypatch.setattr(paged_driver, "BLOCK_SIZE", 16)
    arch = resolve(ModelConfig(model="tiny", dtype="bfloat16")).hf_config | SIZES
    arch = arch | {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False} | changes
    torch.manual_seed(0)
    plain = TinyCheckpoint(arch)
    int4 = in_4_bits(plain) if with_int4 else None
    model = LlamaForCausalLM(arch, torch.bfloat16)
    model.load_weights(Weights(biased(plain), torch.bfloat16, torch.device("cpu"), int4))
    generator = torch.Generator().manual_seed(1)
    return PagedDriver(model, [torch.randint(arch["vocab_size"], (n,), generator=generator).tolist() for n in LENGTHS])


@pytest.mark.skipif(not has_tiles(), reason="this processor has neither AMX nor AVX512's bfloat16")
@pytest.mark.parametrize("with_int4", [False, True])
def test_one_call_and_layer_by_layer_give_the_same_bits(with_int4, monkeypatch):
    fused, one_by_one = (driver(monkeypatch, with_int4) for _ in range(2))
    one_by_one.model.fused = None
    assert fused.model.fused is not None
    for scheduled in PASSES:
        logits = fused.run(scheduled)
        assert logits.isfinite().all()
        assert torch.equal(logits, one_by_one.run(scheduled))
    layers, passes = SIZES["num_hidden_layers"], len(PASSES)
    small = sum(sum(count for _, count in scheduled) <= MOST_ROWS for scheduled in PASSES) if with_int4 else 0
    assert bool(small) == with_int4
    norm, *others = fused.model.fused.compiled.times()
    assert norm[:2] == ("fused_add_rms_norm", 2 * layers * passes)
    assert [calls for name, calls, _ in others if name == "silu_and_mul"] == ([layers * small] if small else [])
    assert [calls for name, calls, _ in others if name.endswith(", silu_and_mul")] == [layers * (passes - small)]
    assert sum(calls for _, calls, _ in others) == layers * (6 * passes + small)
    assert all(ns > 0 for _, _, ns in others)
    fused.model.fused.compiled.reset_clock()
    assert fused.model.fused.compiled.times() == []


def test_what_the_tiles_cannot_take_goes_layer_by_layer(monkeypatch):
    narrow = driver(monkeypatch, False, head_dim=16)
    assert narrow.model.fused is None
    assert narrow.run(PASSES[0]).isfinite().all()

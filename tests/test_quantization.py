"""--quantization gguf: few rows are multiplied by the file's own 4-bit blocks, many by bfloat16; the record says so."""

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from helpers.gguf_files import write_gguf
from helpers.paged_driver import PagedDriver
from helpers.tiny_engine import Engine

from engine.config import ConfigError, EngineConfig, ModelConfig
from engine.model_source import resolve
from kernels.linear_int4 import MOST_ROWS
from runner.loader import load_model
from runner.loader.gguf_blocks import read_blocks
from runner.loader.tiny_checkpoint import TinyCheckpoint

CPU = torch.device("cpu")
SEQUENCE = [[5, 300, 17, 250, 42, 7, 199, 3, 300, 12, 88, 131, 9, 250, 41, 77]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gguf")


def file_of(folder, kind):
    path = folder / f"{kind}.gguf"
    if not path.exists():
        checkpoint = TinyCheckpoint(resolve(ModelConfig(model="tiny")).hf_config)
        tensors = {name: checkpoint.read(name).float().contiguous() for name in checkpoint.names()}
        write_gguf(path, tensors, GGMLQuantizationType[kind])
    return path


def logits(path, lengths, **settings):
    config = resolve(ModelConfig(model=str(path), download_dir=str(path.parent), **settings))
    driver = PagedDriver(load_model(config, CPU), SEQUENCE)
    return torch.cat([driver.run([(0, length)]) for length in lengths])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_blocks_read_from_a_file_are_the_numbers_that_it_holds(kind):
    kind = GGMLQuantizationType[kind]
    data = quantize(torch.randn(6, 96).numpy(), kind)
    pairs, scale, minimum = read_blocks(data, kind)
    q = torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(1)
    wide_scale, wide_minimum = (x.float().repeat_interleave(32, dim=1) for x in (scale, minimum))
    torch.testing.assert_close(q * wide_scale + wide_minimum, torch.from_numpy(dequantize(data, kind)))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_4_bit_logits_are_as_near_to_float32_as_bfloat16s(folder, kind):
    path, one_by_one = file_of(folder, kind), [1] * len(SEQUENCE[0])
    exact = logits(path, one_by_one, dtype="float32")
    error = (logits(path, one_by_one, quantization="gguf").float() - exact).square().mean()
    assert error < 1.1 * (logits(path, one_by_one).float() - exact).square().mean()


def test_many_rows_take_the_bfloat16_path_to_the_bit(folder):
    path, at_once = file_of(folder, "Q4_1"), [MOST_ROWS + 1]
    assert torch.equal(logits(path, at_once, quantization="gguf"), logits(path, at_once))


def test_the_record_of_a_pass_names_its_path(folder):
    settings = {"model": str(file_of(folder, "Q4_1")), "download_dir": str(folder), "dtype": "bfloat16"}
    engine = Engine(**settings, quantization="gguf")
    engine.add("a", SEQUENCE[0], max_tokens=2)
    engine.run(2)
    assert engine.facts("forward", 0)["path"].startswith("bfloat16")
    assert engine.facts("forward", 1)["path"].startswith("4-bit")


def test_what_cannot_be_run_in_4_bits_is_refused(folder):
    with pytest.raises(ConfigError, match="calculates in bfloat16, not float32"):
        EngineConfig.make(model="tiny", quantization="gguf", dtype="float32")
    with pytest.raises(ConfigError, match="quantization 'awq' is unknown"):
        EngineConfig.make(model="tiny", quantization="awq")
    with pytest.raises(ConfigError, match="tiny is no GGUF file"):
        resolve(ModelConfig(model="tiny", quantization="gguf"))
    with pytest.raises(ConfigError, match="holds no Q4_0 or Q4_1 weights"):
        logits(file_of(folder, "Q8_0"), [1], quantization="gguf")

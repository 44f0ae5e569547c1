"""Read a config.json (or the same facts from elsewhere) into the names we use, refusing what we don't implement."""

from typing import Any

from engine.config import ConfigError

MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
REQUIRED_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
ROPE_THETA = 10000.0  # what the four architectures mean when config.json is silent
RMS_NORM_EPS = 1e-6
MISTRAL_SLIDING_WINDOW = 4096


def normalize(raw: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the settings the model needs, by their config.json names, each present and checked.

    `eos_token_id` is the first end token (or None), `eos_token_ids` is the list of all of them. Raises ConfigError
    naming `source` for a missing or wrong setting and for an architecture or feature that is not implemented.
    """
    architecture = _architecture(raw, source)
    _refuse_unimplemented(raw, architecture, source)
    sizes = {name: _size(raw, name, source) for name in REQUIRED_SIZES}
    heads = sizes["num_attention_heads"]
    kv_heads = _size(raw, "num_key_value_heads", source, default=heads)
    if heads % kv_heads:
        raise ConfigError(f"{source}: {heads} attention heads are no multiple of {kv_heads} key/value heads")
    head_dim = _size(raw, "head_dim", source, default=sizes["hidden_size"] // heads)
    if head_dim % 2:
        raise ConfigError(f"{source}: head_dim {head_dim} is odd, and rotary embedding needs pairs")
    ends = raw.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return {
        "architectures": [architecture],
        "model_type": MODEL_TYPES[architecture],
        **sizes,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "rms_norm_eps": float(raw.get("rms_norm_eps", RMS_NORM_EPS)),
        "rope_theta": float(_rope(raw).get("rope_theta") or raw.get("rope_theta") or ROPE_THETA),
        "tie_word_embeddings": bool(raw.get("tie_word_embeddings", False)),
        "attention_bias": architecture == "Qwen2ForCausalLM" or bool(raw.get("attention_bias", False)),
        "attention_out_bias": architecture != "Qwen2ForCausalLM" and bool(raw.get("attention_bias", False)),
        "mlp_bias": bool(raw.get("mlp_bias", False)),
        "bos_token_id": raw.get("bos_token_id"),
        "eos_token_id": ends[0] if ends else None,
        "eos_token_ids": ends,
        "torch_dtype": raw.get("torch_dtype") or raw.get("dtype"),
    }


def _architecture(raw: dict[str, Any], source: str) -> str:
    by_type = {model_type: name for name, model_type in MODEL_TYPES.items()}
    named = raw.get("architectures") or [by_type.get(str(raw.get("model_type")), raw.get("model_type"))]
    if named[0] not in MODEL_TYPES:
        raise ConfigError(f"{source}: architecture {named[0]} is not implemented: use one of {', '.join(MODEL_TYPES)}")
    return str(named[0])


def _refuse_unimplemented(raw: dict[str, Any], architecture: str, source: str) -> None:
    """Raise ConfigError for the first feature that would make our output wrong."""
    rope = _rope(raw)
    kind = rope.get("rope_type", rope.get("type", "default"))
    rotary = rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0))
    quantization = raw.get("quantization_config") or {}
    refusals = {
        f"RoPE scaling ({kind})": kind not in ("default", "none", None),
        "RoPE settings that differ by layer": any(isinstance(value, dict) for value in rope.values()),
        f"rotary embedding of a part of the head (factor {rotary})": rotary not in (None, 1, 1.0),
        "sliding-window attention": _slides(raw, architecture),
        "mixture of experts": any(raw.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")),
        f"quantization ({quantization.get('quant_method', 'unknown')})": bool(raw.get("quantization_config")),
        f"activation {raw.get('hidden_act')}": raw.get("hidden_act", "silu") not in ("silu", "swish"),
    }
    for feature, present in refusals.items():
        if present:
            raise ConfigError(f"{source}: {feature} is not implemented: choose a model without it")


def _rope(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the rope settings wherever they are: `rope_parameters` since transformers 5, `rope_scaling` before."""
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def _slides(raw: dict[str, Any], architecture: str) -> bool:
    """Tell whether any layer's attention looks back over less than the model length."""
    if any(kind != "full_attention" for kind in raw.get("layer_types") or ()):
        return True
    if architecture.startswith("Qwen"):
        return bool(raw.get("use_sliding_window", False))
    default = MISTRAL_SLIDING_WINDOW if architecture == "MistralForCausalLM" else None
    window = raw.get("sliding_window", default)
    return window is not None and window < raw.get("max_position_embeddings", 0)


def _size(raw: dict[str, Any], name: str, source: str, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise ConfigError(f"{source}: {name} must be a positive whole number, found {value!r}")
    return value

"""The least that a decode pass can take: its weights and KV read once, or its arithmetic, whichever is longer."""

from typing import Any, NamedTuple

from gguf import GGUFReader

from engine.config import ModelConfig
from engine.model_source import resolve

BYTES = {"bfloat16": 2, "float32": 4}


class Floor(NamedTuple):
    """Seconds that one pass takes at least, for its bytes at the machine's bandwidth and for its operations."""

    memory_s: float
    arithmetic_s: float

    @property
    def bound_by(self) -> str:
        return "memory" if self.memory_s >= self.arithmetic_s else "arithmetic"

    def tokens_per_second(self, rows: int) -> float:
        """Return the decode rate that this allows."""
        return rows / max(self)


def num_weights(arch: dict[str, Any]) -> int:
    """Return how many weights a token is multiplied by: all layers' and the head's, without the embedding's rows."""
    hidden, heads, kv_heads = arch["hidden_size"], arch["num_attention_heads"], arch["num_key_value_heads"]
    attention = hidden * arch["head_dim"] * (2 * heads + 2 * kv_heads)
    return (
        arch["num_hidden_layers"] * (attention + 3 * hidden * arch["intermediate_size"]) + hidden * arch["vocab_size"]
    )


def weight_bytes(model: ModelConfig, variant: str) -> int:
    """Return the bytes of those weights as a variant of ours stores them; `model` is resolved."""
    if variant == "gguf":
        assert model.path is not None
        return sum(int(tensor.n_bytes) for tensor in GGUFReader(model.path).tensors)
    return num_weights(model.hf_config) * BYTES[variant]


def decode_floor(model: str, variant: str, rows: int, context: float, limits: dict[str, float]) -> Floor:
    """Return the floor of a pass in which `rows` rows, `context` tokens each, decode one token.

    The KV cache counts two bytes an element, four for float32; `limits` are machine.limits().
    """
    resolved = resolve(ModelConfig(model=model))
    arch = resolved.hf_config
    elements = 2 * arch["num_hidden_layers"] * arch["num_key_value_heads"] * arch["head_dim"] * rows * context
    attention = 4 * arch["num_hidden_layers"] * arch["num_attention_heads"] * arch["head_dim"] * rows * context
    read = weight_bytes(resolved, variant) + elements * BYTES.get(variant, 2)
    operations = 2 * num_weights(arch) * rows + attention
    return Floor(read / limits["bytes_per_second"], operations / limits["flops_per_second"])

"""Weights from a GGUF file: dequantized, renamed and laid out as Hugging Face does."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from engine.config import ConfigError
from runner.loader.gguf_blocks import Int4Parts, has_blocks, read_blocks

OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TENSOR_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


class GGUFWeights:
    """The tensors of a GGUF file, in file order."""

    def __init__(self, path: Path, arch: dict[str, Any]) -> None:
        """Map the file. Raises ConfigError when it is damaged or holds a tensor that has no place in the model."""
        self.path, self.arch = path, arch
        try:
            reader = GGUFReader(path)
        except (ValueError, IndexError, OSError) as error:
            raise ConfigError(f"{path} is not a whole GGUF file ({error}): fetch it again") from error
        self._tensors = {self._rename(tensor.name): tensor for tensor in reader.tensors}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return each tensor's shape by its Hugging Face name. GGUF writes the fastest dimension first."""
        return {name: tuple(int(n) for n in reversed(tensor.shape)) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor, dequantized to float32. Raises ConfigError for a kind that can't be dequantized."""
        tensor = self._tensors[name]
        try:
            values = torch.from_numpy(np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, "W"))
        except (NotImplementedError, ValueError) as error:
            raise ConfigError(
                f"{self.path}: cannot dequantize tensor {tensor.name} ({tensor.tensor_type.name}): {error}"
            ) from error
        heads = self._permuted_heads(name)
        return values if heads is None else unpermute(values, heads)

    def int4_names(self) -> list[str]:
        """Return the names of the tensors that read_int4 can read."""
        return [name for name, tensor in self._tensors.items() if has_blocks(tensor.tensor_type)]

    def read_int4(self, name: str) -> Int4Parts:
        """Return one tensor's 4-bit numbers as they are, two in a byte, with each block's scale and minimum."""
        tensor, heads = self._tensors[name], self._permuted_heads(name)
        q, scale, minimum = read_blocks(tensor.data, tensor.tensor_type)
        if heads is None:
            return q, scale, minimum
        return unpermute(q, heads), unpermute(scale, heads), unpermute(minimum, heads)

    def _rename(self, name: str) -> str:
        match = TENSOR_NAME.fullmatch(name)
        layer, part, kind = match.groups() if match else (None, "", "")
        renamed = (OUTER_NAMES if layer is None else LAYER_NAMES).get(part)
        if renamed is None:
            raise ConfigError(f"{self.path}: tensor {name} has no place in a {self.arch['model_type']} model")
        return f"{renamed}.{kind}" if layer is None else f"model.layers.{layer}.{renamed}.{kind}"

    def _permuted_heads(self, name: str) -> int | None:
        """Return the number of heads whose rows llama.cpp's converter reordered, None where it left them alone."""
        if self.arch["model_type"] not in ("llama", "mistral"):
            return None
        if ".q_proj." in name:
            return self.arch["num_attention_heads"]
        return self.arch["num_key_value_heads"] if ".k_proj." in name else None


def unpermute(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order, in which rotary pairs are neighbours; we rotate the first half with the second.

    rows [heads * head_dim, ...] -> the same shape.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, head_dim / 2, 2, ...]
    return pairs.transpose(1, 2).reshape(rows.shape)

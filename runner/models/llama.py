"""The Llama family: Llama, Mistral (without sliding windows), Qwen2 and Qwen3."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from kernels.rotary_embedding import make_cos_sin
from runner.models.decoder_layer import DecoderLayer
from runner.models.fused_layers import FusedLayers, fuse
from runner.models.layers import Linear, RMSNorm
from runner.models.weights import Weights


class LlamaForCausalLM(nn.Module):
    """A decoder whose attention layers read slots and block tables from the forward context."""

    def __init__(self, arch: dict[str, Any], dtype: torch.dtype) -> None:
        """`arch` is ModelConfig.hf_config. Call load_weights and bind_kv_cache before the first pass."""
        super().__init__()
        self.config, self.dtype = arch, dtype
        self.num_layers, self.num_kv_heads = arch["num_hidden_layers"], arch["num_key_value_heads"]
        self.head_dim, self.vocab_size = arch["head_dim"], arch["vocab_size"]
        self.layers = nn.ModuleList(DecoderLayer(arch) for _ in range(self.num_layers))
        self.norm = RMSNorm(arch["hidden_size"], arch["rms_norm_eps"])
        self.lm_head = Linear(arch["hidden_size"], {"lm_head": self.vocab_size}, bias=False)
        self.fused: FusedLayers | None = None

    def load_weights(self, weights: Weights) -> None:
        """Take every tensor under its Hugging Face name. Raises ConfigError for one missing, misshapen or unknown."""
        arch = self.config
        self.embed_tokens = weights.take("model.embed_tokens.weight", self.vocab_size, arch["hidden_size"])
        cos_sin = make_cos_sin(arch["max_position_embeddings"], self.head_dim, arch["rope_theta"])
        cos_sin = cos_sin.to(weights.device)
        for index, layer in enumerate(self._decoder_layers()):
            layer.load_weights(weights, f"model.layers.{index}.", cos_sin)
        self.norm.load_weights(weights, "model.norm")
        if arch["tie_word_embeddings"]:
            self.lm_head.tie(self.embed_tokens)
            weights.drop("lm_head.weight")
        else:
            self.lm_head.load_weights(weights, "")
        weights.finish()

    def bind_kv_cache(self, caches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Give each layer its (key, value) cache, each [num_blocks, num_kv_heads, block_size, head_dim]."""
        for layer, (key_cache, value_cache) in zip(self._decoder_layers(), caches, strict=True):
            layer.self_attn.bind_kv_cache(key_cache, value_cache)
        self.fused = fuse(list(self._decoder_layers()), self.norm, self.config["intermediate_size"])

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, intermediate_tensors: Any = None
    ) -> torch.Tensor:
        """input_ids [T] (int32 or int64), positions [T] int64 -> hidden states [T, hidden_size] in the model's dtype.

        Raises NotImplementedError when given `intermediate_tensors`, which an earlier pipeline stage would send.
        """
        if intermediate_tensors is not None:
            raise NotImplementedError("pipeline stages are not available yet: use pipeline_parallel_size 1")
        hidden = functional.embedding(input_ids, self.embed_tokens)
        if self.fused is not None:
            return self.fused.forward(positions, hidden)
        residual: torch.Tensor | None = None
        for layer in self.layers:
            hidden, residual = layer(positions, hidden, residual)
        assert residual is not None
        hidden, _ = self.norm.add_and_norm(hidden, residual)
        return hidden

    def compute_logits(self, hidden: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        """Project hidden states [n, hidden_size] to scores [n, vocab_size] in float32.

        memory: float32 [n or more, vocab_size], which they are put into where the product can be written there.
        """
        return self.lm_head(hidden, torch.float32, memory)

    def path(self, num_tokens: int) -> str:
        """Name how the products of a pass of so many tokens are calculated."""
        layer = next(iter(self._decoder_layers()))
        return layer.mlp.gate_up_proj.path(num_tokens)

    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast("Iterable[DecoderLayer]", self.layers)

"""Choose where the weights come from, and load them."""

from pathlib import Path

import torch

from engine.config import ModelConfig
from runner.loader.converted import convert_gguf
from runner.loader.safetensors_checkpoint import SafetensorsCheckpoint
from runner.loader.tiny_checkpoint import TinyCheckpoint
from runner.models import LlamaForCausalLM
from runner.models.weights import Checkpoint, Weights

DTYPES = {
    "auto": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def load_model(model_config: ModelConfig, device: torch.device) -> LlamaForCausalLM:
    """Return the model of a config that engine.model_source.resolve has filled in, its weights on `device`.

    Raises ConfigError when a file is damaged, a tensor is missing, misshapen or unknown, or the cache can't be written.
    """
    dtype = DTYPES[model_config.dtype]
    model = LlamaForCausalLM(model_config.hf_config, dtype)
    model.load_weights(Weights(_open_checkpoint(model_config, dtype), dtype, device))
    return model


def _open_checkpoint(model_config: ModelConfig, dtype: torch.dtype) -> Checkpoint:
    if model_config.path is None:
        return TinyCheckpoint(model_config.hf_config)
    path = Path(model_config.path)
    if path.is_dir():
        return SafetensorsCheckpoint.of_folder(path)
    return convert_gguf(path, model_config.hf_config, dtype, Path(model_config.download_dir or path.parent))

"""Choose where the weights come from, and load them."""

from pathlib import Path

import torch

from engine.config import ConfigError, ModelConfig
from runner.loader.converted import convert_gguf, convert_int4
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
    int4 = _open_int4(model_config, device) if model_config.quantization == "gguf" else None
    model.load_weights(Weights(_open_checkpoint(model_config, dtype), dtype, device, int4))
    return model


def _open_int4(model_config: ModelConfig, device: torch.device) -> Checkpoint:
    """Return the 4-bit weights of a GGUF file. Raises ConfigError where it has none, or no kernel could use them."""
    if device.type != "cpu":
        raise ConfigError(f"quantization gguf runs on the CPU, not on {device.type}: leave it out")
    path = Path(model_config.path or "")
    checkpoint = convert_int4(path, model_config.hf_config, Path(model_config.download_dir or path.parent))
    if not checkpoint.names():
        raise ConfigError(f"{path} holds no Q4_0 or Q4_1 weights to run as they are: leave out --quantization")
    return checkpoint


def _open_checkpoint(model_config: ModelConfig, dtype: torch.dtype) -> Checkpoint:
    if model_config.path is None:
        return TinyCheckpoint(model_config.hf_config)
    path = Path(model_config.path)
    if path.is_dir():
        return SafetensorsCheckpoint.of_folder(path)
    return convert_gguf(path, model_config.hf_config, dtype, Path(model_config.download_dir or path.parent))

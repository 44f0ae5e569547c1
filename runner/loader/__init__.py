"""Turn a resolved ModelConfig into a model with its weights."""

from runner.loader.load import load_model

__all__ = ["load_model"]

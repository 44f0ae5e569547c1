"""The models we run. Llama, Mistral, Qwen2 and Qwen3 differ by a few settings, so one class serves them all."""

from runner.models.llama import LlamaForCausalLM

__all__ = ["LlamaForCausalLM"]

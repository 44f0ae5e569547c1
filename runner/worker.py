"""The worker: one device's process-side object. The executor calls its methods by name."""

from typing import Any

import torch

from engine.config import ConfigError, EngineConfig
from engine.outputs import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from kernels.warmup import warmup
from runner.gpu_model_runner import GPUModelRunner
from runner.kernel_profile import KernelProfile
from runner.loader import load_model
from tracer.recorder import Mark, Recorder


class Worker:
    """Owns the device, the KV cache and the model runner. Startup calls come in the order of the methods here."""

    def __init__(self, config: EngineConfig, rank: int = 0) -> None:
        self.config = config
        self.rank = rank
        self.trace = Recorder() if config.trace_config.trace else None

    def init_device(self) -> None:
        """Choose the GPU where there is one, else the CPU."""
        self.device = torch.device("cuda", self.rank) if torch.cuda.is_available() else torch.device("cpu")
        self.kernel_profile = KernelProfile(self.device)

    def load_model(self) -> None:
        """Load the weights. Raises ConfigError for a model that cannot be loaded."""
        self.model = load_model(self.config.model_config, self.device)
        self.model_runner = GPUModelRunner(self.config, self.model, self.device, self.trace)

    def determine_num_gpu_blocks(self) -> int:
        """Return how many KV blocks to make, the null block included: the override, or what the memory setting holds.

        Raises ConfigError where not even one request of one block would fit.
        """
        cache = self.config.cache_config
        if cache.num_gpu_blocks_override is not None:
            return cache.num_gpu_blocks_override
        num_blocks = cache.kv_cache_memory_bytes // self._block_bytes()
        if num_blocks < 2:
            raise ConfigError(
                f"kv_cache_memory_bytes ({cache.kv_cache_memory_bytes}) holds {num_blocks} blocks of "
                f"{self._block_bytes()} bytes: give at least {2 * self._block_bytes()}"
            )
        return num_blocks

    def initialize_cache(self, num_gpu_blocks: int) -> None:
        """Allocate the KV cache, [num_blocks, num_kv_heads, block_size, head_dim] twice a layer, and warm up."""
        model = self.model
        shape = (num_gpu_blocks, model.num_kv_heads, self.config.cache_config.block_size, model.head_dim)

        def cache() -> torch.Tensor:
            return torch.zeros(shape, dtype=model.dtype, device=self.device)

        try:
            model.bind_kv_cache([(cache(), cache()) for _ in range(model.num_layers)])
        except RuntimeError as error:  # torch's out-of-memory errors derive from it
            needed = num_gpu_blocks * self._block_bytes()
            raise ConfigError(
                f"the KV cache of {num_gpu_blocks} blocks ({needed} bytes) does not fit into memory: "
                f"lower kv_cache_memory_bytes or num_gpu_blocks_override ({error})"
            ) from error
        warmup(model.dtype, self.device)
        self.model_runner.warm_up()

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | torch.Tensor | None:
        """One pass up to the parked logits."""
        return self.model_runner.execute_model(scheduler_output)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput | None:
        """The parked pass's tokens."""
        return self.model_runner.sample_tokens(grammar_output)

    def take_trace(self) -> list[Mark]:
        """Hand over the phases marked since the last call; tracer.recorder.describe makes their records."""
        return self.trace.take() if self.trace else []

    def profile(self, is_start: bool) -> list[dict[str, Any]]:
        """Start to time kernels, or stop and return what KernelProfile.stop does."""
        if is_start:
            self.kernel_profile.start(self.model.fused.compiled if self.model.fused else None)
            return []
        return self.kernel_profile.stop()

    def batch_state(self) -> list[dict[str, Any] | None]:
        """Return the batch's rows as plain values, to be compared with what the trace says."""
        return self.model_runner.input_batch.state()

    def shutdown(self) -> None:
        """Let go of the model and the cache."""
        for name in ("model_runner", "model"):
            if hasattr(self, name):
                delattr(self, name)

    def _block_bytes(self) -> int:
        model = self.model
        per_token = 2 * model.num_layers * model.num_kv_heads * model.head_dim * model.dtype.itemsize
        return per_token * self.config.cache_config.block_size

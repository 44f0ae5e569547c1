"""The engine's configuration, in the parts and under the names that vLLM uses."""

from typing import Any

import msgspec

GiB = 1 << 30
DTYPES = ("auto", "bfloat16", "float32", "float64")
QUANTIZATIONS = ("gguf",)
POLICIES = ("fcfs", "priority")


class ConfigError(ValueError):
    """A setting that cannot work. The message says what to change."""


class ModelConfig(msgspec.Struct):
    model: str = "smollm2"  # "smollm2", "tiny", a local folder, a .gguf file or a hub id
    served_model_name: str | None = None
    dtype: str = "auto"  # auto: bfloat16
    quantization: str | None = None  # "gguf": few rows are multiplied by the file's own 4-bit blocks; None: by dtype's
    max_model_len: int | None = None  # None: what the model was trained for
    seed: int = 0
    max_logprobs: int = 20  # the most that a request may ask for; -1: the whole vocabulary
    logits_processors: list[Any] = []  # qualified names or classes, beside the built-in ones
    download_dir: str | None = None  # where models are fetched and converted to; None: the cache folder
    # Filled in by engine.model_source.resolve, before the engine starts.
    path: str | None = None  # the local folder or .gguf file; None for "tiny"
    hf_config: dict[str, Any] = {}  # the model's config.json, or the same names made from GGUF metadata


class CacheConfig(msgspec.Struct):
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int = GiB // 2
    enable_prefix_caching: bool = True
    num_gpu_blocks: int | None = None  # filled in when the engine starts; counts the null block 0


class SchedulerConfig(msgspec.Struct):
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    scheduler_cls: Any = "engine.scheduler.Scheduler"
    reorder_batch_threshold: int | None = None


class ParallelConfig(msgspec.Struct):
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    distributed_executor_backend: Any = None  # a name, a qualified name or an Executor class
    worker_cls: Any = "runner.worker.Worker"  # a qualified name or a class

    @property
    def world_size(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def __post_init__(self) -> None:
        if self.distributed_executor_backend is None:
            self.distributed_executor_backend = "uni" if self.world_size == 1 else "mp"


class TraceConfig(msgspec.Struct):
    trace: bool = True
    check: bool = False  # after every pass, compare the folded trace with the batch


class EngineConfig(msgspec.Struct):
    """All parts. `EngineConfig.make(max_num_seqs=8, ...)` takes the fields of every part by name."""

    model_config: ModelConfig
    cache_config: CacheConfig
    scheduler_config: SchedulerConfig
    parallel_config: ParallelConfig
    trace_config: TraceConfig

    @classmethod
    def make(cls, **flags: Any) -> "EngineConfig":
        """Build and validate. Raises ConfigError for an unknown name, a wrong type or a value that cannot work."""
        parts: list[Any] = []
        for part in _PARTS:
            mine = {name: flags.pop(name) for name in part.__struct_fields__ if name in flags}
            try:
                parts.append(msgspec.convert(mine, part))
            except msgspec.ValidationError as error:
                raise ConfigError(f"configuration: {error}") from None
        if flags:
            raise ConfigError(f"unknown setting {', '.join(sorted(flags))}; see `batchscope serve --help`")
        config = cls(*parts)
        config.validate()
        return config

    def validate(self) -> None:
        """Raise ConfigError where settings cannot work, alone or together."""
        model, cache, scheduler, parallel = (
            self.model_config, self.cache_config, self.scheduler_config, self.parallel_config
        )  # fmt: skip
        _check(bool(model.model), "model must be named", "use smollm2, a folder, a .gguf file or a hub id")
        _check(model.dtype in DTYPES, f"dtype {model.dtype!r} is unknown", f"use one of {', '.join(DTYPES)}")
        _check(
            model.quantization in (None, *QUANTIZATIONS),
            f"quantization {model.quantization!r} is unknown", f"use {', '.join(QUANTIZATIONS)} or leave it out",
        )  # fmt: skip
        _check(
            model.quantization is None or model.dtype in ("auto", "bfloat16"),
            f"quantization {model.quantization} calculates in bfloat16, not {model.dtype}",
            "use dtype bfloat16, or leave quantization out for exact weights",
        )  # fmt: skip
        _positive("max_model_len", model.max_model_len)
        _check(model.max_logprobs >= -1, "max_logprobs must be 0 or more", "or use -1 for the whole vocabulary")
        _positive("block_size", cache.block_size)
        _positive("kv_cache_memory_bytes", cache.kv_cache_memory_bytes)
        _check(
            cache.num_gpu_blocks_override is None or cache.num_gpu_blocks_override >= 2,
            "num_gpu_blocks_override must be at least 2", "block 0 is the null block and is never handed out",
        )  # fmt: skip
        _positive("max_num_seqs", scheduler.max_num_seqs, at_most=1 << 16)
        _positive("max_num_batched_tokens", scheduler.max_num_batched_tokens, at_most=1 << 24)
        _check(
            scheduler.max_num_batched_tokens >= scheduler.max_num_seqs,
            f"max_num_batched_tokens ({scheduler.max_num_batched_tokens}) is below max_num_seqs "
            f"({scheduler.max_num_seqs})", "raise the first or lower the second",
        )  # fmt: skip
        _check(
            scheduler.enable_chunked_prefill
            or model.max_model_len is None
            or scheduler.max_num_batched_tokens >= model.max_model_len,
            f"without chunked prefill, max_num_batched_tokens ({scheduler.max_num_batched_tokens}) must reach "
            f"max_model_len ({model.max_model_len})", "raise the first, lower the second or leave chunked prefill on",
        )  # fmt: skip
        _check(
            scheduler.long_prefill_token_threshold >= 0,
            "long_prefill_token_threshold must be 0 (off) or more", "set it to 0 to turn it off",
        )  # fmt: skip
        _check(
            scheduler.scheduling_policy in POLICIES,
            f"scheduling_policy {scheduler.scheduling_policy!r} is unknown", f"use one of {', '.join(POLICIES)}",
        )  # fmt: skip
        _positive("tensor_parallel_size", parallel.tensor_parallel_size)
        _positive("pipeline_parallel_size", parallel.pipeline_parallel_size)


_PARTS = (ModelConfig, CacheConfig, SchedulerConfig, ParallelConfig, TraceConfig)


def _check(holds: bool, problem: str, remedy: str) -> None:
    if not holds:
        raise ConfigError(f"{problem}: {remedy}")


def _positive(name: str, value: int | None, at_most: int = (1 << 63) - 1) -> None:
    _check(value is None or value >= 1, f"{name} must be at least 1, got {value}", "give a positive number")
    _check(value is None or value <= at_most, f"{name} is {value}", f"give at most {at_most}")

"""`batchscope serve`: the engine in a process of its own, and the page and the API in this one."""

import argparse
import signal
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.config import DTYPES, POLICIES, QUANTIZATIONS, EngineConfig
from engine.core_client import EngineDeadError

NOT_FLAGS = ("path", "hf_config", "num_gpu_blocks")  # filled in when the engine starts
CHOICES = {"dtype": DTYPES, "quantization": QUANTIZATIONS, "scheduling_policy": POLICIES}
HELP = {
    "model": "smollm2, tiny, a folder, a .gguf file or a hub id",
    "served_model_name": "the model's name in the API",
    "dtype": "what to compute in; auto is bfloat16",
    "quantization": "gguf: multiply few rows by a GGUF file's own 4-bit blocks",
    "max_model_len": "tokens that a prompt and its answer may have together",
    "max_logprobs": "the most log-probabilities a request may ask for; -1 is the whole vocabulary",
    "logits_processors": "qualified name of a logits processor class; may be given several times",
    "download_dir": "folder that keeps fetched and converted models",
    "seed": "for requests that bring no seed of their own",
    "block_size": "tokens in one block of KV cache",
    "num_gpu_blocks_override": "KV blocks to allocate, the null block included",
    "kv_cache_memory_bytes": "memory for the KV cache",
    "enable_prefix_caching": "reuse the blocks of prompts that start alike",
    "max_num_seqs": "rows of the batch",
    "max_num_batched_tokens": "tokens that one pass may compute",
    "enable_chunked_prefill": "let a long prompt take several passes",
    "long_prefill_token_threshold": "tokens of a long prompt in one pass while others wait; 0 is off",
    "scheduling_policy": "who runs first: who came first, or the lowest priority number",
    "scheduler_cls": "qualified name of a scheduler class",
    "reorder_batch_threshold": "rows with at most so many tokens go before the others",
    "tensor_parallel_size": "ranks that share each layer",
    "pipeline_parallel_size": "ranks that share the layers out",
    "distributed_executor_backend": "uni, mp, ray, external_launcher or a qualified name",
    "worker_cls": "qualified name of a worker class",
    "trace": "record every pass",
    "check": "after every pass, compare the trace with the batch",
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("serve", help="serve the page and an OpenAI-compatible API")
    web = parser.add_argument_group("web")
    web.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    web.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    web.add_argument("--share", action="store_true", help="guard the page by two tokens, so that others may be let in")
    web.add_argument("--api-key", metavar="KEY", help="let those alone use /v1 who show this key")
    web.add_argument(
        "--max-queue", type=int, default=256, metavar="N",
        help="requests that may wait beside those that have a row; more are answered 429 (default: %(default)s)",
    )  # fmt: skip
    web.add_argument("--record", type=Path, metavar="FILE", help="write every pass to a file, for `batchscope replay`")
    add_engine_flags(parser)
    parser.set_defaults(run=run)


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting of the engine; `engine_config` reads them."""
    for part, fields in _parts():
        group = parser.add_argument_group(part.removesuffix("_config"))
        for field in fields:
            _add_flag(group, field)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped. Returns 2, after one line on stderr, where a setting, the port or the model cannot work."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)  # while the engine starts, it is like Ctrl-C
    try:
        _serve(args)
    except (ValueError, OSError, EngineDeadError) as error:
        print(f"batchscope serve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _serve(args: argparse.Namespace) -> None:
    from batchscope.recording import begin_recording, recording_to
    from engine.async_llm import AsyncLLM
    from webui.security import Access
    from webui.server import listen, serve_until_stopped

    config = engine_config(args)
    access = Access.make(
        args.host, args.port, args.share, args.api_key, args.max_queue
    )  # before anything is loaded, so that refusals come at once
    with listen(args.host, args.port) as listener:
        access = msgspec.structs.replace(access, port=listener.getsockname()[1])
        with recording_to(args.record, config) as writer:
            model = config.model_config.model
            print(f"Loading {model} ... (the first start also compiles kernels: a minute)", file=sys.stderr, flush=True)
            llm = AsyncLLM(config)
            recording = begin_recording(llm, writer) if writer else None
            serve_until_stopped(llm, listener, access, recording)


def engine_config(args: argparse.Namespace) -> EngineConfig:
    """Return the configuration that the flags ask for. Raises ConfigError."""
    names = [field.name for _, fields in _parts() for field in fields]
    return EngineConfig.make(**{name: getattr(args, name) for name in names if hasattr(args, name)})


def _parts() -> Iterator[tuple[str, list[msgspec.structs.FieldInfo]]]:
    """Yield each part of EngineConfig with the fields that are flags."""
    for part in msgspec.structs.fields(EngineConfig):
        yield part.name, [field for field in msgspec.structs.fields(part.type) if field.name not in NOT_FLAGS]


def _add_flag(group: argparse._ArgumentGroup, field: msgspec.structs.FieldInfo) -> None:
    """A flag that is not given leaves no trace, so that EngineConfig's own defaults hold."""
    flag = "--" + field.name.replace("_", "-")
    words = HELP.get(field.name, "")
    if field.default is not None:
        words += f" (default: {field.default})"
    kind = _plain_type(field.type)
    if kind is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=words)
    elif typing.get_origin(kind) is list:
        group.add_argument(flag, action="append", default=argparse.SUPPRESS, metavar="CLASS", help=words)
    else:
        choices = CHOICES.get(field.name)
        metavar = None if choices else kind.__name__.upper()
        group.add_argument(flag, type=kind, choices=choices, default=argparse.SUPPRESS, metavar=metavar, help=words)


def _plain_type(annotation: Any) -> type:
    """Return bool, int, float or str for the annotation of a field, which may allow None as well."""
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    plain = next(option for option in options if option is not type(None))
    return str if plain is Any else plain

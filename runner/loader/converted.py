"""Convert a GGUF file to safetensors once, in the cache folder; later loads only map the result."""

import hashlib
import json
import os
import struct
import uuid
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from tqdm import tqdm

from engine.config import ConfigError
from runner.loader.gguf_weights import GGUFWeights
from runner.loader.safetensors_checkpoint import SafetensorsCheckpoint

DTYPE_NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}  # as safetensors writes them


def convert_gguf(path: Path, arch: dict[str, Any], dtype: torch.dtype, folder: Path) -> SafetensorsCheckpoint:
    """Return the converted weights of `path`, converting first unless `folder` holds them whole.

    Raises ConfigError for a damaged file, and for a folder that is full or can't be written, naming it.
    """
    target = folder / _name_of(path, dtype)
    if target.is_file():
        try:
            return SafetensorsCheckpoint(target, [target])
        except ConfigError:
            pass  # damaged since it was written: convert again
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(GGUFWeights(path, arch), dtype, target)
    except OSError as error:
        raise ConfigError(
            f"cannot write the converted weights to the cache folder {folder} ({error.strerror or error}): "
            "free some space or choose another folder with BATCHSCOPE_CACHE"
        ) from error
    return SafetensorsCheckpoint(target, [target])


def _name_of(path: Path, dtype: torch.dtype) -> str:
    """Name the result after the source file's path, size and time, so that a changed file is converted anew."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    return f"{path.stem}-{DTYPE_NAMES[dtype]}-{key}.safetensors"


def _write_atomically(weights: GGUFWeights, dtype: torch.dtype, target: Path) -> None:
    """Write under a temporary name, and rename when everything is on the disk."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            _write_safetensors(weights, dtype, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _write_safetensors(weights: GGUFWeights, dtype: torch.dtype, file: BinaryIO) -> None:
    """Write header and tensors one after the other, holding one tensor in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in weights.shapes().items():
        start, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # data starts at a multiple of 8
    file.write(struct.pack("<Q", len(encoded)) + encoded)
    for name in tqdm(weights, total=len(header) - 1, desc=f"Converting {weights.path.name}", disable=None):
        file.write(weights.read(name).to(dtype).contiguous().view(torch.uint8).numpy().data)

"""Convert a GGUF file to safetensors once, in the cache folder; later loads only map the result."""

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from tqdm import tqdm

from engine.config import ConfigError
from runner.loader.gguf_blocks import BLOCK
from runner.loader.gguf_weights import GGUFWeights
from runner.loader.safetensors_checkpoint import SafetensorsCheckpoint

DTYPE_NAMES = {  # as safetensors writes them
    torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float64: "F64", torch.uint8: "U8",
}  # fmt: skip
# The parts of a 4-bit tensor: dtype, and how many inputs share an element.
INT4_PARTS = {"q": (torch.uint8, 2), "scale": (torch.float16, BLOCK), "minimum": (torch.float16, BLOCK)}


class Entry(NamedTuple):
    """A tensor to be written, read when its turn comes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], torch.Tensor]


Entries = dict[str, Entry]  # by name


def convert_gguf(path: Path, arch: dict[str, Any], dtype: torch.dtype, folder: Path) -> SafetensorsCheckpoint:
    """Return the dequantized weights of `path`, converting first unless `folder` holds them whole.

    Raises ConfigError for a damaged file, and for a folder that is full or can't be written, naming it.
    """

    def entries() -> Entries:
        weights = GGUFWeights(path, arch)
        return {name: Entry(dtype, shape, partial(weights.read, name)) for name, shape in weights.shapes().items()}

    return _converted(path, DTYPE_NAMES[dtype], folder, entries)


def convert_int4(path: Path, arch: dict[str, Any], folder: Path) -> SafetensorsCheckpoint:
    """Return the 4-bit weights of `path` as they are: NAME.q, NAME.scale and NAME.minimum. See convert_gguf."""

    def entries() -> Entries:
        weights = GGUFWeights(path, arch)
        shapes = weights.shapes()
        return {
            f"{name}.{part}": Entry(
                dtype, (shapes[name][0], shapes[name][1] // shared), partial(_int4_part, weights, name, index)
            )
            for name in weights.int4_names()
            for index, (part, (dtype, shared)) in enumerate(INT4_PARTS.items())
        }

    return _converted(path, "Q4", folder, entries)


def _int4_part(weights: GGUFWeights, name: str, index: int) -> torch.Tensor:
    return weights.read_int4(name)[index]


def _converted(path: Path, kind: str, folder: Path, entries: Callable[[], Entries]) -> SafetensorsCheckpoint:
    target = folder / _name_of(path, kind)
    if target.is_file():
        try:
            return SafetensorsCheckpoint(target, [target])
        except ConfigError:
            pass  # damaged since it was written: convert again
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(entries(), target)
    except OSError as error:
        raise ConfigError(
            f"cannot write the converted weights to the cache folder {folder} ({error.strerror or error}): "
            "free some space or choose another folder with BATCHSCOPE_CACHE"
        ) from error
    return SafetensorsCheckpoint(target, [target])


def _name_of(path: Path, kind: str) -> str:
    """Name the result after the source file's path, size and time, so that a changed file is converted anew."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    return f"{path.stem}-{kind}-{key}.safetensors"


def _write_atomically(entries: Entries, target: Path) -> None:
    """Write under a temporary name, and rename when everything is on the disk."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            _write_safetensors(entries, target.name, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _write_safetensors(entries: Entries, title: str, file: BinaryIO) -> None:
    """Write header and tensors one after the other, holding one tensor in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, entry in entries.items():
        start, end = end, end + prod(entry.shape) * entry.dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[entry.dtype], "shape": list(entry.shape), "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # data starts at a multiple of 8
    file.write(struct.pack("<Q", len(encoded)) + encoded)
    for entry in tqdm(entries.values(), desc=f"Converting to {title}", disable=None):
        file.write(entry.read().to(entry.dtype).contiguous().view(torch.uint8).numpy().data)

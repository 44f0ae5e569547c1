"""Weights from safetensors files, mapped rather than read."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.config import ConfigError

INDEX = "model.safetensors.index.json"


class SafetensorsCheckpoint:
    """The tensors of one or several files. A tensor shares the file's pages until it is converted or moved."""

    def __init__(self, source: Path, files: list[Path]) -> None:
        """Open every file. Raises ConfigError naming one that is missing, damaged or cut short."""
        self.source = str(source)
        self._file_of: dict[str, tuple[Path, Any]] = {}
        for path in files:
            handle = _open(path)
            for name in handle.keys():  # noqa: SIM118 - a safe_open handle is no mapping
                self._file_of[name] = (path, handle)

    @classmethod
    def of_folder(cls, folder: Path) -> "SafetensorsCheckpoint":
        """Open model.safetensors, the shards of model.safetensors.index.json, or whatever *.safetensors there are."""
        index = folder / INDEX
        if index.is_file():
            return cls._of_index(index)
        files = [folder / "model.safetensors"]
        if not files[0].is_file():
            files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} has no *.safetensors file: convert the weights or give a .gguf file")
        return cls(folder, files)

    @classmethod
    def _of_index(cls, index: Path) -> "SafetensorsCheckpoint":
        try:
            weight_map = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{index} is no safetensors index ({error!r}): fetch it again") from error
        shards = sorted(set(weight_map.values()))
        for shard in shards:
            if Path(shard).name != shard:
                raise ConfigError(f"{index} names a file outside its folder ({shard}): fetch it again")
        checkpoint = cls(index.parent, [index.parent / shard for shard in shards])
        if missing := sorted(weight_map.keys() - checkpoint.names()):
            raise ConfigError(f"{index.parent / weight_map[missing[0]]} lacks tensor {missing[0]}: fetch it again")
        return checkpoint

    def names(self) -> set[str]:
        """Return the name of every tensor."""
        return set(self._file_of)

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor that shares the mapped file. Raises ConfigError when it can't be read."""
        path, handle = self._file_of[name]
        try:
            return handle.get_tensor(name)
        except (SafetensorError, ValueError, OSError) as error:
            raise ConfigError(f"{path}: cannot read tensor {name} ({error}): fetch the file again") from error


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ConfigError(
            f"{path} is not a whole safetensors file ({error}): it is missing, damaged or was cut short; fetch it again"
        ) from error

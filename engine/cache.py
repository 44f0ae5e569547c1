"""The cache folder, and files that appear in it whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from engine.config import ConfigError


def cache_folder() -> Path:
    """Return $BATCHSCOPE_CACHE, else $XDG_CACHE_HOME/batchscope, else ~/.cache/batchscope. It may not exist yet."""
    if own := os.environ.get("BATCHSCOPE_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "batchscope"


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError (disk full, no permission, not a folder) into a ConfigError that names the folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot write to the cache folder {folder} ({error.strerror or error}): "
            "free some space or set BATCHSCOPE_CACHE to a folder that can be written"
        ) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that takes the name `path` when the block ends, and is deleted when the block fails."""
    with cache_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

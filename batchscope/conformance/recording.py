"""A recorded workload, as tests/vectors/README.md describes it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_YET = {"async": "async scheduling", "ngram_spec": "speculative decoding"}


class RecordingError(ValueError):
    """A file that is not a recording. The message names it and says what is missing."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One file: the engine's settings, the requests and what each pass did."""

    name: str
    config: dict[str, Any]
    requests: list[dict[str, Any]]
    reset_prefix_cache_at: list[int]
    passes: list[dict[str, Any]]
    outputs: dict[str, list[int]]

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Read a file. Raises RecordingError where it is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                data["scenario"], data["config"], data["requests"], data["reset_prefix_cache_at"], data["passes"],
                data["outputs"],
            )  # fmt: skip
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise RecordingError(f"{path} is not JSON: {error}") from error
        except (KeyError, TypeError) as error:
            raise RecordingError(f"{path} is not a recording: it lacks {error}") from error

    @property
    def not_yet(self) -> str | None:
        """Name what this workload needs and Batchscope does not have yet, or None."""
        return NOT_YET.get(self.name)

    def engine_flags(self) -> dict[str, Any]:
        """Return the settings by Batchscope's names, without those that only vLLM has."""
        return {name: value for name, value in self.config.items() if name not in _VLLM_ONLY}


_VLLM_ONLY = ("async_scheduling", "speculative_config")


def load_all(folder: Path) -> list[Recording]:
    """Load every .json file of a folder, by name. Raises RecordingError where there is none."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise RecordingError(f"{folder} holds no .json recordings: name the folder that does, such as tests/vectors")
    return [Recording.load(path) for path in paths]

"""What the page must know before it shows anything: an engine's settings, or a recorded one's, and its tokens."""

import hashlib
import threading
from typing import Any, Protocol

import msgspec

from engine.config import EngineConfig
from engine.tokenizer import Tokenizer
from tracer.explain import SENTENCES
from tracer.explanations import EXPLANATIONS
from tracer.phases import Phase
from tracer.schema import SCHEMA_VERSION

MAIN = "main"  # the id of the engine that is served; presets have others
MAX_COPIES = 64
MAX_STEP = 1000


class PageFacts(Protocol):
    """An engine's, or a recording's."""

    @property
    def model_name(self) -> str:
        """The name under which the model is served."""

    def config(self) -> dict[str, Any]:
        """Return what /api/config gives."""

    def vocabulary(self) -> tuple[bytes, str]:
        """Return (msgpack map of `tokens` and `special`, its digest)."""


class EngineFacts:
    """Of an engine that runs. The vocabulary is packed when first asked for."""

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer,
        sources: dict[str, Any],
        engine_id: str = MAIN,
        preset: dict[str, Any] | None = None,
    ) -> None:
        """`sources`: see engine.sources.phase_sources. `preset`: what the page shows of the preset that it plays."""
        self._engine_id = engine_id
        self._preset = preset
        self._config = config
        self._sources = sources
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._packed: tuple[bytes, str] | None = None

    @property
    def model_name(self) -> str:
        """The name under which the model is served."""
        config = self._config.model_config
        return config.served_model_name or config.model

    def config(self) -> dict[str, Any]:
        """See PageFacts."""
        config = self._config
        settings = msgspec.to_builtins(config, enc_hook=str)
        settings["model_config"].pop("hf_config")
        return {
            "engine": self._engine_id,
            "preset": self._preset,
            "model": self.model_name,
            "config": settings,
            "max_model_len": config.model_config.max_model_len,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "block_size": config.cache_config.block_size,
            "num_gpu_blocks": config.cache_config.num_gpu_blocks,
            "vocab_size": self._tokenizer.vocab_size,
            "phases": [phase.value for phase in Phase],
            "schema_version": SCHEMA_VERSION,
            "why": SENTENCES,
            "explanations": EXPLANATIONS,
            "sources": self._sources,
            "limits": {"max_copies": MAX_COPIES, "max_step": MAX_STEP},
        }

    def vocabulary(self) -> tuple[bytes, str]:
        """See PageFacts."""
        with self._lock:
            if self._packed is None:
                ids = range(self._tokenizer.vocab_size)
                tokens = [self._tokenizer.token_bytes(i) for i in ids]
                special = [i for i in ids if self._tokenizer.is_special(i)]
                data = msgspec.msgpack.encode({"tokens": tokens, "special": special})
                self._packed = data, digest(data)
            return self._packed


def digest(data: bytes) -> str:
    """Return what tells the page whether it has these bytes already."""
    return hashlib.sha256(data).hexdigest()[:32]

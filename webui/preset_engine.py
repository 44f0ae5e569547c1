"""One preset on an engine core of its own: started, played, held at its moment, and ended."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from engine.async_llm import AsyncLLM, EngineDeadError
from engine.config import EngineConfig
from engine.process_client import ProcessClient
from webui.errors import ApiError
from webui.preset_player import PresetError, PresetPlayer
from webui.presets import Preset
from webui.services import Services

END_TIMEOUT_S = 20.0
STARTING, PLAYING, READY, FAILED, ENDED = "starting", "playing", "ready", "failed", "ended"

MakeServices = Callable[
    [AsyncLLM, str, dict[str, Any]], Services
]  # of (engine, its id, its preset as the page knows it)


class PresetEngine(threading.Thread):
    """Its thread starts the engine's process, plays the script, waits to be ended, and leaves nothing behind.

    `status` goes from "starting" over "playing" to "ready", or to "failed" with an `error`, and to "ended".
    """

    def __init__(
        self,
        engine_id: str,
        name: str,
        preset: Preset,
        main: EngineConfig,
        make_services: MakeServices,
        changed: Callable[..., None],
    ) -> None:
        """`main`: the served engine's configuration.

        `changed` is called when `described` gives something new, and with the services when these end.
        """
        super().__init__(name=f"preset {engine_id}", daemon=True)
        self.engine_id = engine_id
        self.status = STARTING
        self.error: str | None = None
        self.services: Services | None = None  # once it is ready
        self._preset_name = name
        self._preset = preset
        self._main = main
        self._make_services = make_services
        self._changed = changed
        self._words = "Starting an engine."
        self._pass_id: int | None = None  # the last pass of the script
        self._before: list[PresetEngine] = []
        self._began = time.time()
        self._given_up = threading.Event()

    @property
    def live(self) -> bool:
        """Whether it has an engine, or is about to."""
        return self.status in (STARTING, PLAYING, READY)

    def start_after(self, others: Iterable["PresetEngine"]) -> None:
        """Start once these have ended, so that no more engines are there than may be."""
        self._before = list(others)
        self.start()

    def described(self) -> dict[str, Any]:
        """Return what /api/engines says of it."""
        return {
            "id": self.engine_id,
            "preset": self._preset_name,
            "title": self._preset.title,
            "status": self.status,
            "words": self._words,
            "error": self.error,
            "pass_id": self._pass_id,
            "phase": self._preset.phase,
            "started": self._began,
        }

    def end(self) -> None:
        """Have it end. `join` waits for that."""
        if self.status != FAILED:
            self.status = ENDED
        self._given_up.set()

    def run(self) -> None:
        try:
            for other in self._before:
                other.join(END_TIMEOUT_S)
            if not self._given_up.is_set():
                self._run()
        except (ApiError, EngineDeadError, PresetError, ValueError, OSError) as error:
            self._fail(str(error))
        except Exception as error:  # it is this preset's alone
            logging.getLogger(__name__).exception("preset %s failed", self._preset_name)
            self._fail(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        config = preset_config(self._main, self._preset)
        llm = AsyncLLM(config, functools.partial(ProcessClient, given_up=self._given_up))
        try:
            about = {"name": self._preset_name, "title": self._preset.title, "paragraph": self._preset.paragraph}
            services = self._make_services(llm, self.engine_id, about)
            services.start_beside()
            try:
                self._go_on(PLAYING, "The engine runs.")
                player = PresetPlayer(self._preset, services, self._tell, self._given_up.is_set)
                self._pass_id = player.play()
                self.services = services
                self._go_on(READY, "")
                self._given_up.wait()
            finally:
                self.services = None
                self._changed(services)
                services.stop_beside()
        finally:
            llm.shutdown()
            llm.log.close()

    def _tell(self, words: str) -> None:
        self._words = words
        self._changed()

    def _go_on(self, status: str, words: str) -> None:
        if self.status != ENDED:
            self.status = status
        self._tell(words)

    def _fail(self, error: str) -> None:
        if self.status == ENDED:  # nobody waits for it any more
            return
        self.status, self.error, self._words = FAILED, error, ""
        self._changed()


def preset_config(main: EngineConfig, preset: Preset) -> EngineConfig:
    """Return the preset's settings for the model that is served, whose files need no look on any network.

    Raises ConfigError where they cannot work.
    """
    config = EngineConfig.make(**preset.config)
    served = main.model_config
    longest = served.hf_config["max_position_embeddings"]
    config.model_config = msgspec.structs.replace(
        served,
        model=served.path or served.model,
        served_model_name=served.served_model_name or served.model,
        max_model_len=min(config.model_config.max_model_len or longest, longest),
    )
    config.parallel_config = msgspec.structs.replace(main.parallel_config)
    return config

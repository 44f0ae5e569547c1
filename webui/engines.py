"""The engines of one server: the served one, and those of the presets that run, at most two at a time."""

import itertools
import threading
from typing import Any

from webui.errors import ApiError
from webui.page_facts import MAIN
from webui.preset_engine import FAILED, READY, MakeServices, PresetEngine
from webui.presets import Preset
from webui.services import Services

MOST_PRESETS = 2


class Engines:
    """Knows each engine by its id. Used from every thread of the server."""

    def __init__(self, main: Services, presets: dict[str, Preset], make_services: MakeServices) -> None:
        """`presets`: those that can be started, none in a replay."""
        self.presets = presets
        self._main = main
        self._make_services = make_services
        self._lock = threading.Lock()
        self._beside: dict[str, PresetEngine] = {}  # oldest first; those that failed are kept until the next start
        self._ended: dict[str, PresetEngine] = {}
        self._numbers = itertools.count(1)
        self._closing = False

    def services(self, engine_id: str) -> Services:
        """Return what serves an engine.

        Raises ApiError: 404 where there never was one, 410 where it has ended, 503 while it is being started.
        """
        if engine_id == MAIN:
            return self._main
        with self._lock:
            engine = self._beside.get(engine_id)
            if engine is None:
                raise self._missing(engine_id)
        if engine.services is not None and engine.status == READY:
            return engine.services
        if engine.status == FAILED:
            raise ApiError(410, f"engine {engine_id!r} could not be brought to its moment: {engine.error}", "engine")
        raise ApiError(503, f"engine {engine_id!r} is being started: {engine.described()['words']}", "engine")

    def described(self) -> list[dict[str, Any]]:
        """Return what viewers are told: the served engine first, then those of presets, oldest first."""
        main = {"id": MAIN, "preset": None, "title": self._main.model_name, "status": READY}
        with self._lock:
            return [main, *(engine.described() for engine in self._beside.values())]

    def watched(self) -> dict[str, dict[str, int]]:
        """Return how many watch each engine, and how many frames were skipped for those who did not keep up."""
        with self._lock:
            beside = {each.engine_id: each.services for each in self._beside.values() if each.services is not None}
        broadcasters = {engine_id: services.broadcaster for engine_id, services in {MAIN: self._main, **beside}.items()}
        return {
            engine_id: {"viewers": len(broadcaster.viewers()), "skipped_frames": broadcaster.skipped}
            for engine_id, broadcaster in broadcasters.items()
        }

    def start(self, name: str, replace: str | None = None) -> str:
        """Start a preset, in the place of the engine `replace` where one is named, and return its engine's id.

        Raises ApiError: 404 for an unknown preset, 409 where two run already.
        """
        if (preset := self.presets.get(name)) is None:
            raise ApiError(404, f"there is no preset {name!r}: /api/presets lists them")
        with self._lock:
            if self._closing:
                raise ApiError(503, "the server is shutting down")
            if replace is not None:
                self._end(replace)
            live = [each for each in self._beside.values() if each.live]
            if len(live) >= MOST_PRESETS:
                oldest = live[0]
                raise ApiError(
                    409,
                    f"{MOST_PRESETS} presets run already: end one first, or send "
                    f'{{"replace": "{oldest.engine_id}"}} to have this one take the place of the oldest',
                )
            for failed in [each.engine_id for each in self._beside.values() if not each.live]:
                self._end(failed)
            engine_id = f"{name}-{next(self._numbers)}"
            engine = PresetEngine(engine_id, name, preset, self._main.llm.config, self._make_services, self._announce)
            self._beside[engine_id] = engine
            engine.start_after([each for each in self._ended.values() if each.is_alive()])
        self._announce()
        return engine_id

    def end(self, engine_id: str) -> None:
        """End a preset's engine. Raises ApiError: 400 for the served one, 404 or 410 where there is none."""
        if engine_id == MAIN:
            raise ApiError(400, "the served engine ends with the server: stop `batchscope serve`", "engine")
        with self._lock:
            self._end(engine_id)
        self._announce()

    def close(self, timeout: float = 10.0) -> None:
        """End all engines beside the served one, and wait for that."""
        with self._lock:
            self._closing = True
            for engine_id in list(self._beside):
                self._end(engine_id)
            ended = list(self._ended.values())
        for engine in ended:
            engine.join(timeout)

    def _end(self, engine_id: str) -> None:
        if (engine := self._beside.get(engine_id)) is None:
            raise self._missing(engine_id)
        del self._beside[engine_id]
        self._ended[engine_id] = engine
        engine.end()

    def _missing(self, engine_id: str) -> ApiError:
        if engine_id in self._ended:
            return ApiError(410, f"engine {engine_id!r} has ended: start its preset again", "engine")
        return ApiError(404, f"there is no engine {engine_id!r}: /api/engines lists those that run", "engine")

    def _announce(self, ending: Services | None = None) -> None:
        """Tell every viewer of every engine what there is now, those of one that ends included."""
        described = self.described()
        with self._lock:
            watched = [each.services for each in self._beside.values() if each.services is not None]
        for services in (self._main, ending, *watched):
            if services is not None:
                services.broadcaster.announce("engines", described)

"""A grammar backend that compiles when the test lets it."""

import threading
from typing import Any

import pytest

from engine.config import ModelConfig
from engine.structured_output import manager
from engine.structured_output.backend import Grammar, StructuredOutputBackend
from engine.structured_outputs_params import StructuredOutputsParams


class HeldBackend(StructuredOutputBackend):
    """Holds `held` regular expressions until `release` is set, and hands on to the real backend."""

    def __init__(self, real: StructuredOutputBackend, held: set[str], release: threading.Event) -> None:
        self._real, self._held, self._release = real, held, release

    def compile(self, params: StructuredOutputsParams) -> Grammar:
        if params.regex in self._held:
            self._release.wait(20)
        return self._real.compile(params)


def hold(monkeypatch: pytest.MonkeyPatch, *held: str) -> threading.Event:
    """Have engines made from now on hold these expressions; set the event to let them go."""
    release = threading.Event()
    make = manager.make_backend

    def held_backend(model_config: ModelConfig) -> Any:
        return HeldBackend(make(model_config), set(held), release)

    monkeypatch.setattr(manager, "make_backend", held_backend)
    return release

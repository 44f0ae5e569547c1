"""Engines and presets: /api/engines and /api/presets."""

from typing import Any

import msgspec
from flask import Blueprint, Response, current_app, request

from webui.engines import MOST_PRESETS, Engines
from webui.json_body import convert, read_json

blueprint = Blueprint("presets", __name__, url_prefix="/api")


class Start(msgspec.Struct, forbid_unknown_fields=True):
    replace: str | None = None  # the id of the engine whose place it takes


@blueprint.get("/engines")
def engines() -> Response:
    return _json({"engines": _engines().described(), "most": MOST_PRESETS, "watched": _engines().watched()})


@blueprint.delete("/engines/<engine_id>")
def end_engine(engine_id: str) -> Response:
    """End a preset's engine and its process."""
    _engines().end(engine_id)
    return _json({"engine": engine_id, "ended": True})


@blueprint.get("/presets")
def presets() -> Response:
    listed = [
        {"name": name, "title": preset.title, "paragraph": preset.paragraph}
        for name, preset in _engines().presets.items()
    ]
    return _json({"presets": listed})


@blueprint.post("/presets/<name>")
def start_preset(name: str) -> Response:
    """Start a preset and answer at once; /api/engines tells how it goes."""
    body = convert(read_json(request), Start) if request.get_data() else Start()
    return _json({"engine": _engines().start(name, body.replace)})


def _engines() -> Engines:
    return current_app.extensions["engines"]


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), content_type="application/json")

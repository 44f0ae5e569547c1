"""The Flask application: the page, its routes, the OpenAI-compatible API and the live connection."""

import hashlib
import mimetypes
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from flask import Flask, Response, request, send_from_directory
from flask_socketio import ConnectionRefusedError, SocketIO

from engine.async_llm import AsyncLLM, EngineDeadError
from tracer.recording import Recording
from webui import api, openai_api, openapi, presets_api, profile_api, server_api, trace_api
from webui.broadcaster import Broadcaster
from webui.engine_like import EngineLike
from webui.engines import Engines
from webui.errors import ApiError, install_error_handlers
from webui.page_facts import MAIN, EngineFacts
from webui.preset_engine import MakeServices
from webui.presets import presets
from webui.replay import ReplayLLM
from webui.security import Access, Guard, content_security_policy
from webui.services import Services

STATIC = Path(__file__).parent / "static"
IMPORT_MAP = re.compile(rb'<script type="importmap">.*?</script>', re.DOTALL)
MAX_BODY = 8 << 20  # bytes
KEPT_S = 365 * 24 * 3600  # seconds that a browser may keep a file of a version
UNWATCHED_DELAY_S = 0.5  # how late quiet passes may come while nobody looks: many at once cost the engine less

mimetypes.add_type("text/javascript", ".js")  # some systems say otherwise, and browsers then refuse modules


def create_app(
    llm: EngineLike, access: Access | None = None, recording: Recording | None = None
) -> tuple[Flask, SocketIO]:
    """Return the app and its Socket.IO server for one engine or replay.

    In app.extensions are its Services ("batchscope"), to be started, and its Engines ("engines"), to be closed.
    """
    access = access or Access()
    app = Flask(__name__, static_folder=str(STATIC), static_url_path="/static")
    app.url_map.merge_slashes = False  # a redirect would be HTML, under /v1 as well
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    socketio = SocketIO(app, async_mode="threading", async_handlers=False, manage_session=False, always_connect=True)
    facts = llm.facts if isinstance(llm, ReplayLLM) else EngineFacts(llm.config, llm.tokenizer, llm.sources)
    broadcaster = Broadcaster(llm.log, socketio.emit, watched=partial(_set_trace_delay, llm))
    shared = Services(llm, facts, access, broadcaster, recording)
    engines = Engines(shared, {} if isinstance(llm, ReplayLLM) else presets(), _beside(access, socketio))
    app.extensions.update(batchscope=shared, engines=engines)
    app.register_blueprint(api.blueprint)
    app.register_blueprint(openai_api.blueprint)
    app.register_blueprint(server_api.blueprint)
    app.register_blueprint(openapi.blueprint)
    app.register_blueprint(trace_api.blueprint)
    app.register_blueprint(presets_api.blueprint)
    app.register_blueprint(profile_api.blueprint)
    if isinstance(llm, ReplayLLM):
        llm.guard(app)
    app.add_url_rule("/static/v/<version>/<path:filename>", "versioned", _versioned)
    app.add_url_rule("/", "page", lambda: _page("index.html"))
    app.add_url_rule("/compare", "compare", lambda: _page("compare.html"))
    app.after_request(_harden)
    install_error_handlers(app)
    _connect_viewers(socketio, engines)
    app.wsgi_app = Guard(app.wsgi_app, access)  # type: ignore[method-assign]
    return app, socketio


def _set_trace_delay(llm: EngineLike, watched: bool) -> None:
    with suppress(EngineDeadError):
        llm.set_trace_delay(0.0 if watched else UNWATCHED_DELAY_S)


def _beside(access: Access, socketio: SocketIO) -> MakeServices:
    """Return what makes the services of a preset's engine."""

    def make(llm: AsyncLLM, engine_id: str, preset: dict[str, Any]) -> Services:
        facts = EngineFacts(llm.config, llm.tokenizer, llm.sources, engine_id, preset)
        return Services(llm, facts, access, Broadcaster(llm.log, socketio.emit, engine_id))

    return make


def _page(name: str) -> Response:
    """A page's HTML. All share the import map of index.html, and name files by a version that is kept for good."""
    html = (STATIC / name).read_bytes()
    if name != "index.html" and (shared := IMPORT_MAP.search((STATIC / "index.html").read_bytes())):
        html = IMPORT_MAP.sub(lambda _: shared[0], html)
    html = html.replace(b'"/static/', f'"/static/v/{_version()}/'.encode())
    response = Response(html, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = content_security_policy(html)
    response.add_etag()
    response.cache_control.no_cache = True
    response.make_conditional(request)
    return response


def _version() -> str:
    """Return what changes with any file of the page: a page of a hundred modules that asks about each is slow."""
    files = sorted(path for path in STATIC.rglob("*") if path.is_file())
    told = [(str(path), (stat := path.stat()).st_mtime_ns, stat.st_size) for path in files]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def _versioned(version: str, filename: str) -> Response:
    """A file of the page under a name that its successor will not have, so that browsers need not ask again."""
    response = send_from_directory(STATIC, filename, max_age=KEPT_S)
    response.cache_control.immutable = True
    return response


def _harden(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'")
    if request.path.startswith("/api") and "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return response


def _connect_viewers(socketio: SocketIO, engines: Engines) -> None:
    """Viewers only look: whoever comes is given an engine's log, and says how far it has got. Acting is by POST."""
    watching: dict[str, Broadcaster] = {}

    @socketio.on("connect")
    def connect(auth: Any = None) -> None:
        shown = auth if isinstance(auth, dict) else {}
        seq, engine_id = shown.get("seq"), shown.get("engine", MAIN)
        try:
            broadcaster = engines.services(str(engine_id)).broadcaster
        except ApiError as error:
            raise ConnectionRefusedError(error.message) from None
        watching[request.sid] = broadcaster  # type: ignore[attr-defined]
        broadcaster.add(request.sid, seq if type(seq) is int and seq >= 0 else -1)  # type: ignore[attr-defined]

    @socketio.on("disconnect")
    def disconnect(reason: Any = None) -> None:
        if broadcaster := watching.pop(request.sid, None):  # type: ignore[attr-defined]
            broadcaster.remove(request.sid)  # type: ignore[attr-defined]

    # Taken from the Socket.IO server itself: a Flask context for each of thousands of acknowledgements costs too much.
    @socketio.server.on("ack")
    def ack(sid: str, data: Any = None) -> None:
        seq = data.get("to") if isinstance(data, dict) else None
        if type(seq) is int and (broadcaster := watching.get(sid)):
            broadcaster.acknowledge(sid, seq)

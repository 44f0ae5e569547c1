"""The Flask application: the page, its routes, the OpenAI-compatible API and the live connection."""

import mimetypes
from pathlib import Path
from typing import Any

from flask import Flask, Response, request
from flask_socketio import SocketIO

from tracer.recording import Recording
from webui import api, openai_api, openapi, server_api, trace_api
from webui.broadcaster import Broadcaster
from webui.engine_like import EngineLike
from webui.errors import install_error_handlers
from webui.page_facts import EngineFacts
from webui.replay import ReplayLLM
from webui.security import Access, Guard, content_security_policy
from webui.services import Services

STATIC = Path(__file__).parent / "static"
MAX_BODY = 8 << 20  # bytes

mimetypes.add_type("text/javascript", ".js")  # some systems say otherwise, and browsers then refuse modules


def create_app(
    llm: EngineLike, access: Access | None = None, recording: Recording | None = None
) -> tuple[Flask, SocketIO]:
    """Return the app and its Socket.IO server for one engine or replay.

    Its Services, to be started, are in app.extensions.
    """
    access = access or Access()
    app = Flask(__name__, static_folder=str(STATIC), static_url_path="/static")
    app.url_map.merge_slashes = False  # a redirect would be HTML, under /v1 as well
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    socketio = SocketIO(app, async_mode="threading", async_handlers=False, manage_session=False, always_connect=True)
    facts = llm.facts if isinstance(llm, ReplayLLM) else EngineFacts(llm.config, llm.tokenizer)
    shared = Services(llm, facts, access, Broadcaster(llm.log, socketio.emit), recording)
    app.extensions["batchscope"] = shared
    app.register_blueprint(api.blueprint)
    app.register_blueprint(openai_api.blueprint)
    app.register_blueprint(server_api.blueprint)
    app.register_blueprint(openapi.blueprint)
    app.register_blueprint(trace_api.blueprint)
    if isinstance(llm, ReplayLLM):
        llm.guard(app)
    app.add_url_rule("/", "page", _page)
    app.after_request(_harden)
    install_error_handlers(app)
    _connect_viewers(socketio, shared.broadcaster)
    app.wsgi_app = Guard(app.wsgi_app, access)  # type: ignore[method-assign]
    return app, socketio


def _page() -> Response:
    html = (STATIC / "index.html").read_bytes()
    response = Response(html, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = content_security_policy(html)
    response.add_etag()
    response.cache_control.no_cache = True
    response.make_conditional(request)
    return response


def _harden(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'")
    if request.path.startswith("/api") and "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return response


def _connect_viewers(socketio: SocketIO, broadcaster: Broadcaster) -> None:
    """Viewers only look: whoever comes is given the log, and says how far it has got. Acting is done by POST."""

    @socketio.on("connect")
    def connect(auth: Any = None) -> None:
        seq = auth.get("seq") if isinstance(auth, dict) else None
        broadcaster.add(request.sid, seq if type(seq) is int and seq >= 0 else -1)  # type: ignore[attr-defined]

    @socketio.on("disconnect")
    def disconnect(reason: Any = None) -> None:
        broadcaster.remove(request.sid)  # type: ignore[attr-defined]

    # Taken from the Socket.IO server itself: a Flask context for each of thousands of acknowledgements costs too much.
    @socketio.server.on("ack")
    def ack(sid: str, data: Any = None) -> None:
        seq = data.get("to") if isinstance(data, dict) else None
        if type(seq) is int:
            broadcaster.acknowledge(sid, seq)

"""Listens, serves, and ends without leaving anything behind."""

import errno
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

from flask import Flask
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from tracer.recording import Recording
from webui.app import create_app
from webui.engine_like import EngineLike
from webui.security import Access

LAST_WORDS = 3.0  # seconds that open responses have to end once their requests are aborted


class ListenError(OSError):
    """The address cannot be listened on. The message says what to change."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ListenError. Port 0 takes any free one."""
    if not 0 <= port < 1 << 16:
        raise ListenError(f"there is no port {port}: choose one from 0 to 65535 by --port")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"port {port} on {host} is in use: stop the program that listens there, or choose another by --port"
            ) from None
        if error.errno == errno.EACCES:
            raise ListenError(f"port {port} needs rights that you lack: choose one above 1023 by --port") from None
        raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}: check --host and --port") from None


class Handler(WSGIRequestHandler):
    """Sends each chunk of a stream in one packet, at once, and keeps quiet about requests that went well."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: a page polls, and the terminal is for what matters."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Read nothing more: what follows a websocket's end is no request."""
        self.close_connection = True

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:  # the client has gone, and with it what was still in the buffer
            self.rfile.close()


class Server:
    """One engine, or a replay, behind one address."""

    def __init__(
        self, llm: EngineLike, listener: socket.socket, access: Access, recording: Recording | None = None
    ) -> None:
        self.app: Flask
        self.app, self._socketio = create_app(llm, access, recording)
        self.services = self.app.extensions["batchscope"]
        self._llm = llm
        host = listener.getsockname()[0]
        self._http = ThreadedWSGIServer(host, access.port, self.app, handler=Handler, fd=listener.fileno())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="http", daemon=True)

    def start(self) -> None:
        """Answer from now on, in threads of its own."""
        self.services.start()
        self._thread.start()

    def stop(self) -> int:
        """Abort what runs, let its responses end, and stop the engine. Returns how many requests were aborted."""
        aborted = self.services.live.close(LAST_WORDS)
        self.services.broadcaster.stop()
        self.app.extensions["engines"].close()
        self._http.shutdown()
        self._thread.join()
        self._llm.shutdown()
        if self.services.recording:
            self.services.recording.stop()
        return aborted


def addresses(access: Access) -> list[str]:
    """Return the lines that tell where the page is."""
    host = access.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    base = f"http://[{host}]:{access.port}" if ":" in host else f"http://{host}:{access.port}"
    if access.presenter is None:
        return [f"Batchscope is at {base}"]
    return [
        f"Batchscope is at {base}/?token={access.presenter} for who may act,",
        f"and at {base}/?token={access.viewer} for who may look.",
    ]


def serve_until_stopped(
    llm: EngineLike, listener: socket.socket, access: Access, recording: Recording | None = None
) -> None:
    """Serve until Ctrl-C or a termination signal; the second one ends the process at once."""
    server = Server(llm, listener, access, recording)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> Any:
        stopping.set()
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    server.start()
    print("\n".join(addresses(access)), flush=True)
    stopping.wait()
    aborted = server.stop()
    print(f"\nBatchscope has stopped; {aborted} running requests were aborted.", file=sys.stderr)
    if recording:
        print(recording.told(), file=sys.stderr)

"""Tells whether a client has gone away. WSGI itself cannot: a look at the socket under it can."""

import socket
from typing import Any

SOCKETS = ("werkzeug.socket", "gunicorn.socket")


class Disconnect:
    """Watches the connection of one request, whose body has been read."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self._socket: socket.socket | None = next((environ[key] for key in SOCKETS if key in environ), None)

    def __call__(self) -> bool:
        """Return whether the client closed its end. Where no socket can be seen, it is taken to be there."""
        if self._socket is None:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

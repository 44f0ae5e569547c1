"""Who may look and who may act: checks made before Flask and Socket.IO see a request."""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from webui.errors import error_body

LOOPBACK = ("127.0.0.1", "localhost", "::1")
READING = ("GET", "HEAD")
PAGES = ("/", "/compare")
KEYED = ("/v1", "/tokenize", "/detokenize")  # what --api-key guards
NO_KEY = "send the server's key as Authorization: Bearer KEY (it was started with --api-key)"
INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]


class Access(msgspec.Struct, frozen=True):
    """Where the server listens, whom it lets in and how many of them may wait.

    With tokens, whoever shows the presenter's may act and the viewer's may look. With a key, the API under /v1 is for
    those alone who show it. `max_queue`: answers that may wait beside those that have a row.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    presenter: str | None = None
    viewer: str | None = None
    api_key: str | None = None
    max_queue: int = 256

    @classmethod
    def make(cls, host: str, port: int, share: bool, api_key: str | None = None, max_queue: int = 256) -> "Access":
        """Make two random tokens when shared. Raises ValueError for a host that others reach, unless shared."""
        if not share and host not in LOOPBACK:
            raise ValueError(f"--host {host} lets other machines in: add --share, which guards the page by tokens")
        if api_key == "":
            raise ValueError("--api-key is empty: name a key, or leave it out")
        if max_queue < 0:
            raise ValueError(f"--max-queue must be 0 or more, got {max_queue}")
        tokens = (secrets.token_urlsafe(18), secrets.token_urlsafe(18)) if share else (None, None)
        return cls(host, port, tokens[0], tokens[1], api_key, max_queue)

    def role(self, token: str) -> str | None:
        """Return "presenter", "viewer" or None for a token that someone shows."""
        for role, known in (("presenter", self.presenter), ("viewer", self.viewer)):
            if known and hmac.compare_digest(known.encode(), token.encode()):
                return role
        return None

    def has_key(self, shown: str) -> bool:
        """Return whether someone may use the API by the key that they show."""
        return self.api_key is not None and hmac.compare_digest(self.api_key.encode(), shown.encode())

    @property
    def cookie(self) -> str:
        return f"batchscope_{self.port}"


class Guard:
    """WSGI middleware that refuses a foreign Host, a foreign Origin and, when shared, whoever shows no token."""

    def __init__(self, app: WsgiApp, access: Access) -> None:
        self._app = app
        self._access = access

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        # NOTE: browsers offer permessage-deflate, and compressing each frame for each viewer takes most of a core.
        environ.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
        if reason := self._refusal(environ):
            return _answer(start_response, "403 Forbidden", error_body(403, reason))
        if self._lacks_key(environ):
            return _answer(start_response, "401 Unauthorized", error_body(401, NO_KEY), ("WWW-Authenticate", "Bearer"))
        token = _query_token(environ)
        if self._access.presenter and token and environ.get("PATH_INFO") in PAGES:
            return self._remember(token, environ, start_response)
        return self._app(environ, start_response)

    def _refusal(self, environ: Environ) -> str | None:
        """Return why the request is refused, or None."""
        host = environ.get("HTTP_HOST", "")
        origin = environ.get("HTTP_ORIGIN")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"a page from {origin} may not use this server"
        if self._access.presenter is None:
            allowed = _hostname(host) in LOOPBACK
            return None if allowed else f"the Host header {host!r} is not this server: open http://{LOOPBACK[0]}"
        if _is_keyed(environ) and self._access.api_key:
            return None  # the key lets in, or keeps out
        role = self._access.role(self._token(environ))
        if role is None:
            return "this server is shared by token: open the whole address that `batchscope serve` printed"
        if role == "viewer" and environ["REQUEST_METHOD"] not in READING and not _is_socket(environ):
            return "the viewer's address may look, and only the presenter's may act"
        return None

    def _lacks_key(self, environ: Environ) -> bool:
        return self._access.api_key is not None and _is_keyed(environ) and not self._access.has_key(_bearer(environ))

    def _token(self, environ: Environ) -> str:
        """Return the token in the address, the Authorization header or the cookie, in this order."""
        if token := _query_token(environ) or _bearer(environ):
            return token
        try:
            morsel = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(self._access.cookie)
        except CookieError:
            return ""
        return morsel.value if morsel else ""

    def _remember(self, token: str, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Move the token from the address, where others could read it, to a cookie."""
        cookie = f"{self._access.cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
        query = urlencode({name: values[0] for name, values in _query(environ).items() if name != "token"})
        address = environ["PATH_INFO"] + (f"?{query}" if query else "")
        return _answer(start_response, "303 See Other", b"", ("Location", address), ("Set-Cookie", cookie))


def content_security_policy(page: bytes) -> str:
    """Return the policy for a page of HTML: everything from this server, plus the page's own inline scripts by hash."""
    digests = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in INLINE_SCRIPT.findall(page)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])
    return (
        f"default-src 'self'; script-src {scripts}; img-src 'self' data: blob:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    )


def _answer(start_response: StartResponse, status: str, body: bytes, *headers: tuple[str, str]) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers])
    return [body]


def _bearer(environ: Environ) -> str:
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _is_keyed(environ: Environ) -> bool:
    return environ.get("PATH_INFO", "").startswith(KEYED)


def _query_token(environ: Environ) -> str:
    return _query(environ).get("token", [""])[0]


def _query(environ: Environ) -> dict[str, list[str]]:
    return parse_qs(environ.get("QUERY_STRING", ""))


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_socket(environ: Environ) -> bool:
    return environ.get("PATH_INFO", "").startswith("/socket.io")

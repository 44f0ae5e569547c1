"""Who may look and who may act."""

import base64
import hashlib
import re

import pytest

from webui.security import Access, Guard, content_security_policy

LOCAL = Access("127.0.0.1", 8000)
SHARED = Access("0.0.0.0", 8000, presenter="presenter-token", viewer="viewer-token")


def ask(access, method="GET", path="/", query="", **headers):
    """Return (status, headers, environ that the app saw or None)."""
    seen, answer = [], []

    def app(environ, start_response):
        seen.append(environ)
        start_response("200 OK", [])
        return [b""]

    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": "127.0.0.1:8000"}
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    list(Guard(app, access)(environ, lambda status, headers: answer.append((status, dict(headers)))))
    return int(answer[0][0].split()[0]), answer[0][1], seen[0] if seen else None


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9000", "[::1]:8000", "localhost"])
def test_this_machines_names_are_served(host):
    assert ask(LOCAL, host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "", "[", "192.168.1.5:8000"])
def test_a_foreign_host_is_refused(host):
    assert ask(LOCAL, host=host)[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9", "null", "http://[", ""])
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/completions"), ("DELETE", "/api/requests/a"),
                                              ("GET", "/socket.io/")])  # fmt: skip
def test_a_page_from_elsewhere_is_refused(origin, method, path):
    assert ask(LOCAL, method, path, origin=origin)[0] == 403


def test_the_page_itself_and_programs_may_act():
    assert ask(LOCAL, "POST", origin="http://127.0.0.1:8000")[0] == 200
    assert ask(LOCAL, "POST")[0] == 200


def test_no_websocket_extension_is_negotiated():
    _, _, seen = ask(LOCAL, sec_websocket_extensions="permessage-deflate")
    assert "HTTP_SEC_WEBSOCKET_EXTENSIONS" not in seen


def test_another_host_needs_share():
    with pytest.raises(ValueError, match="--share"):
        Access.make("0.0.0.0", 8000, share=False)
    shared = Access.make("0.0.0.0", 8000, share=True)
    assert shared.presenter != shared.viewer
    assert min(len(shared.presenter), len(shared.viewer)) >= 24


@pytest.mark.parametrize("path", ["/", "/api/state", "/socket.io/", "/v1/models", "/static/main.js"])
def test_without_a_token_nothing_is_shown(path):
    assert ask(SHARED, path=path)[0] == 403
    assert ask(SHARED, path=path, query="token=wrong", cookie="batchscope_8000=wrong")[0] == 403


def test_the_token_moves_from_the_address_to_a_cookie():
    status, headers, _ = ask(SHARED, query="token=viewer-token")
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert ask(SHARED, cookie=headers["Set-Cookie"].split(";")[0])[0] == 200


def test_viewers_look_and_presenters_act():
    viewer, presenter = "batchscope_8000=viewer-token", "batchscope_8000=presenter-token"
    assert ask(SHARED, "POST", "/api/control", cookie=viewer)[0] == 403
    assert ask(SHARED, "DELETE", "/api/requests/a", cookie=viewer)[0] == 403
    assert ask(SHARED, "GET", "/api/state", cookie=viewer)[0] == 200
    assert ask(SHARED, "GET", "/socket.io/", cookie=viewer)[0] == 200
    assert ask(SHARED, "POST", "/api/control", cookie=presenter)[0] == 200
    assert ask(SHARED, "POST", "/v1/completions", authorization="Bearer presenter-token")[0] == 200


def test_the_policy_allows_the_inline_import_map_by_its_hash_and_nothing_else_inline():
    script = b'{"imports":{}}'
    page = b'<script type="importmap">' + script + b'</script><script src="/static/main.js"></script>'
    policy = content_security_policy(page)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:", policy)

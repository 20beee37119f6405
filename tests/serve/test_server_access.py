"""Who may use a server, and from where."""

from __future__ import annotations

import pytest

from fakes.raw_http import BODY, answer, connect, error, head, post, read_all
from fakes.serving import counting, serving

KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def server():
    with serving(counting()) as served:
        yield served


@pytest.fixture(scope="module")
def locked():
    with serving(counting(), api_keys=KEYS) as served:
        yield served


@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens(locked, key):
    assert answer(locked, post(BODY, f"Authorization: Bearer {key}"))[0] == 200
    assert answer(locked, post(BODY, f"authorization: bearer  {key}"))[0] == 200


@pytest.mark.parametrize(
    "line",
    [
        "X-Nothing: 1",
        "Authorization: Bearer",
        "Authorization: Bearer wrong",
        "Authorization: Bearer first-ke",
        "Authorization: Bearer first-keyy",
        "Authorization: Bearer first-key second-key",
        "Authorization: Basic first-key",
        "Authorization: first-key",
        "Authorization: Bearer \xe9",
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/nope"])
def test_without_a_right_key_nothing_opens(locked, line, path):
    status, headers, body = answer(locked, post(BODY, line, path=path))
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")
    assert headers["www-authenticate"] == "Bearer"


def test_a_key_is_compared_before_the_body_is_read(locked):
    request = head("/v1/completions", "Content-Length: 999999999")
    assert error(locked, request) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/health", "/metrics", "/"])
def test_what_watches_a_server_needs_no_key(locked, path):
    with connect(locked) as connection:
        connection.sendall(head(path, "Connection: close", method="GET"))
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_models_need_a_key(locked):
    assert error(locked, head("/v1/models", method="GET"))[0] == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:8000", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200),
        ("192.168.1.5", 200), ("app.localhost", 200), ("LOCALHOST", 200),
        ("evil.example", 403), ("evil.example:8000", 403), ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)  # fmt: skip
def test_a_page_elsewhere_cannot_use_a_local_server_by_a_name_of_its_own(host, status):
    with serving(counting(), loopback=True) as served, connect(served) as connection:
        connection.sendall(head("/health", "Connection: close", method="GET", host=host))
        assert read_all(connection).startswith(b"HTTP/1.1 %d" % status)


def test_no_page_elsewhere_is_let_in_by_the_browser(server):
    preflight = head("/v1/completions", "Origin: http://evil.example",
                     "Access-Control-Request-Method: POST", method="OPTIONS")  # fmt: skip
    status, headers, _ = answer(server, preflight)
    assert status == 405
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_page_may_only_talk_to_its_server(server):
    with connect(server) as connection:
        connection.sendall(head("/", "Connection: close", method="GET"))
        start, _, page = read_all(connection).partition(b"\r\n\r\n")
    policy = start.decode().lower().partition("content-security-policy: ")[2].partition("\r\n")[0]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy
    nonce = start.decode().partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"'.encode() in page
    assert b"default-src" not in page

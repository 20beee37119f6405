"""What a server does with requests that are malformed, too large or too slow."""

from __future__ import annotations

import json

import pytest

from fakes.raw_http import BODY, answer, connect, endless, error, head, post, read_all, until
from fakes.serving import after, counting, serving


@pytest.fixture(scope="module")
def server():
    with serving(endless(), max_body_bytes=20_000) as served:
        yield served


def test_a_sound_request(server):
    status, headers, body = answer(server, post(BODY))
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body["choices"][0]["text"] == after("a", 8)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
def test_the_body_must_be_called_json(server, kind, status):
    content = json.dumps(BODY).encode()
    lines = [f"Content-Length: {len(content)}", *([f"Content-Type: {kind}"] if kind else [])]
    got, _, body = answer(server, head("/v1/completions", *lines) + content)
    assert got == status
    if status != 200:
        assert "application/json" in body["error"]["message"]


def test_a_body_past_the_limit_is_refused_before_it_is_read(server):
    request = head(
        "/v1/completions", "Content-Type: application/json", "Content-Length: 20001"
    )  # fmt: skip
    assert error(server, request) == (413, "request_too_large")


def test_a_body_without_a_length_is_limited_too(server):
    start = head(
        "/v1/completions", "Content-Type: application/json", "Transfer-Encoding: chunked"
    )  # fmt: skip
    piece = b"400\r\n" + b" " * 1024 + b"\r\n"
    assert error(server, start + piece * 20) == (413, "request_too_large")


def test_a_chunked_body_is_read(server):
    content = json.dumps(BODY).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (1, content[i : i + 1]) for i in range(len(content)))
    start = head(
        "/v1/completions", "Content-Type: application/json", "Transfer-Encoding: chunked"
    )  # fmt: skip
    assert answer(server, start + pieces + b"0\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 10_000, b'{"prompt": NaN}', b"\xff\xfe", b'{"n": 1, "n": 2}']
)
def test_bad_json_is_an_error_of_the_client(server, body):
    assert error(server, post(body)) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/v1/../etc/passwd", 404, None),
        ("GET", "/v1/models/../../etc/passwd", 404, None),
        ("GET", "/v1/models/%2e%2e%2fsecret", 404, "model_not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
    ],
)
def test_other_paths_and_methods_are_errors_of_the_same_form(server, method, path, status, code):
    got = error(server, head(path, method=method))
    assert got[0] == status
    assert code in (None, got[1])


def test_a_body_that_does_not_arrive_is_given_up():
    with serving(counting(), body_timeout=0.05) as served:
        request = post(BODY)[:-5]
        assert error(served, request) == (408, "request_timeout")


def test_a_client_that_leaves_while_it_sends_is_no_failure(server, caplog):
    with connect(server) as connection:
        connection.sendall(post(BODY)[:-5])
    until(lambda: server.metric("requests_rejected_total", reason="client_gone") > 0)
    assert caplog.text == ""


def test_an_engine_that_failed_is_told():
    with serving(counting()) as served:
        served.service.failure = RuntimeError("x")
        with connect(served) as connection:
            connection.sendall(head("/health", "Connection: close", method="GET"))
            assert read_all(connection).startswith(b"HTTP/1.1 503")
        assert error(served, post(BODY)) == (503, "engine_failed")

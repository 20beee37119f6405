"""How a server ends, and where it cannot begin."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.serve.app import create_app
from adaptivespec.serve.run import Server, bind
from adaptivespec.serve.service import Service
from adaptivespec.serve.settings import ServeSettings
from fakes.raw_http import BODY, Gated, connect, head, post, read_all, read_one, until
from fakes.serving import MODEL, Served, counting


@contextmanager
def ending(drain_timeout: float) -> Iterator[tuple[Served, Gated, Server, threading.Thread]]:
    """A gated server that the test stops."""
    target = Gated()
    service = Service(counting(target=target), slots=2, queue=2)
    app = create_app(service, ServeSettings(model=MODEL))
    service.start()
    ready = threading.Event()
    server = Server(app, service, bind("127.0.0.1", 0), drain_timeout=drain_timeout,
                    on_ready=lambda port: ready.set())  # fmt: skip
    thread = threading.Thread(target=server.run)
    thread.start()
    assert ready.wait(20)
    served = Served(server.port, service, app)
    try:
        yield served, target, server, thread
    finally:
        target.release()
        server.stop()
        server.stop()
        thread.join(20)
        service.close()


def test_at_the_end_answers_under_way_are_finished_and_new_ones_refused():
    with ending(60) as (served, target, server, thread):
        with connect(served) as running, connect(served) as kept:
            kept.sendall(head("/health", method="GET"))
            assert b'"ok"' in read_one(kept)
            running.sendall(post({**BODY, "stream": True}, "Connection: close"))
            until(lambda: served.service.running == 1)
            server.stop()
            until(lambda: served.service.draining)
            kept.sendall(post(BODY))
            refused = read_one(kept)
            assert refused.startswith(b"HTTP/1.1 503")
            assert b"retry-after" in refused.lower()
            assert b'"draining"' in refused
            kept.sendall(head("/health", method="GET"))
            assert read_one(kept).startswith(b"HTTP/1.1 503")
            target.release()
            assert read_all(running).rstrip(b"\r\n0").endswith(b"data: [DONE]")
        thread.join(20)
        assert not thread.is_alive()


def test_at_the_end_what_takes_too_long_is_told_so():
    with ending(0.05) as (served, _, server, thread):
        with connect(served) as streamed, connect(served) as whole:
            streamed.sendall(post({**BODY, "stream": True}, "Connection: close"))
            whole.sendall(post(BODY, "Connection: close"))
            until(lambda: served.service.running + served.service.waiting == 2)
            server.stop()
            told = read_all(streamed).decode()
            assert '"code":"draining"' in told
            assert "[DONE]" not in told
            assert read_all(whole).startswith(b"HTTP/1.1 503")
        thread.join(20)
        assert not thread.is_alive()


def test_a_second_signal_ends_at_once():
    with ending(600) as (served, _, server, thread), connect(served) as streamed:
        streamed.sendall(post({**BODY, "stream": True}))
        until(lambda: served.service.running == 1)
        server.stop()
        until(lambda: served.service.draining)
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def test_signals_that_come_faster_than_they_are_handled(caplog):
    with ending(600) as (served, _, server, thread), connect(served) as streamed:
        streamed.sendall(post({**BODY, "stream": True}))
        until(lambda: served.service.running == 1)
        for _ in range(5):
            server.stop()
        thread.join(20)
        assert not thread.is_alive()
        assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_an_address_in_use_is_an_error_with_a_remedy():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="--port") as caught:
            bind("127.0.0.1", port)
        assert caught.value.field == "port"


@pytest.mark.parametrize(
    ("host", "port", "field"),
    [("no.such.host.invalid", 0, "host"), ("203.0.113.1", 0, "host"), ("127.0.0.1", 99999, "port"),
     ("127.0.0.1", -1, "port"), ("a" * 300, 0, "host")],
)  # fmt: skip
def test_what_is_no_address_here_is_an_error_that_says_which_part(host, port, field):
    with pytest.raises(ConfigError) as caught:
        bind(host, port)
    assert caught.value.field == field

"""What a server does with clients that are gone, slow, or too many."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import openai
import pytest

from adaptivespec.serve.answering import ABORT, Streamed
from adaptivespec.serve.parameters import read_ask
from adaptivespec.serve.responses import Writer
from fakes.raw_http import BODY, LONG, answer, connect, endless, error, gated, post, read_all, until
from fakes.serving import MODEL, counting, serving


@pytest.fixture(scope="module")
def server():
    with serving(endless(), max_body_bytes=20_000) as served:
        yield served


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_is_not_decoded_for(server, stream):
    before = server.metric("request_success_total", finished_reason="cancelled")
    with connect(server) as connection:
        connection.sendall(post({**LONG, "stream": stream}))
        until(lambda: server.service.running == 1)
        if stream:
            assert connection.recv(2000)
    until(lambda: server.service.running == 0)
    name = "request_success_total"
    until(lambda: server.metric(name, finished_reason="cancelled") == before + 1)


def test_who_leaves_stops_within_a_step():
    with gated() as (served, target):
        with connect(served) as connection:
            connection.sendall(post({**BODY, "max_tokens": 900, "stream": True}))
            until(lambda: served.service.running == 1)
            target.steps.release(2)
            until(lambda: target.passes == 2)
        ticket = next(iter(served.service._tickets.values()))
        until(lambda: ticket.cancelled)
        target.steps.release(1)  # the step that was under way
        until(lambda: served.service.running == 0)
        assert target.passes == 3


def test_who_leaves_the_queue_leaves_it():
    with gated(slots=1) as (served, _), connect(served) as first, connect(served) as second:
        first.sendall(post({**BODY, "stream": True}))
        until(lambda: served.service.running == 1)
        second.sendall(post(BODY))
        until(lambda: served.service.waiting == 1)
        second.close()
        until(lambda: served.service.waiting == 0)
        assert served.service.running == 1


def test_all_choices_of_who_leaves_are_given_up(server):
    with connect(server) as connection:
        connection.sendall(post({**LONG, "n": 3, "stream": True}))
        until(lambda: server.service.running == 3)
    until(lambda: server.service.running == 0)


def test_many_who_leave_take_nothing_with_them(server):
    for _ in range(50):
        with connect(server) as connection:
            connection.sendall(post({**LONG, "stream": True}))
            assert connection.recv(100)
    until(lambda: server.service.running == 0 and server.service.waiting == 0)
    assert answer(server, post(BODY))[0] == 200


def test_a_full_queue_asks_to_come_again():
    with (
        gated(slots=1, queue=1) as (served, target),
        connect(served) as first,
        connect(served) as second,
    ):
        first.sendall(post(BODY, "Connection: close"))
        until(lambda: served.service.running == 1)
        second.sendall(post(BODY, "Connection: close"))
        until(lambda: served.service.waiting == 1)
        status, headers, body = answer(served, post(BODY))
        assert (status, body["error"]["code"]) == (429, "queue_full")
        assert body["error"]["type"] == "rate_limit_error"
        assert int(headers["retry-after"]) >= 1
        assert served.metric("requests_rejected_total", reason="queue_full") == 1
        assert served.metric("num_requests_running") == 1
        assert served.metric("num_requests_waiting") == 1
        target.release()
        for connection in (first, second):
            assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_the_client_library_tries_again_by_itself():
    with (
        gated(slots=1, queue=0) as (served, target),
        connect(served) as first,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=2) as client,
    ):
        first.sendall(post(BODY))
        until(lambda: served.service.running == 1)

        def release() -> None:
            until(lambda: served.metric("requests_rejected_total", reason="queue_full") > 0)
            target.release()

        threading.Thread(target=release).start()
        answered = client.completions.create(model=MODEL, prompt="a", max_tokens=3,
                                             temperature=0)  # fmt: skip
        assert answered.choices[0].text == "bcd"


def test_more_answers_than_a_server_holds_are_refused():
    with serving(counting(), slots=2, queue=1) as served:
        assert error(served, post({**BODY, "n": 4})) == (400, "invalid_value")
        assert answer(served, post({**BODY, "n": 3}))[0] == 200
        assert served.service.waiting == 0


def test_who_reads_nothing_is_cut_off():
    """An answer larger than what the buffers on its way hold."""
    with serving(endless(), queue=64, send_timeout=0.2, send_buffer=4096) as served:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", served.port))
            prompts = ["a" * 5000] * 4
            connection.sendall(post({**BODY, "prompt": prompts, "n": 16, "echo": True,
                                     "stream": True}))  # fmt: skip
            name = "e2e_request_latency_seconds_count"
            until(lambda: served.metric(name) == 64)
            received = read_all(connection)
            assert b"data: {" in received
            assert b"[DONE]" not in received
        until(lambda: served.service.running == served.service.waiting == 0)
        assert served.metric("request_success_total", finished_reason="cancelled") > 0
        assert answer(served, post(BODY))[0] == 200


def test_who_accepts_nothing_is_known_by_the_clock_alone():
    """The connection is closed hard, since a polite end would wait in the same buffer."""
    aborted = []

    async def run() -> None:
        async def receive() -> dict[str, str]:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        tickets = served.service.submit([engine.job([1], max_tokens=5, raw=True)])
        ask = read_ask("completion", {**BODY, "stream": True})
        writer = Writer(engine, MODEL, ask, tickets, [""])
        response = Streamed(writer, tickets, served.app.state.metrics, 0.0,
                            usage=False, send_timeout=0.01)  # fmt: skip
        scope = {"type": "http", "extensions": {ABORT: lambda: aborted.append(True)}}
        await response(scope, receive, send)
        assert tickets[0].cancelled

    engine = counting()
    with serving(engine) as served:
        asyncio.run(run())
    assert aborted == [True]

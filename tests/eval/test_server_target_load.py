"""Load tests by the server target: every request ends once, and arrivals are Poisson."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from itertools import pairwise

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.targets.arrivals import arrival_times
from adaptivespec.eval.targets.base import Answer, Ask
from adaptivespec.eval.targets.server import ServerTarget
from adaptivespec.eval.tasks.base import Item
from fakes.openai_server import Script, serving

ASK = Ask(max_tokens=16)
ITEM = Item("echo", 0, ("one two three",))


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(script: Script) -> Iterator[ServerTarget]:
    with serving(script) as address:
        made = ServerTarget(address, timeout=20.0)
        yield made
        made.close()


def test_many_requests_each_end_once(script: Script, target: ServerTarget) -> None:
    items = [Item("echo", n, (f"word{n} end",)) for n in range(64)]
    ended: dict[int, Answer] = {}

    def on_answer(item: Item, answer: Answer) -> None:
        assert item.index not in ended
        ended[item.index] = answer

    target.answer_many(target.arms[0], items, ASK, concurrency=8, on_answer=on_answer)
    assert sorted(ended) == list(range(64))
    assert all(answer.text == f"WORD{n} END " for n, answer in ended.items())
    assert script.most <= 8


def test_a_request_that_fails_leaves_the_others(target: ServerTarget, script: Script) -> None:
    items = [Item("echo", n, ("a b",)) for n in range(8)]
    script.status = 500
    errors: list[str | None] = []

    def on_answer(item: Item, answer: Answer) -> None:
        errors.append(answer.error)
        script.status = 200

    target.answer_many(target.arms[0], items, ASK, concurrency=1, on_answer=on_answer)
    assert errors[0] is not None
    assert errors[1:] == [None] * 7


def test_what_on_answer_raises_ends_the_run(target: ServerTarget) -> None:
    def on_answer(item: Item, answer: Answer) -> None:
        raise OSError("disk full")

    items = [Item("echo", n, ("a",)) for n in range(9)]
    with pytest.raises(OSError, match="disk full"):
        target.answer_many(target.arms[0], items, ASK, concurrency=3, on_answer=on_answer)
    assert target.answer(target.arms[0], ITEM, ASK).error is None


def test_ctrl_c_ends_a_run_cleanly(script: Script, target: ServerTarget) -> None:
    items = [Item("echo", n, ("a b",)) for n in range(9)]
    script.fault = "endless"
    ended: list[Answer] = []
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        target.answer_many(
            target.arms[0], items, ASK, concurrency=4, on_answer=lambda _, a: ended.append(a)
        )
    timer.join()
    assert ended == []
    script.fault = ""
    assert target.answer(target.arms[0], ITEM, ASK).error is None


def test_closing_ends_a_run_of_another_thread(script: Script) -> None:
    items = [Item("echo", n, ("a b",)) for n in range(9)]
    script.fault = "endless"
    ended: list[object] = []

    def run() -> None:
        try:
            target.answer_many(target.arms[0], items, ASK, concurrency=4, on_answer=pytest.fail)
        except CancelledError as error:
            ended.append(error)

    with serving(script) as address:
        target = ServerTarget(address)
        thread = threading.Thread(target=run)
        thread.start()
        while not script.bodies:
            time.sleep(0.01)
        target.close()
        thread.join(20)
    assert len(ended) == 1


def test_no_items_no_requests(target: ServerTarget) -> None:
    target.answer_many(target.arms[0], [], ASK, concurrency=4, on_answer=pytest.fail)
    with pytest.raises(ConfigError, match="concurrency"):
        target.answer_many(target.arms[0], [ITEM], ASK, concurrency=0, on_answer=pytest.fail)


def test_requests_are_not_sent_before_their_time(target: ServerTarget) -> None:
    items = [Item("echo", n, ("a",)) for n in range(5)]
    begin = time.perf_counter()
    sent: dict[int, float] = {}

    def on_answer(item: Item, answer: Answer) -> None:
        sent[item.index] = time.perf_counter() - begin - answer.seconds

    target.answer_many(target.arms[0], items, ASK, request_rate=20.0, seed=3, on_answer=on_answer)
    times = arrival_times(5, 20.0, 3)
    assert all(sent[n] > times[n] - 0.001 for n in range(5))


def test_gaps_between_arrivals_are_exponential() -> None:
    from scipy.stats import kstest

    times = arrival_times(4000, 5.0, seed=1)
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0.0
    assert math.isclose(sum(gaps) / len(gaps), 0.2, rel_tol=0.05)
    assert kstest(gaps, "expon", args=(0, 0.2)).pvalue > 0.01
    assert arrival_times(9, 5.0, seed=1) == times[:9]
    assert arrival_times(9, 5.0, seed=2) != times[:9]
    assert arrival_times(3, None, seed=1) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_rates_that_are_none(rate: float) -> None:
    with pytest.raises(ConfigError, match="request_rate"):
        arrival_times(3, rate, seed=0)

"""The page and the server it is served by: what one says the other understands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.serving import Served, after, serving

Open = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[Served]:
    with serving() as served:
        yield served


def send(page: Any, tokens: int, rule: str = "margin", policy: str = "static:3,1,4") -> None:
    page.locator("#prompt").fill("a")
    page.locator("#max-tokens").fill(str(tokens))
    page.locator("#temperature").fill("0")
    page.locator("[data-ref=rule]").first.fill(rule)
    page.locator("[data-ref=policy]").first.fill(policy)
    page.locator("#send").click()


def ended(page: Any) -> None:
    page.locator("#send").wait_for()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def answer(page: Any, lane: int = 0) -> str:
    return "".join(page.locator(".answer").nth(lane).locator(".t").all_text_contents())


def test_an_answer_streams_with_trees_and_is_saved(server: Served, visit: Open) -> None:
    page = visit(server.url)
    send(page, 30)
    ended(page)
    assert page.locator(".lane .alert").inner_text() == ""
    assert answer(page) == after("a", 30)  # with characters of four tokens
    assert page.locator(".answer .t").count() == 30
    assert page.locator(".answer .exact").count() > 5
    assert page.locator(".node").count() > 1
    assert page.locator("[data-figure=length] dd").inner_text() > "1.5"
    with page.expect_download() as saved:
        page.locator("[data-ref=save]").click()
    header, *steps = Path(saved.value.path()).read_text("utf-8").splitlines()
    assert json.loads(header)["rule"] == "margin:kappa=0.2"
    assert sum(json.loads(step)["committed"] for step in steps) == 29


def test_side_by_side(server: Served, visit: Open) -> None:
    page = visit(server.url)
    page.locator("#compare").check()
    page.locator("[data-ref=rule]").nth(1).fill("strict")
    send(page, 40)
    ended(page)
    assert answer(page, 0) == answer(page, 1) == after("a", 40)
    assert page.locator("#versus p").inner_text() == "The same: 40 tokens."
    assert page.locator("[data-figure=lossless] dd").all_text_contents() == ["no", "yes"]


@pytest.mark.parametrize(
    ("rule", "policy", "word"), [("no-such", "none", "rule"), ("strict", "static:9,x", "policy")]
)
def test_refusals_name_what_is_wrong(
    server: Served, visit: Open, rule: str, policy: str, word: str
) -> None:
    page = visit(server.url)
    send(page, 5, rule, policy)
    ended(page)
    told = page.locator(".lane .alert").inner_text()
    assert word in told
    assert "send again" in told


def test_a_key_is_asked_for(visit: Open) -> None:
    with serving(api_keys=("secret",)) as server:
        page = visit(server.url)
        send(page, 5)
        ended(page)
        assert "Key" in page.locator(".lane .alert").inner_text()
        page.locator("#key").fill("secret")
        send(page, 5)
        page.locator(".answer .t").nth(4).wait_for()
        assert answer(page) == after("a", 5)

"""The playground when things end early: stopped, refused, lost, and told in words."""

from __future__ import annotations

import json

import pytest

from fakes import page_story
from fakes.page_reading import alert, answer, drawn, send
from fakes.page_server import BOOT, Script


def test_stop_ends_the_request_and_keeps_what_came(served):
    script = Script(hold_after=3)
    page = served(script)
    send(page, wait=False)
    page.locator(".answer .t").nth(3).wait_for()
    assert page.locator("#send").is_hidden()
    page.locator("#stop").click()
    page.wait_for_selector("#send:visible")
    assert script.gone.wait(10)
    assert answer(page) == "The sky is blue"
    assert page.locator("[data-ref=state]").inner_text() == "stopped after 4 tokens"
    assert alert(page) == ""
    page.locator("[data-ref=back]").click()
    drawn(page)
    assert page.locator(".answer .t:not(.future)").count() == 1


def test_escape_stops_too(served):
    script = Script(hold_after=3)
    page = served(script)
    send(page, wait=False)
    page.locator(".answer .t").nth(3).wait_for()
    page.keyboard.press("Escape")
    assert script.gone.wait(10)


REFUSALS = [
    (400, {"message": "must be at most 4096", "param": "max_tokens"}, {}, "max_tokens: must be"),
    (429, {"message": "The queue is full"}, {"Retry-After": "3"}, "again in 3 seconds."),
    (503, {"message": "The server is shutting down"}, {}, "shutting down. Wait a moment"),
    (500, {}, {}, "status 500. See what the server's log says."),
]


@pytest.mark.parametrize(("status", "error", "headers", "message"), REFUSALS)
def test_refusals_are_told_with_their_remedy(served, status, error, headers, message):
    page = served(Script(status=status, error=error, headers=headers))
    send(page)
    assert message in alert(page)
    assert page.locator(".lane .alert").get_attribute("role") == "alert"
    assert answer(page) == ""


def test_a_key_is_asked_for_and_not_kept(served):
    script = Script(key="secret")
    page = served(script)
    assert page.locator("#key").is_hidden()
    send(page)
    assert "Write the server's key into the field Key" in alert(page)
    assert page.evaluate("document.activeElement.id") == "key"
    page.locator("#key").fill("secret")
    page.locator("#send").click()
    page.wait_for_selector(".answer .t")
    page.wait_for_selector("#send:visible")
    assert alert(page) == ""
    kept = "localStorage.length + sessionStorage.length + document.cookie.length"
    assert page.evaluate(kept) == 0


def test_a_server_that_needs_a_key_is_asked_with_one(served):
    page = served(Script(key="secret", boot={**BOOT, "needs_key": True}))
    page.locator("#key").fill("secret")
    send(page)
    assert answer(page) == page_story.TEXT


def test_a_lost_connection_keeps_what_came(served):
    page = served(Script(cut_after=3))
    send(page)
    assert answer(page) == "The sky is blue"
    assert "The connection was lost" in alert(page)
    assert page.locator("[data-ref=state]").inner_text() == "incomplete after 4 tokens"


def test_an_error_within_the_stream_is_told(served):
    page = served(Script(error_event={"message": "NaN in the logits of step 3"}))
    send(page)
    assert "NaN in the logits of step 3." in alert(page)


def test_an_empty_prompt_is_not_sent(served):
    script = Script()
    page = served(script)
    page.locator("#prompt").fill("  ")
    page.locator("#send").click()
    assert page.locator("#alert").inner_text() == "Write a prompt first."
    assert script.bodies == []


def test_a_trace_is_not_opened_over_a_running_answer(served, tmp_path):
    script = Script(hold_after=3)
    page = served(script)
    send(page, wait=False)
    page.locator(".answer .t").nth(3).wait_for()
    file = tmp_path / "t.jsonl"
    lines = [page_story.header(), *page_story.steps()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page.set_input_files("#file", file)
    page.locator("#alert", has_text="Stop it first").wait_for()
    assert answer(page) == "The sky is blue"

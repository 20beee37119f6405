"""The document itself: one file, nothing fetched, and data that cannot leave its place."""

from __future__ import annotations

import json
import re

import pytest

from adaptivespec.serve.page import render

HOSTILE = {"header": {"prompt": "</script><script>alert(1)</script><!--\u2028&"}, "steps": []}


def test_it_refers_to_nothing_outside_of_it():
    page = render({"model": "m"}, HOSTILE, "n")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert not re.search(r"<link[^>]*stylesheet|<script[^>]*src=|@import|url\(", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", page)


def test_a_strict_policy_lets_all_of_it_through():
    page = render(nonce="abc")
    tags = re.findall(r"<(?:style|script)(?: [^>]*)?>", page)
    assert len(tags) == 4  # one style, one script, and two blocks of data that do not run
    assert all('nonce="abc"' in tag or "application/json" in tag for tag in tags)
    assert not re.search(r"<[a-z][^>]* (?:style|on\w+)=", page)
    assert "nonce" not in re.findall(r"<(?:style|script)(?: [^>]*)?>", render())[0]


def test_what_is_embedded_is_read_back_as_it_was():
    page = render(None, HOSTILE)
    blocks = re.findall(r'<script type="application/json" id="(\w+)">(.*?)</script>', page, re.S)
    assert {name: json.loads(text) for name, text in blocks} == {"boot": None, "trace": HOSTILE}
    assert page.count("<!--") == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_become_null(value):
    page = render(None, {"header": {}, "steps": [{"reason": {"x": value}, "plan": (1, 2, 3)}]})
    block = re.search(r'id="trace">(.*?)</script>', page).group(1)
    assert json.loads(block)["steps"] == [{"reason": {"x": None}, "plan": [1, 2, 3]}]


def test_a_nonce_cannot_end_its_attribute():
    assert 'nonce="&quot;&gt;"' in render(nonce='">')

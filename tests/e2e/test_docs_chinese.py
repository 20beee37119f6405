"""README.zh.md says what README.md says, as far as a test can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")
)


def blocks(text):
    return re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)


def sections(text):
    """The text outside of code, by its second-level headings."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.split(r"^## .*$", prose, flags=re.MULTILINE)


def tables(text):
    """Lines of tables, each as the code in its cells and how many cells there are."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [(line.count("|"), sorted(re.findall(r"`[^`]+`", line))) for line in lines]


def names(text):
    """All that is written as code."""
    return {name.replace("\n", " ") for name in re.findall(r"`([^`]+)`", text)}


def numbers(text):
    """Figures that stand in the text; a translation may spell small ones out."""
    text = re.sub(r"`[^`]+`|\]\([^)]*\)", "", text)
    return {n for n in re.findall(r"\d+(?:\.\d+)*", text) if len(n) > 1}


def links(text):
    return {link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("README")}


def test_the_code_is_the_same():
    assert blocks(CHINESE) == blocks(ENGLISH)


def test_there_are_as_many_sections():
    assert len(sections(CHINESE)) == len(sections(ENGLISH))


@pytest.mark.parametrize("of", [tables, names, numbers, links], ids=lambda of: of.__name__)
def test_each_section_holds_the_same(of):
    for english, chinese in zip(sections(ENGLISH), sections(CHINESE), strict=False):
        assert of(chinese) == of(english), english[:80]


def test_it_is_in_chinese():
    for section in sections(CHINESE):
        assert len(re.findall(r"[\u4e00-\u9fff]", section)) > 1

"""Prompts of a user's own: read, graded, and refused line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.errors import DataError
from adaptivespec.eval.prompts_task import GRADERS, prompts_task


@pytest.fixture
def file(tmp_path: Path):
    def write(*lines: object) -> Path:
        path = tmp_path / "prompts.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return path

    return write


def test_lines_are_items_in_their_order(file):
    task = prompts_task(file({"prompt": "a"}, "", {"prompt": "b", "answer": 3}), None)
    items = task.load(None)
    assert [(item.index, item.turns) for item in items] == [(0, ("a",)), (1, ("b",))]
    assert not task.graded
    assert task.grade(items[0], "x").correct is None


@pytest.mark.parametrize(
    ("grader", "reference", "text", "correct"),
    [
        ("exact", "Paris", " paris. ", True),
        ("exact", "Paris", "It is Paris", False),
        ("contains", "Paris", "It is Paris, of course", True),
        ("contains", "Paris", "It is Rome", False),
        ("number", 42, "So 40 + 2 = 42 apples.", True),
        ("number", "1,200", "The answer is 1200.", True),
        ("number", 42, "none at all", False),
        ("json", {"a": 1}, 'Here: {"a": "1"}', True),
        ("json", {"a": 1}, '{"a": 2}', False),
        ("json", {"a": 1}, "no object", False),
    ],
)
def test_grades(file, grader, reference, text, correct):
    task = prompts_task(file({"prompt": "p", "answer": reference}), grader)
    (item,) = task.load(None)
    assert task.graded
    assert task.grade(item, text).correct is correct


def test_mathematics_is_compared_as_such(file):
    pytest.importorskip("math_verify")
    task = prompts_task(file({"prompt": "p", "answer": "\\frac{1}{2}"}), "math")
    (item,) = task.load(None)
    assert task.grade(item, "It is $0.5$").correct is True
    assert task.grade(item, "It is $\\boxed{2}$").correct is False


def test_an_answer_without_a_final_one_is_unparsed(file):
    task = prompts_task(file({"prompt": "p", "answer": 1}), "number")
    grade = task.grade(task.load(None)[0], "well")
    assert (grade.status, grade.answer) == ("unparsed", "")


def test_another_grader_is_another_task(file):
    """So that graded answers of one are not taken for those of another."""
    path = file({"prompt": "p", "answer": 1})
    assert prompts_task(path, "exact").load(None) != prompts_task(path, "number").load(None)


@pytest.mark.parametrize(
    ("line", "grader", "word"),
    [
        ("{", None, "is no JSON ("),
        ("[1]", None, "is no JSON object"),
        ({"question": "p"}, None, "the key 'question', which means nothing"),
        ({"answer": "p"}, None, "has no prompt"),
        ({"prompt": " "}, None, "has no prompt"),
        ({"prompt": 1}, None, "has no prompt"),
        ({"prompt": "p"}, "exact", "has no answer to grade by"),
        ({"prompt": "p", "answer": "many"}, "number", "which is no number"),
        ({"prompt": "p", "answer": "many"}, "json", "which is no JSON object"),
    ],
)
def test_a_bad_line_is_named(file, line, grader, word):
    path = file({"prompt": "fine", "answer": 1 if grader != "json" else {}}, line)
    with pytest.raises(DataError) as caught:
        prompts_task(path, grader)
    assert f"{path}:2: " in str(caught.value)
    assert word in str(caught.value)
    assert caught.value.field == "prompts"


def test_a_bad_file_is_named(tmp_path, file):
    with pytest.raises(DataError, match="No such file"):
        prompts_task(tmp_path / "none.jsonl", None)
    with pytest.raises(DataError, match="holds no prompt"):
        prompts_task(file(""), None)
    with pytest.raises(ConfigError, match="exact, contains, number, math, json"):
        prompts_task(file({"prompt": "p"}), "vibes")
    assert list(GRADERS) == ["exact", "contains", "number", "math", "json"]

"""Prompts for a training corpus: distinct, repeatable, well formed, and free of benchmark items."""

from __future__ import annotations

import ast
import gzip
import json
import random
import re
from functools import cache
from pathlib import Path

import pytest

import adaptivespec.train.data.questions as package
from adaptivespec.core.errors import ConfigError
from adaptivespec.train.data.questions import KINDS, Question, questions
from adaptivespec.train.data.questions.code import COMPLETE
from adaptivespec.train.data.questions.functions import compose
from adaptivespec.train.data.questions.grammar import expand, polish
from adaptivespec.train.data.questions.tasks import MAKERS, TASKS

SAMPLE = 3000
WINDOW = 10


@cache
def sample(kind: str) -> list[Question]:
    return questions(kind, SAMPLE)


def texts(kind: str) -> list[str]:
    return [turn for question in sample(kind) for turn in question.turns]


def test_the_kinds_are_those_of_a_corpus():
    assert set(KINDS) == {"maths", "code", "chat", "json", "list"}


@pytest.mark.parametrize("kind", KINDS)
def test_questions_are_distinct_and_of_their_kind(kind):
    found = sample(kind)
    assert len(found) == SAMPLE
    assert len({question.turns[0] for question in found}) == SAMPLE
    assert {question.kind for question in found} == {kind}
    assert all(turn.strip() for turn in texts(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_fixes_them_and_a_smaller_count_is_a_prefix(kind):
    assert questions(kind, 50) == sample(kind)[:50]
    assert questions(kind, 50, seed=1) != sample(kind)[:50]


@pytest.mark.parametrize(
    ("kind", "count"),
    [("chat", 20000), ("code", 10000), ("maths", 10000), ("json", 5000), ("list", 5000)],
)
def test_there_are_enough_for_a_corpus(kind, count):
    assert len(questions(kind, count, seed=2)) == count


@pytest.mark.parametrize("kind", KINDS)
def test_most_are_short(kind):
    """In words; a token is about three quarters of one."""
    lengths = sorted(len(question.turns[0].split()) for question in sample(kind))
    assert lengths[0] >= 2
    assert lengths[SAMPLE // 10] >= 5
    assert lengths[SAMPLE * 9 // 10] <= 90


@pytest.mark.parametrize(("kind", "share"), [("chat", 0.12), ("code", 0.05), ("maths", 0.05)])
def test_some_are_conversations(kind, share):
    several = sum(len(question.turns) > 1 for question in sample(kind))
    assert several / SAMPLE == pytest.approx(share, abs=0.02)
    assert {len(question.turns) for question in sample(kind)} == {1, 2, 3}


def test_more_than_half_of_the_code_is_to_be_completed():
    share = sum(q.turns[0].startswith(COMPLETE) for q in sample("code")) / SAMPLE
    assert share == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("kind", ["chat", "json", "list"])
def test_no_template_shows(kind):
    for text in texts(kind):
        assert not re.search(
            r"\{\^?[a-z_.]+\}|\{\d+-\d+|\[[^\]\n\"]*\|[^\n]*\]|#\w+\}|<\w+>", text
        ), text


@pytest.mark.parametrize("kind", ["chat", "json", "list"])
def test_articles_and_blanks_are_right(kind):
    for text in texts(kind):
        prose = text.partition("\n")[0]
        if "grammar" in prose or "mistakes" in prose or prose.startswith(("Proofread", "Improve")):
            continue
        assert not re.search(
            r"\b[Aa] [aei][a-z]+", prose.replace("a one", "").replace("a eu", "")
        ), text
        assert not re.search(r"(?<=\S)  |\.\.(?!\.)(?<!\.\.\.)$| [.,?!]( |$)", prose), text


def test_openings_are_various():
    """The first five words, the mark of a template, recur rarely."""
    for kind, limit in (("chat", 0.02), ("maths", 0.03)):
        heads: dict[tuple[str, ...], int] = {}
        for question in sample(kind):
            head = tuple(question.turns[0].split()[:5])
            heads[head] = heads.get(head, 0) + 1
        assert max(heads.values()) <= limit * SAMPLE, max(heads, key=heads.__getitem__)


@pytest.mark.parametrize("kind", ["riddle", "", "MATHS"])
def test_an_unknown_kind_names_the_known(kind):
    with pytest.raises(ConfigError, match="maths") as error:
        questions(kind, 1)
    assert error.value.field == "kinds"


def test_too_many_and_too_few_are_refused(monkeypatch):
    monkeypatch.setitem(package._DRAW, "list", lambda rng: (str(rng.randrange(9)),))
    assert len(questions("list", 9)) == 9
    with pytest.raises(ConfigError, match="only 9 distinct"):
        questions("list", 10)
    with pytest.raises(ConfigError, match="-1"):
        questions("list", -1)
    assert questions("list", 0) == []


def run(source: str, name: str, arguments: tuple) -> object:
    scope: dict[str, object] = {}
    exec("from typing import *\n" + source, scope)  # noqa: S102
    return scope[name](*arguments)  # type: ignore[operator]


def test_composed_functions_do_what_their_examples_say():
    """The body that is shown elsewhere, as a loop and as a comprehension, gives the same."""
    rng = random.Random(5)
    for _ in range(400):
        function = compose(rng)
        for loop in (True, False):
            source = f"{function.signature}\n{function.body(loop)}"
            for arguments, result in function.examples:
                assert run(source, function.name, arguments) == result, source


def test_examples_in_docstrings_are_right():
    """Each prompt is Python when a body is added, and its examples hold for the references."""
    references = {task.name: task.reference for task in TASKS}
    checked = 0
    for text in texts("code"):
        if not text.startswith(COMPLETE):
            continue
        tree = ast.parse(text.removeprefix(COMPLETE))
        function = next(n for n in reversed(tree.body) if isinstance(n, ast.FunctionDef))
        for call, shown in re.findall(r">>> (.*)\n\s*(.*)\n", text):
            node = ast.parse(call, mode="eval").body
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Name)
            assert node.func.id == function.name
            result = ast.literal_eval(shown)
            if reference := references.get(function.name):
                assert reference(*map(ast.literal_eval, node.args)) == result, text
                checked += 1
    assert checked > 100


def test_makers_and_names_of_tasks():
    assert len({task.name for task in TASKS}) == len(TASKS)
    for task in TASKS:
        assert len(task.makes.split()) == task.arguments.count(":"), task.name
        assert set(task.makes.split()) <= set(MAKERS)


def test_grammar():
    rng = random.Random(0)
    slots = {"a": ("x", "y"), "b": ("{a#1}{a#1}",), "f": lambda rng: "z"}
    assert expand(rng, "{a#1}{a#1}{a#2}", slots) in ("xxy", "yyx")
    assert expand(rng, "{b} {^f}", slots) in ("xx Z", "yy Z")
    assert int(expand(rng, "{2-3*10}", {})) in (20, 30)
    assert expand(rng, "[p|]{unknown} [0, 1]", {}) in ("p{unknown} [0, 1]", "{unknown} [0, 1]")
    assert (
        polish("an one-eyed a owl , an hour. a uniform") == "a one-eyed an owl, an hour. a uniform"
    )


def test_files_stay_small():
    for path in Path(package.__file__).parent.glob("*.py"):
        assert len(path.read_text().splitlines()) < 350, path.name


def windows(text: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {" ".join(words[i : i + WINDOW]) for i in range(len(words) - WINDOW + 1)}


def benchmark_items(folder: Path) -> dict[str, list[dict]]:
    items = {}
    for name in ("gsm8k_test.jsonl", "math500.jsonl", "mt_bench.jsonl"):
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        items[name] = [json.loads(line) for line in lines]
    with gzip.open(folder / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
        items["HumanEval"] = [json.loads(line) for line in file]
    return items


@pytest.mark.shared
@pytest.mark.parametrize("kind", KINDS)
def test_no_benchmark_item_is_among_them(kind, shared_data):
    taken: dict[str, str] = {}
    for name, items in benchmark_items(shared_data).items():
        for item in items:
            for value in item.values():
                for part in value if isinstance(value, list) else [value]:
                    taken.update(dict.fromkeys(windows(str(part)), name))
    for text in texts(kind):
        common = windows(text) & taken.keys()
        assert not common, (taken[common.pop()], text)


@pytest.mark.shared
def test_no_function_has_a_benchmark_name(shared_data):
    names = {item["entry_point"] for item in benchmark_items(shared_data)["HumanEval"]}
    ours = {name for text in texts("code") for name in re.findall(r"def (\w+)\(", text)}
    assert names & ours == set()

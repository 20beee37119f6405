"""Tasks: the contract that all keep, their items, and verdicts on right and wrong answers."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adaptivespec.eval.tasks import BUILT_IN, TASKS, make_task
from adaptivespec.eval.tasks.bank import exercises
from adaptivespec.eval.tasks.base import Grade, Item, Task
from adaptivespec.eval.tasks.countries import CAPITALS
from adaptivespec.eval.tasks.functions import Functions
from fakes.task_files import write_all


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_all(tmp_path)


def right_answer(item: Item) -> str:
    """An answer that a good model might give."""
    reference = item.reference
    if item.task == "json":
        return f"Sure!\n```json\n{json.dumps(reference, indent=2)}\n```"
    if item.task == "lists":
        return "Here is the list:\n\n" + "\n".join(f"- {word.title()}" for word in reference)
    if item.task == "capitals":
        return f"It is **{reference}**."
    if item.task == "gsm8k":
        return f"We add.\n#### {reference}"
    if item.task == "math500":
        return f"So it is $\\boxed{{{reference}}}$."
    name = reference["name"] if "name" in reference else reference["entry_point"]
    if item.task == "functions":
        results = dict(zip(reference["calls"], reference["results"], strict=True))
        lines = [f"    {call[len(name) :]!r}: {result}," for call, result in results.items()]
        lines = [f"_table = {{\n{chr(10).join(lines)}\n}}", f"def {name}(*a):"]
        lines += ["    key = '(' + ', '.join(map(repr, a)) + ')'", "    return _table[key]"]
        return "```python\n" + "\n".join(lines) + "\n```"
    return f"```python\nimport math\ndef {name}(x):\n    return math.sqrt(x)\n```"


def few(items: Sequence[Item]) -> Iterator[Item]:
    yield from items[:: max(1, len(items) // 6)]


@pytest.mark.parametrize("name", TASKS)
def test_contract(name: str, data: Path) -> None:
    task = make_task(name)
    assert isinstance(task, Task)
    assert task.name == name
    assert all((task.title, task.summary, task.source))
    assert task.max_tokens > 0
    items = task.load(data)
    assert list(items) == list(make_task(name).load(data))
    assert [item.index for item in items] == list(range(len(items)))
    assert {item.task for item in items} == {name}
    assert len({item.turns for item in items}) == len(items)
    assert all(turn.strip() for item in items for turn in item.turns)
    assert json.loads(json.dumps([item.reference for item in items])) == [
        item.reference for item in items
    ]


@pytest.mark.parametrize("name", [name for name in TASKS if name != "mt_bench"])
def test_right_and_wrong_answers(name: str, data: Path) -> None:
    task = make_task(name)
    for item in few(task.load(data)):
        grade = task.grade(item, right_answer(item))
        assert grade.correct is True, (item, grade)
        assert grade.status == "graded"
        assert grade.answer
        wrong = task.grade(item, "def wrong(): 1000000")
        assert wrong.correct is False
        assert wrong.answer != grade.answer
        assert task.grade(item, "").status == "unparsed"
    for text in ("   \n", "\ud800", "{" * 100, "```python\n", "\x00", "(" * 1000):
        odd = task.grade(item, text)
        assert odd.correct is False
        assert odd.status in ("graded", "unparsed")


PIECES = st.sampled_from(
    [
        *(
            '{"name": ',
            '"',
            "}",
            "[",
            "```",
            "json\n",
            "- ",
            "1. ",
            ":",
            ",",
            "\\ud800",
            "\n",
            "NaN",
        ),
        *("####", "\\boxed{", "$", "-", "=", "answer is ", "7", "1,000", ".", "1e999", "\u0663"),
        *("Paris", "is "),
    ]
)


@pytest.mark.parametrize("name", ["json", "lists", "capitals", "gsm8k"])
@given(text=st.lists(PIECES | st.text(max_size=4), max_size=30).map("".join))
@example(text='{"name": "\\ud800"}')
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_grading_never_raises_and_repeats_itself(name: str, data: Path, text: str) -> None:
    task = make_task(name)
    item = task.load(data)[0]
    grade = task.grade(item, text)
    assert grade == task.grade(item, text)
    assert (grade.status == "unparsed") <= (grade.answer == "")
    grade.answer.encode()  # it goes into a file


def test_built_in_tasks_have_about_a_hundred_items_and_need_no_file() -> None:
    for name in BUILT_IN:
        assert 100 <= len(make_task(name).load(None)) <= 120
    assert len(make_task("json").load(None)) == len(make_task("lists").load(None)) == 100


def test_conversations_are_not_graded(data: Path) -> None:
    task = make_task("mt_bench")
    (item,) = task.load(data)
    assert item.turns == ("Write a line.", "Now another.")
    assert not task.graded
    assert task.grade(item, "text") == Grade(None, "", "ungraded")


def test_json_has_to_have_all_fields_and_no_other() -> None:
    task = make_task("json")
    item = task.load(None)[0]
    shuffled = dict(reversed(item.reference.items()))
    as_text = {key: str(value).upper() for key, value in shuffled.items()}
    assert task.grade(item, json.dumps(shuffled)).correct
    assert (
        task.grade(item, json.dumps(as_text)).answer
        == task.grade(item, json.dumps(item.reference)).answer
    )
    assert not task.grade(item, json.dumps(item.reference | {"more": 1})).correct
    key = next(iter(item.reference))
    assert not task.grade(item, json.dumps(item.reference | {key: "x"})).correct
    deep = '{"a":' * 900 + "1" + "}" * 900
    assert task.grade(item, deep).status == "unparsed"


def test_lists_keep_their_order() -> None:
    task = make_task("lists")
    item = task.load(None)[0]
    assert task.grade(item, " ".join(item.reference)).correct
    assert not task.grade(item, ", ".join(item.reference[::-1])).correct
    assert not task.grade(item, ", ".join(item.reference[:-1])).correct


def test_the_first_capital_counts() -> None:
    task = make_task("capitals")
    items = {item.reference: item for item in task.load(None)}
    assert len(items) == len(CAPITALS)
    canberra = items["Canberra"]
    assert task.grade(canberra, "Canberra, not Vienna.").correct
    assert task.grade(canberra, "Vienna, or rather Canberra").answer == "vienna"
    sydney = task.grade(canberra, "The capital city of Australia is Sydney, a port.")
    assert (sydney.correct, sydney.answer) == (False, "sydney")
    assert task.grade(items["Kyiv"], "Kiev").correct
    assert task.grade(items["Bogota"], "Bogotá").correct
    assert task.grade(items["Mexico City"], "the capital of mexico is mexico city").correct
    assert task.grade(items["New Delhi"], "Delhi").correct
    assert not task.grade(items["Rome"], "Romeo").correct


def test_references_of_functions_give_what_is_asked() -> None:
    task = make_task("functions")
    for item in few(task.load(None)):
        assert item.reference["name"] in item.turns[0]
        assert '"""' in item.turns[0]
        assert "return" not in item.turns[0].split('"""')[-1]
    names = [exercise.reference.__name__ for exercise in exercises()]
    assert len(set(names)) == len(names)
    for exercise in exercises():
        results = {repr(exercise.reference(*arguments)) for arguments in exercise.arguments}
        assert len(results) > 1, exercise.reference.__name__


def test_numbers_of_functions_are_compared_by_value() -> None:
    task = Functions()
    item = next(i for i in task.load(None) if i.reference["name"] == "mean_of_two")
    answers = [f"def mean_of_two(a, b): return {body}" for body in ("(a + b) / 2", "(a + b) // 2")]
    first, second = (task.grade(item, answer) for answer in answers)
    assert first.correct
    assert not second.correct
    even = next(i for i in task.load(None) if i.reference["name"] == "is_even_number")
    assert not task.grade(even, "def is_even_number(n): return 1 - n % 2").correct


def test_humaneval_takes_bodies_functions_and_helpers(data: Path) -> None:
    task = make_task("humaneval")
    (item,) = task.load(data)
    answers = [
        "    return math.sqrt(x)",
        "return math.sqrt(x)",
        "def root(x):\n    return math.sqrt(x)",
        "def half():\n    return 0.5\n\ndef root(x):\n    return x ** half()",
        "```python\ndef root(x):\n    return x ** 0.5  # why not\n```\nTry `root(4)`.",
    ]
    assert all(task.grade(item, answer).correct for answer in answers)
    assert len({task.grade(item, answer).answer for answer in answers[:3]}) == 2
    for answer in ("    return 0", "    import os; os._exit(0)", "    exit()", "def root(: pass"):
        assert not task.grade(item, answer).correct


def windows(text: str, size: int = 10) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def test_no_item_is_a_training_question() -> None:
    from adaptivespec.train.data.questions import questions
    from adaptivespec.train.data.questions.functions import compose
    from adaptivespec.train.data.questions.tasks import TASKS as TRAINED

    known: set[tuple[str, ...]] = set()
    texts: set[str] = set()
    for kind in ("json", "list", "code", "chat"):
        for question in questions(kind, 500, seed=11):
            texts.add(question.turns[0].strip())
            known |= windows(question.turns[0])
    for name in BUILT_IN:
        for item in make_task(name).load(None):
            assert item.turns[0] not in texts, item.key
            assert not windows(item.turns[0]) & known, item.key
    rng = random.Random(2)
    trained = {task.name for task in TRAINED} | {compose(rng).name for _ in range(3000)}
    assert not trained & {exercise.reference.__name__ for exercise in exercises()}


@pytest.mark.shared
def test_gold_answers_of_gsm8k_are_right(shared_data: Path) -> None:
    task = make_task("gsm8k")
    rows = [json.loads(line) for line in (shared_data / "gsm8k_test.jsonl").open()]
    items = task.load(shared_data)
    assert len(items) == 1319
    for item, row in zip(items, rows, strict=True):
        assert task.grade(item, row["answer"]).correct, item.key


@pytest.mark.shared
def test_answers_of_math500_equal_themselves(shared_data: Path) -> None:
    task = make_task("math500")
    items = task.load(shared_data)
    assert len(items) == 500
    for item in items:
        assert task.grade(item, f"It is $\\boxed{{{item.reference}}}$.").correct, item.key


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_solutions_of_humaneval_pass(whole: bool, shared_data: Path) -> None:
    task = make_task("humaneval")
    with gzip.open(shared_data / "HumanEval.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    items = task.load(shared_data)
    assert len(items) == 164
    for item, row in zip(items, rows, strict=True):
        code = row["canonical_solution"]
        answer = f"```python\n{row['prompt']}{code}\n```" if whole else code
        assert task.grade(item, answer).correct, item.key


@pytest.mark.shared
def test_conversations_of_mt_bench(shared_data: Path) -> None:
    items = make_task("mt_bench").load(shared_data)
    assert len(items) == 80
    assert {len(item.turns) for item in items} == {2}

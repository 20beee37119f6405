"""Graders: spellings of answers, code in answers, mathematics within limits and from threads."""

from __future__ import annotations

import threading
import time

import pytest

from adaptivespec.eval.grading import maths
from adaptivespec.eval.grading.code import extract_code
from adaptivespec.eval.grading.exact import (
    canonical,
    first_object,
    normal_text,
    words_in_order,
)
from adaptivespec.eval.grading.final_number import final_number, normal_number
from adaptivespec.eval.grading.maths import Verdict, compare

FINAL_NUMBERS = {
    "#### 18": "18",
    "9 * 2 = 18\n#### $18.00": "18",
    "#### 1,234": "1234",
    "#### Answer: 72": "72",
    "#### **72**": "72",
    "#### Step 1\nAdd 3 and 4.\n#### Step 2\nThe answer is 7.": "7",
    "So \\boxed{18} eggs": "18",
    "\\boxed{\\$1{,}250}": "1250",
    "\\boxed{70\\,000}": "70000",
    "\\boxed{12\\text{ apples}} of 20": "12",
    "The answer is $5.": "5",
    "The answer is **3.50**.": "3.5",
    "The final answer is: 42 dollars, not 40.": "42",
    "Answer: 5 * 3 = 15 apples.": "15",
    "The answer is 15. Then 7 more": "15",
    "16 - 3 = 13, so she makes $26 a day.": "26",
    "It fell to -5": "-5",
    "It fell to \u22125": "-5",
    "-$5": "-5",
    "3-5": "5",
    "0.50": "0.5",
    ".5": "0.5",
    "-0": "0",
    "100": "100",
    "007": "7",
    "no number at all": None,
    "": None,
}


@pytest.mark.parametrize("text", FINAL_NUMBERS)
def test_final_numbers(text: str) -> None:
    assert final_number(text) == FINAL_NUMBERS[text]


def test_numbers_in_their_normal_form() -> None:
    assert normal_number("$1,000,000.00") == "1000000"
    with pytest.raises(ValueError, match="no number"):
        normal_number("a dozen")


EQUAL = [
    ("\\frac{1}{2}", "the answer is \\boxed{0.5}"),
    ("\\frac{1}{2}", "\\boxed{\\dfrac{2}{4}}"),
    ("\\frac12", "1/2"),
    ("2\\sqrt{2}", "$\\sqrt{8}$"),
    ("p - q", "\\boxed{-q + p}"),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "It is $(3, \\pi/2)$."),
    ("90^\\circ", "\\boxed{90}"),
    ("\\text{Evelyn}", "\\boxed{\\text{Evelyn}}"),
    ("10,080", "\\boxed{10080}"),
    ("5", "I get 4 at first, but the answer is $5$."),
    ("x^2 + 2x + 1", "\\boxed{(x+1)^2}"),
]
DIFFERENT = [
    ("\\frac{1}{2}", "\\boxed{0.51}"),
    ("5", "\\boxed{6}, not 5"),
    ("p - q", "\\boxed{q - p}"),
    ("(1, 2)", "\\boxed{(2, 1)}"),
]


def test_equal_and_different_mathematics() -> None:
    for gold, text in EQUAL:
        assert compare(gold, text).correct, (gold, text)
    for gold, text in DIFFERENT:
        verdict = compare(gold, text)
        assert (verdict.correct, verdict.parsed) == (False, True), (gold, text)
    assert compare("5", "I do not know.") == Verdict(False, "", False)


def test_right_answers_share_a_form_and_wrong_ones_that_are_equal_agree() -> None:
    assert compare("\\frac{1}{2}", "\\boxed{0.5}").answer == compare("0.5", "\\boxed{1/2}").answer
    wrong = {compare("7", f"\\boxed{{{text}}}").answer for text in ("4.5", "4.50", "\\frac{9}{2}")}
    assert wrong == {"4.5"}


def test_verdicts_are_the_same_in_a_thread() -> None:
    cases = [*EQUAL[:5], *DIFFERENT, ("5", "dunno")]
    here = [compare(*case) for case in cases]
    there: dict[int, list[Verdict]] = {}

    def work(n: int) -> None:
        there[n] = [compare(*case) for case in cases]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(there.values()) == [here] * 3


@pytest.mark.parametrize("endless", ["9^{9^{9^{9}}}", "(10^{10})!"])
def test_an_endless_expression_is_unparsed_and_the_next_answer_is_not(endless: str) -> None:
    compare("1", "1")
    started = time.monotonic()
    verdict = compare("5", f"\\boxed{{{endless}}}", limit_s=1.0)
    assert verdict == Verdict(False, "", False)
    assert time.monotonic() - started < 2.0
    assert compare("5", "\\boxed{5}").correct
    assert maths.LIMIT_S < 10


def test_a_worker_that_dies_is_replaced() -> None:
    compare("1", "1")
    assert maths._worker is not None
    maths._worker.process.kill()
    maths._worker.process.wait()
    assert compare("1", "\\boxed{1}").correct


def test_text_in_its_normal_form() -> None:
    assert normal_text("  **New   York**. ") == "new york"


def test_json_values_in_their_normal_form() -> None:
    assert canonical({"Price ": "$1,200", "x": 2.0}) == {"price": 1200, "x": 2}
    assert canonical("The  Red Sofa.") == "red sofa"
    assert canonical(["3.50", True, None]) == [3.5, True, None]
    assert canonical("007") == "007"
    assert canonical("9:45") == "9:45"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        'Sure!\n```json\n{"a": 1}\n```\nThis {object} is JSON.',
        'Here: {not json} then {"a": 1} and {"a": 2}',
        '```\n{"a": 1}',
    ],
)
def test_the_first_object_of_an_answer(text: str) -> None:
    assert first_object(text) == {"a": 1}


def test_no_object() -> None:
    for text in ("", "none", '{"a": 1', "[1, 2]", "{" * 3000, '{"a":' * 3000):
        assert first_object(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "anchor, barrel, candle",
        "Here is the list:\n\n- Anchor\n- Barrel\n- Candle\n",
        "1. anchor\n2. barrel\n3. candle.",
        "The words are: anchor, barrel, and candle.",
        "anchor barrel candle",
        "```\nanchor\nbarrel\ncandle\n```",
        '["anchor", "barrel", "candle"]',
        "* **anchor**\n* **barrel**\n* **candle**",
    ],
)
def test_words_of_lists(text: str) -> None:
    assert words_in_order(text) == ["anchor", "barrel", "candle"]


BODY = "def half(x):\n    return x / 2"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{BODY}\n```",
        f"Sure.\n\n```python\nimport os\n```\nand\n```py\n{BODY}\n```\nDone.",
        f"```\n{BODY}",
        f"Here it is:\n{BODY}\n\nIt halves.",
        BODY,
    ],
)
def test_code_of_answers(text: str) -> None:
    assert extract_code(text, "half").strip() == BODY


def test_code_without_the_function() -> None:
    assert extract_code("    return x / 2\n", "half") == "    return x / 2"
    assert extract_code("```python\nhalf = 1\n```", "half") == "half = 1"
    assert extract_code("```bash\nls\n```\n", "half")
    assert extract_code("", "half") == ""

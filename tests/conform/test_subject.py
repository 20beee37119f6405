"""What is a tie and what a difference; what is a refusal and what a failure."""

from __future__ import annotations

import json

import pytest

from adaptivespec.conform import Report, Verdict, run, selected
from adaptivespec.conform import case as case_module
from adaptivespec.conform.answer import Answer, Choice, Request, Token
from adaptivespec.conform.case import Case, Failed, NotApplicable, Refused
from adaptivespec.conform.link import Link, LinkError
from adaptivespec.conform.reported import problems
from adaptivespec.conform.run import ask
from adaptivespec.conform.subject import Subject
from adaptivespec.core.errors import ConfigError
from fakes.conform_server import KEY, serving


@pytest.fixture
def subject():
    with serving() as url:
        link = Link(url, KEY, timeout=20)
        yield Subject(link, tie=0.1)
        link.close()


def answered(text: str, *tokens: Token) -> Answer:
    choice = Choice(0, text, tokens=list(tokens) or None)
    return Answer(Request("u"), 200, choices=[choice])


def token(text: str, gap: float) -> Token:
    return Token(text, -0.5, ((text, -0.5), ("other", -0.5 - gap)))


@pytest.mark.parametrize(("gap", "tied"), [(0.05, True), (0.2, False)])
def test_a_difference_is_excused_at_a_tie_alone(subject, gap, tied):
    reference = answered("ab cd", token("ab", 3.0), token(" cd", gap))
    other = answered("ab xy")
    if tied:
        assert "tie" in (subject.same(reference, other, "ab cd", "it") or "")
    else:
        with pytest.raises(Failed, match="ab xy"):
            subject.same(reference, other, "ab cd", "it")


def test_an_answer_that_is_cut_short_is_never_a_tie(subject):
    reference = answered("ab cd", token("ab", 0.0), token(" cd", 0.0))
    with pytest.raises(Failed):
        subject.same(reference, answered("ab"), "ab cd", "it")
    with pytest.raises(Failed):
        subject.same(reference, answered("ab cd"), "ab", "it")


def test_without_logprobs_nothing_is_excused(subject):
    with pytest.raises(Failed, match="no logprobs"):
        subject.same(answered("ab"), answered("ax"), "ab", "it")


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "top_k is not supported", Refused),
        (501, "top_k: not implemented", Refused),
        (400, "something is wrong", Failed),
        (500, "top_k broke it", Failed),
        (400, "max_tokens is wrong", Failed),
        (401, "a wrong key", LinkError),
    ],
)
def test_a_refusal_is_a_4xx_that_names_an_unusual_parameter(subject, status, message, kind):
    raw = json.dumps({"error": {"message": message}}).encode()
    request = Request("u", {"messages": [], "max_tokens": 1, "top_k": 1})
    answer = Answer(request, status, raw=raw, body=json.loads(raw))
    assert type(subject.refusal(answer)) is kind


def test_calls_keep_their_order_and_the_first_error_is_raised(subject):
    assert subject.together([lambda i=i: i for i in range(9)]) == list(range(9))

    def fail() -> int:
        raise NotApplicable("no")

    with pytest.raises(NotApplicable):
        subject.together([lambda: 1, fail])


def test_what_cannot_be_found_is_looked_for_once(subject):
    asked = []

    def make() -> int:
        asked.append(1)
        raise NotApplicable("none")

    for _ in range(2):
        with pytest.raises(NotApplicable):
            subject.once("name", make)
    assert len(asked) == 1


def test_an_error_of_the_suite_is_told_apart_and_the_next_case_is_asked(subject):
    def broken(subject: Subject) -> None:
        raise ZeroDivisionError("of ours")

    bad = Case("text.broken", "t", "f", (), (), broken)
    assert ask(subject, bad).verdict is Verdict.error
    report = Report("u", "m")
    run(subject, [bad, *selected(["text.role-first"])], report)
    assert [o.verdict for o in report.outcomes] == [Verdict.error, Verdict.passed]
    assert not report.good


def test_the_limit_ends_the_run(subject):
    report = Report("u", "m")
    run(subject, selected(["text"]), report, limit=0)
    assert {o.verdict for o in report.outcomes} == {Verdict.error}
    assert not report.complete
    assert "limit" in report.remark


def test_cases_are_chosen_by_group_and_name():
    chosen = selected(["text", "limits.huge-n"], ["text.utf8"])
    assert {case.group for case in chosen} == {"text", "limits"}
    assert "text.utf8" not in {case.id for case in chosen}
    with pytest.raises(ConfigError, match="skip"):
        selected(skip=["text.utf-8"])


def test_every_case_says_what_it_is_for():
    cases = selected()
    assert len({case.id for case in cases}) == len(cases) == len(case_module.REGISTRY)
    for case in cases:
        assert case.title
        assert case.finds
        assert set(case.needs) <= {"logprobs", "completions"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rate": 1.2}, "rate"),
        ({"accepted": 7}, "no more accepted"),
        ({"steps": -1}, "a count"),
        ({"rate": "high"}, "a number"),
        ({"histogram": 3}, "of counts"),
        ({"steps": 40}, "no more steps"),
        ({"promoted": 1, "lossless": True}, "promoted"),
        ({"accept_length": 0.5}, "at least 1"),
        ({"committed": 9}, "committed"),
        ({"histogram": {"0": 1, "1": 1}}, "one entry a step"),
        ({"histogram": {"0": 0, "1": 3}}, "adds up"),
        ({"histogram": [1, 2, 1]}, "one entry a step"),
    ],
)
def test_figures_of_speculation_that_cannot_be(wrong, words):
    good = {"steps": 3, "drafted": 6, "accepted": 2, "rate": 1 / 3, "accept_length": 5 / 3,
            "committed": 5, "histogram": {"0": 1, "1": 2}, "promoted": 0}  # fmt: skip
    assert list(problems(good, 6)) == []
    assert list(problems({**good, "histogram": [1, 2]}, 6)) == []
    assert any(words in problem for problem in problems(good | wrong, 6))


@pytest.mark.parametrize(("lossless", "bound"), [(None, 8), (True, 8), (False, 4)])
def test_a_lossy_answer_may_differ_under_another_bound_and_nothing_else_may(
    subject, lossless, bound
):
    reference, other = answered("ab"), answered("ax")
    reference.request = Request("u", {"max_tokens": 4})
    other.request = Request("u", {"max_tokens": bound})
    other.body = {"lossless": lossless}
    with pytest.raises(Failed):
        subject.same(reference, other, "ab", "it")
    other.body = {"lossless": False}
    other.request = Request("u", {"max_tokens": 8})
    assert "lossy" in (subject.same(reference, other, "ab", "it") or "")

"""A calibration from prompts to certificate and report, with answers from a script."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from adaptivespec.calibrate.certificate import Certificate
from adaptivespec.calibrate.fit import Budget
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import parse_spec
from adaptivespec.eval.calibration import Calibration
from adaptivespec.eval.calibration_plan import Plan
from adaptivespec.eval.calibration_report import guarantee, rows_of, write_report
from adaptivespec.eval.errors import RunError, TargetError
from adaptivespec.eval.prompts_task import UngradedPrompts
from adaptivespec.eval.rows import read_rows
from adaptivespec.eval.settings import Settings
from adaptivespec.eval.tasks.base import Item
from fakes.answering import AnsweringPool, Products, Sums

KAPPAS = (0.7, 0.5, 0.3, 0.1)
FIELDS = {"budget": Budget("harm", 0.02, 0.95), "kappas": KAPPAS, "limit": 200}


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """A row is on the disk when it is added, which takes milliseconds each."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def kappa_of(rule: str) -> float:
    return 1.0 if rule == "strict" else float(parse_spec(rule).positional[0])


def worse(rule: str, item: Item) -> str:
    """Below kappa 0.5 every tenth answer is lost."""
    lost = kappa_of(rule) < 0.5 and item.index % 10 == 0
    return "?" if lost else item.reference


def calibration(folder: Path, pool: AnsweringPool, **changes) -> Calibration:
    return Calibration(Plan(**{"tasks": [Sums()], **FIELDS, **changes}), folder, pool)


def test_it_stops_at_the_first_kappa_that_fails(tmp_path):
    pool = AnsweringPool(worse)
    events = []
    result = calibration(tmp_path, pool).run(events.append, ["adaptivespec", "calibrate"])
    made = result.certificate
    assert (made.kappa, made.rule, made.n, made.policy) == (0.5, "margin:0.5", 200, "dcs")
    assert [(test.kappa, test.certified) for test in made.tests] == [
        (0.7, True),
        (0.5, True),
        (0.3, False),
    ]
    arms = [name for name, _ in pool.asked]
    assert list(dict.fromkeys(arms)) == [
        "strict/auto",
        "margin:0.7/auto",
        "margin:0.5/auto",
        "margin:0.3/auto",
    ]
    assert (events[-1].stage, events[-1].done, events[-1].total) == ("margin:0.3/auto", 200, 200)
    lost = sum(item.index % 10 == 0 for name, item in pool.asked if name == "strict/auto")
    assert (made.tests[2].harmed, made.tests[2].helped, made.tests[2].disagreed) == (lost, 0, lost)
    assert made.data.name == "sums"
    assert made.settings.max_tokens == {"sums": 8}
    assert made.provenance["command"] == "adaptivespec calibrate"


def test_its_folder_is_that_of_any_run(tmp_path):
    result = calibration(tmp_path, AnsweringPool(worse)).run()
    assert Certificate.read(tmp_path / "certificate.json") == result.certificate
    settings = Settings.read(tmp_path / "settings.json")
    assert settings.baseline == "strict/auto"
    assert [arm.name for arm in settings.arms][:2] == ["strict/auto", "margin:0.7/auto"]
    rows = list(read_rows(tmp_path / "rows.jsonl"))
    assert len(rows) == 800
    assert {row.place.phase for row in rows} == {"quality"}
    assert all(row.grade is not None for row in rows)


def test_all_prompts_are_strict_enough_and_every_kappa_passes(tmp_path):
    made = calibration(tmp_path, AnsweringPool(lambda rule, item: item.reference)).run().certificate
    assert (made.kappa, len(made.tests)) == (0.1, 4)
    low, high = made.interval
    assert low == pytest.approx(0, abs=1e-9)
    assert made.tests[-1].upper < high < 0.02


def test_too_few_prompts_stay_strict_and_say_how_many_it_takes(tmp_path):
    result = calibration(tmp_path, AnsweringPool(worse), limit=50).run()
    made = result.certificate
    assert (made.rule, made.lossless, made.needed, made.interval) == ("strict", True, 149, None)
    write_report(result, tmp_path)
    assert "149 prompts certify" in (tmp_path / "report.md").read_text()
    assert "stay strict" in guarantee(made)


def test_it_goes_on_where_it_was_stopped(tmp_path):
    pool = AnsweringPool(worse)
    pool.fails_after = 250
    with pytest.raises(TargetError, match=r"out of memory.*goes on from here"):
        calibration(tmp_path, pool).run()
    again = AnsweringPool(worse)
    result = calibration(tmp_path, again).run()
    assert len(again.asked) == 800 - 250
    whole = calibration(tmp_path / "whole", AnsweringPool(worse)).run()
    assert result.certificate.tests == whole.certificate.tests


def test_another_run_in_its_folder_is_refused(tmp_path):
    calibration(tmp_path, AnsweringPool(worse)).run()
    for change in ({"limit": 199}, {"seed": 1}, {"max_tokens": 9}, {"policy": "static"}):
        with pytest.raises(RunError, match="other prompts, settings, model or policy"):
            calibration(tmp_path, AnsweringPool(worse), **change).run()


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write there") as caught:
        calibration(tmp_path / "file", AnsweringPool(worse)).run()
    assert caught.value.field == str(tmp_path / "file")


def test_another_budget_needs_no_new_answers(tmp_path):
    calibration(tmp_path, AnsweringPool(worse)).run()
    pool = AnsweringPool(worse)
    made = calibration(tmp_path, pool, budget=Budget("drop", 0.03, 0.9)).run().certificate
    assert pool.asked == []
    assert (made.loss, made.test, made.kappa) == ("drop", "betting", 0.5)


def test_answers_come_in_any_order_and_belong_to_their_prompts(tmp_path):
    """The pool answers from the back; each row holds the answer to its own prompt."""
    calibration(tmp_path, AnsweringPool(lambda rule, item: item.reference)).run()
    for row in read_rows(tmp_path / "rows.jsonl"):
        assert row.answer.text == str(row.place.index + 1)


def test_disagreement_needs_no_grader(tmp_path):
    items = [Item("prompts", i, (f"say {i}",)) for i in range(60)]
    pool = AnsweringPool(lambda rule, item: "same" if kappa_of(rule) > 0.3 else f"{item.index}")
    plan = {"tasks": [UngradedPrompts(items)], "budget": Budget("disagreement", 0.05)}
    made = calibration(tmp_path, pool, **plan).run().certificate
    assert (made.kappa, made.tests[-1].disagreed, made.tests[-1].harmed) == (0.5, 60, None)


def test_answers_that_no_grader_understands_agree_when_their_texts_do(tmp_path):
    pool = AnsweringPool(lambda rule, item: "" if rule == "strict" else "x")
    made = calibration(tmp_path, pool, budget=Budget("disagreement", 0.05)).run().certificate
    assert made.tests[0].disagreed == 200


def test_prompts_of_several_tasks_are_drawn_together():
    plan = Plan(tasks=[Sums(), Products()], limit=100, seed=3)
    drawn = plan.drawn
    keys = [item.key for _, item in drawn]
    assert len(set(keys)) == 100
    assert 25 < sum(key.startswith("sums") for key in keys) < 75
    assert keys == [item.key for _, item in Plan(tasks=plan.tasks, limit=100, seed=3).drawn]
    assert all(task.name == item.task for task, item in drawn)
    assert keys != [item.key for _, item in Plan(tasks=plan.tasks, limit=100, seed=4).drawn]
    assert len(Plan(tasks=[Sums()]).drawn) == Sums.size


def test_the_prompts_are_not_those_that_a_benchmark_asks_first(monkeypatch):
    from adaptivespec.eval import selection

    monkeypatch.setattr(selection, "make_task", lambda name: Sums())
    chosen = selection.Selection(limit=selection.PerTask(200), seed=5)
    asked = selection.select("sums", chosen, None).settings.items
    drawn = [item.index for _, item in Plan(tasks=[Sums()], limit=200, seed=5).drawn]
    assert not set(asked) & set(drawn)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kappas": ()}, "kappas"),
        ({"kappas": (0.3, 0.5)}, "kappas"),
        ({"kappas": (1.0, 0.5)}, "kappas"),
        ({"kappas": (0.5, -0.1)}, "kappas"),
        ({"base": "fly"}, "rule"),
        ({"tasks": [UngradedPrompts([])]}, "loss"),
        ({"limit": 0}, "limit"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(tmp_path, changes, field):
    with pytest.raises(ConfigError) as caught:
        calibration(tmp_path, AnsweringPool(worse), **changes)
    assert caught.value.field == field


def test_without_a_head_there_is_nothing_to_calibrate(tmp_path):
    pool = AnsweringPool(worse, {"model": {"name": "m", "digest": None}, "head": None})
    with pytest.raises(ConfigError, match="nothing drafts"):
        calibration(tmp_path, pool)


def test_the_report_says_what_is_guaranteed_and_what_is_not(tmp_path):
    result = calibration(tmp_path, AnsweringPool(worse)).run(argv=["adaptivespec", "calibrate"])
    write_report(result, tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for words in (
        "**At kappa 0.5, with 95% confidence, at most 2% of prompts lose an answer",
        "It is about prompts drawn as these were",
        "the policy `dcs`",
        "--rule-config",
        "adaptivespec calibrate",
    ):
        assert words in text
    assert len(rows_of(result)) == 4
    svg = (tmp_path / "loss.svg").read_text(encoding="utf-8")
    assert "95% upper bound" in svg
    write_report(result, tmp_path)
    assert (tmp_path / "loss.svg").read_text(encoding="utf-8") == svg


def test_the_certificate_is_plain_json(tmp_path):
    calibration(tmp_path, AnsweringPool(worse)).run()
    content = json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    assert content["kappa"] == 0.5
    assert len(content["checksum"]) == 64

import pytest

from adaptivespec.eval.arms import Arm, plain
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.base import Ask
from adaptivespec.eval.tasks import make_task
from adaptivespec.eval.worker import Pool, TargetSpec
from fakes.bench_target import PLACE, ScriptedTarget

ITEMS = make_task("capitals").load(None)[:12]
ASK = Ask(max_tokens=16, detail=True)
JOBS = [(arm, item, ASK) for item in ITEMS for arm in (plain(), Arm("a", "margin:0.2", "dcs"))]


def test_several_workers_give_every_job_the_answer_that_one_process_gives():
    here = [ScriptedTarget().answer(*job) for job in JOBS]
    with Pool(TargetSpec(PLACE), 2) as pool:
        found = dict(pool.answers(JOBS))
        assert pool.about == "scripted"
        assert [arm.name for arm in pool.arms] == ["plain"]
    assert [found[number] for number in range(len(JOBS))] == here


def test_one_worker_keeps_the_order_and_asks_only_when_it_is_free():
    taken = []

    def jobs():
        for number, job in enumerate(JOBS):
            taken.append(number)
            yield job

    with Pool(TargetSpec(PLACE)) as pool:
        for number, _ in pool.answers(jobs()):
            assert taken[-1] == number


def test_a_target_that_cannot_be_made_says_why_as_it_said_it():
    with pytest.raises(TargetError, match="not installed") as caught:
        Pool(TargetSpec(PLACE, {"broken": "not installed"}), 2)
    assert caught.value.field == "scripted"


def test_a_process_that_dies_is_an_error_and_answers_before_it_are_kept():
    found = []
    with Pool(TargetSpec(PLACE, {"dies_at": ITEMS[4].key})) as pool:
        answers = (found.append(number) for number, _ in pool.answers(JOBS))
        with pytest.raises(TargetError, match="ended \\(3\\)"):
            list(answers)
    assert found == list(range(8))


def test_an_error_within_an_answer_reaches_the_caller():
    with pytest.raises(TargetError, match="AttributeError"), Pool(TargetSpec(PLACE)) as pool:
        list(pool.answers([(plain(), None, ASK)]))

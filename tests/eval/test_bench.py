from dataclasses import replace

import pytest

from adaptivespec.calibrate.identity import Weights
from adaptivespec.eval.arms import parse_arms
from adaptivespec.eval.bench import ROWS, SETTINGS, Bench, run
from adaptivespec.eval.errors import DataError, RunError, TargetError
from adaptivespec.eval.rows import read_rows
from adaptivespec.eval.selection import PerTask, Selection
from adaptivespec.eval.settings import Settings
from adaptivespec.eval.worker import TargetSpec
from fakes.bench_target import MODEL, PLACE
from fakes.certificates import certificate

HEAD = {"name": "head", "digest": "a" * 16}
ARMS = parse_arms("plain; strict/static:tuned; margin:0.2/dcs")
BENCH = Bench(
    tasks=["capitals", "lists"],
    arms=ARMS,
    target=TargetSpec(PLACE),
    selection=Selection(PerTask(5), 3, 1),
    workers=2,
    restarts=2,
)


class Stopped(Exception):
    pass


def quietly(bench, folder):
    notes = []
    return run(bench, folder, lambda event: None, notes.append), notes


def rows_of(folder):
    return {row.place: row for row in read_rows(folder / ROWS)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "whole"
    quietly(BENCH, folder)
    return folder


def test_every_arm_answers_every_item_and_the_timed_ones_again(whole):
    rows = rows_of(whole)
    count = {phase: sum(place.phase == phase for place in rows) for phase in ("quality", "speed")}
    assert count == {"quality": 2 * 5 * 3, "speed": 2 * 2 * 3 * 3}
    noise = [row for place, row in rows.items() if place.phase == "noise"]
    assert len(noise) == 2 * 5
    assert {row.place.arm for row in noise} == {"plain"}
    assert all(
        row.grade is not None for place, row in rows.items() if place.phase in ("quality", "noise")
    )
    assert all(row.grade is None for place, row in rows.items() if place.phase == "speed")


def test_timed_blocks_hold_every_arm_side_by_side_in_changing_order(whole):
    speed = [row for row in read_rows(whole / ROWS) if row.place.phase == "speed"]
    orders = set()
    for start in range(0, len(speed), len(ARMS)):
        block = speed[start : start + len(ARMS)]
        assert len({(row.place.task, row.place.index, row.place.restart) for row in block}) == 1
        assert [row.order for row in block] == [0, 1, 2]
        orders.add(tuple(row.place.arm for row in block))
    assert len(orders) > 2
    assert [row.place.restart for row in speed] == sorted(row.place.restart for row in speed)


@pytest.mark.parametrize(
    "stage", ["tuning on dev items", "answers", "noise floor", "timing, restart 2 of 2"]
)
def test_a_run_that_was_stopped_goes_on_and_ends_as_if_it_had_not(tmp_path, whole, stage):
    def stop(event):
        if event.stage == stage and event.done >= 3:
            raise Stopped

    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        run(BENCH, folder, stop, lambda text: None)
    before = rows_of(folder)
    with (folder / ROWS).open("ab") as file:
        file.write(b'{"phase": "qual')  # as a kill in the middle of a line leaves it
    _, notes = quietly(BENCH, folder)
    assert any("going on" in note for note in notes)
    after = rows_of(folder)
    assert before.items() <= after.items()
    assert after == rows_of(whole)


def test_a_finished_run_asks_nothing_again(tmp_path, whole):
    content = (whole / ROWS).read_bytes()
    quietly(BENCH, whole)
    assert (whole / ROWS).read_bytes() == content


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"selection": Selection(PerTask(6), 3, 1)}, "tasks"),
        ({"selection": Selection(PerTask(5), 2, 1)}, "timed"),
        ({"selection": Selection(PerTask(5), 3, 1, max_tokens=PerTask(7))}, "tasks"),
        ({"temperature": 1.0}, "temperature"),
        ({"arms": ARMS[:2]}, "arms"),
        ({"restarts": 3}, "restarts"),
    ],
)
def test_a_run_of_other_settings_is_refused_by_what_differs(whole, changes, names):
    with pytest.raises(RunError, match=names):
        quietly(replace(BENCH, **changes), whole)


def test_rows_without_settings_are_not_taken_for_a_run(tmp_path, whole):
    (tmp_path / ROWS).write_bytes((whole / ROWS).read_bytes())
    with pytest.raises(RunError, match=SETTINGS):
        quietly(BENCH, tmp_path)


@pytest.mark.parametrize("head", [None, {"name": "other", "digest": "f" * 16}])
def test_a_certificate_is_an_arm_where_it_holds_and_strict_where_not(tmp_path, head):
    holds = certificate(model=Weights(**MODEL), head=Weights(**HEAD))
    holds.write(tmp_path / "certificate.json")
    target = TargetSpec(PLACE, {"head": head or HEAD})
    bench = replace(
        BENCH,
        arms=ARMS[:1],
        target=target,
        certificates=[tmp_path / "certificate.json"],
        restarts=0,
        noise=False,
    )
    settings, notes = quietly(bench, tmp_path / "run")
    arm = settings.arms[-1]
    assert arm.rule == ("strict" if head else holds.rule)
    assert arm.lossless is bool(head)
    assert any("does not hold" in note and "other" in note for note in notes) is bool(head)


def test_a_peer_that_cannot_be_had_is_left_out_with_its_reason(tmp_path):
    peers = {
        "missing": TargetSpec(PLACE, {"broken": "is not installed"}),
    }
    settings, notes = quietly(replace(BENCH, peers=peers, restarts=0), tmp_path / "run")
    assert [arm.name for arm in settings.arms] == [arm.name for arm in ARMS]
    assert any(note.startswith("missing is left out. scripted: is not") for note in notes)


def test_a_worker_that_dies_ends_the_run_and_the_rows_stay(tmp_path, whole):
    settings = Settings.read(whole / SETTINGS)
    last = settings.tasks[1].items[-1]
    dying = replace(BENCH, target=TargetSpec(PLACE, {"dies_at": f"lists/{last}"}))
    folder = tmp_path / "run"
    with pytest.raises(TargetError, match="ended"):
        quietly(dying, folder)
    assert rows_of(folder)
    quietly(BENCH, folder)
    assert rows_of(folder) == rows_of(whole)


def test_bad_data_is_said_before_anything_is_run(tmp_path):
    (tmp_path / "mt_bench.jsonl").write_text("nonsense\n")
    with pytest.raises(DataError, match="mt_bench"):
        quietly(replace(BENCH, tasks=["mt_bench"], data=tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_compared_leaves_out_arms_and_circumstances(whole):
    settings = Settings.read(whole / SETTINGS)
    other = settings.model_copy(update={"arms": settings.arms[:1], "provenance": {}, "targets": {}})
    assert other.digest == settings.digest
    assert settings.model_copy(update={"temperature": 0.5}).digest != settings.digest

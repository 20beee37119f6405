"""Two runs side by side."""

from __future__ import annotations

import pytest

from adaptivespec.eval.compare import compare
from adaptivespec.eval.errors import RunError
from fakes import bench_rows

ARMS = ("plain", "strict/dcs", "margin:0.2/dcs")


def made(tmp_path, name, seed=0, slower=1.0, **changes):
    settings = bench_rows.settings(items=8, **({"arms": ARMS} | changes))
    rows = bench_rows.rows(settings, seed=seed)
    for row in rows:
        row.answer.seconds *= slower
    return bench_rows.write(tmp_path / name, settings, rows)


def test_a_run_equals_itself(tmp_path):
    found = compare(made(tmp_path, "a"), made(tmp_path, "b"))
    assert [pair.arm for pair in found.arms] == list(ARMS)
    for pair in found.arms:
        assert pair.items == 16
        assert pair.difference.value == 0
        assert pair.mcnemar_p == 1
        assert pair.speedups[0] == pair.speedups[1]
        assert len(set(pair.accept_lengths)) == 1
    assert found.arms[1].speed_ratio.value == pytest.approx(1)


def test_a_slower_machine_changes_no_ratio(tmp_path):
    found = compare(made(tmp_path, "a"), made(tmp_path, "b", slower=7.0))
    assert found.arms[1].speed_ratio.value == pytest.approx(1)
    assert found.arms[1].time_ratio is None
    assert any("Times are not compared" in note for note in found.notes)


def test_times_are_compared_on_the_same_machine(tmp_path):
    machine = {"provenance": {"machine": {"processor": "P", "cpus": 2}}}
    found = compare(made(tmp_path, "a", **machine), made(tmp_path, "b", slower=4.0, **machine))
    assert found.same_machine
    assert found.arms[1].time_ratio == pytest.approx(0.25)


def test_arms_of_one_run_alone_are_named(tmp_path):
    found = compare(
        made(tmp_path, "a"), made(tmp_path, "b", arms=("plain", "strict/dcs", "fly/dcs"))
    )
    assert [pair.arm for pair in found.arms] == ["plain", "strict/dcs"]
    assert found.only == (["margin:0.2/dcs"], ["fly/dcs"])
    assert "Only in b: fly/dcs." in found.notes


def test_unlike_settings_are_refused_with_every_field(tmp_path):
    other = bench_rows.settings(items=8, arms=ARMS, temperature=0.7)
    tasks = [task.model_copy(update={"max_tokens": 99}) for task in other.tasks]
    other = other.model_copy(update={"tasks": tasks})
    bench_rows.write(tmp_path / "b", other, [])
    with pytest.raises(RunError) as caught:
        compare(made(tmp_path, "a"), tmp_path / "b")
    text = str(caught.value)
    assert "temperature: 0.0 and 0.7" in text
    assert "tasks.json.max_tokens: 80 and 99" in text
    assert "tasks.functions.max_tokens: 80 and 99" in text
    assert "seed: null and 0" in text
    assert "digest" not in text
    assert caught.value.remedy


def test_other_items_are_refused_without_listing_thousands(tmp_path):
    a = made(tmp_path, "a", tasks=("json",))
    bench_rows.write(tmp_path / "b", bench_rows.settings(("json",), 2000, ARMS), [])
    with pytest.raises(RunError, match=r"tasks\.json\.items.*2000 in all") as caught:
        compare(a, tmp_path / "b")
    assert len(str(caught.value)) < 1000


def test_missing_tasks_are_named(tmp_path):
    a = made(tmp_path, "a", tasks=("json",))
    b = made(tmp_path, "b", tasks=("json", "functions"))
    with pytest.raises(RunError, match=r"tasks\.functions\.max_tokens: nothing and 80"):
        compare(a, b)


def test_the_table_has_a_line_for_each_arm(tmp_path):
    table = compare(made(tmp_path, "a"), made(tmp_path, "b", seed=0)).table()
    assert len(table) == len(ARMS)
    assert len({tuple(row) for row in table}) == 1


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"settings\.json"):
        compare(made(tmp_path, "a"), tmp_path / "nothing")

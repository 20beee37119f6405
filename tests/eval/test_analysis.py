"""From rows to figures, on made-up runs with known answers."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from adaptivespec.eval.analysis import POOLED, analyse
from adaptivespec.eval.rows import Row
from fakes import bench_rows
from fakes.bench_rows import row, small

OPTIONAL = ("token_ids", "pieces", "kinds", "margins", "nll", "stats", "timings", "first_token_s")


@pytest.fixture(scope="module")
def run():
    settings = bench_rows.settings()
    return settings, bench_rows.rows(settings)


@pytest.fixture(scope="module")
def summary(run):
    return analyse(*run)


def figures(value):
    """Every number in nested dataclasses, lists and mappings."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        for item in value.values():
            yield from figures(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from figures(item)
    elif isinstance(value, float):
        yield value


def test_every_arm_has_a_line_for_each_task_and_one_for_all(run, summary):
    settings, _ = run
    assert [(cell.arm, cell.task) for cell in summary.cells] == [
        (arm.name, task) for arm in settings.arms for task in ("json", "functions", POOLED)
    ]


def test_speed_ups_are_those_that_were_made_up(summary):
    for name, (factor, _, _) in bench_rows.ARMS.items():
        found = summary.cell(name).speed
        if name == "plain":
            assert found.speedup.value is None
        else:
            assert found.speedup.value == pytest.approx(factor, rel=0.06)
            assert found.speedup.low < found.speedup.value < found.speedup.high
        assert (found.prompts, found.restarts) == (16, 3)


def test_promotions_are_counted_per_hundred_tokens(run, summary):
    _, rows = run
    mine = [r for r in rows if r.place.arm == "margin:0.2/dcs" and r.place.phase == "quality"]
    promoted = sum(len(r.answer.margins) for r in mine)
    tokens = sum(r.answer.completion_tokens for r in mine)
    found = summary.cell("margin:0.2/dcs").divergence
    assert found.promotions_per_100 == pytest.approx(100 * promoted / tokens)
    assert found.choice == pytest.approx(1 - promoted / tokens)
    regrets = [sum(-math.log(m) for m in r.answer.margins) for r in mine]
    assert found.regret_mean == pytest.approx(sum(regrets) / len(regrets))
    assert found.nll > found.nll_baseline


def test_lossless_arms_equal_the_baseline(summary):
    cell = summary.cell("strict/dcs")
    assert cell.divergence.identical == 1
    assert cell.quality.difference.value == 0
    assert cell.quality.agreement == 1
    assert cell.below_noise is None


def test_arms_of_servers_promise_what_their_answers_say():
    of = bench_rows.settings(arms=("plain", "strict/dcs", "fly/dcs", "margin:0.2/dcs"))
    silent = [arm.model_copy(update={"lossless": None, "rule": ""}) for arm in of.arms]
    rows = bench_rows.rows(of)
    said = {"plain": True, "strict/dcs": True, "fly/dcs": False, "margin:0.2/dcs": None}
    for answered in rows:
        answered.answer.lossless = said[answered.place.arm]
    summary = analyse(of.model_copy(update={"arms": silent}), rows)
    for name, lossless in said.items():
        assert summary.cell(name, POOLED).lossless is lossless


def test_pooled_figures_are_sums_over_tasks(summary):
    for name in bench_rows.ARMS:
        parts = [summary.cell(name, task) for task in summary.tasks]
        pooled = summary.cell(name)
        assert pooled.quality.graded == sum(part.quality.graded for part in parts)
        assert pooled.quality.correct == sum(part.quality.correct for part in parts)
        assert pooled.decoding.steps == sum(part.decoding.steps for part in parts)


def test_depths_are_shares_of_drafting_steps():
    stats = {
        "num_spec_steps": 4,
        "num_drafts": 4,
        "num_committed_tokens": 10,
        "num_draft_tokens": 32,
        "num_accepted_draft_tokens": 6,
        "num_promoted_tokens": 2,
        "regret_nats": 1.0,
        "accepted_per_pos": [4, 2],
        "promoted_per_pos": [1, 1],
    }
    arm = "margin:0.2/dcs"
    shapes = [[0, [3, 2, 8], 3], [1, [5, 2, 8], 1]]
    found = analyse(small(), [row(arm, 0, stats=stats, shapes=shapes)]).cell(arm).decoding
    assert found.accept_length == 2.5
    assert found.acceptance_rate == 6 / 32
    assert found.tree_nodes == 9
    assert found.exact_by_depth == [0.75, 0.25]
    assert found.promoted_by_depth == [0.25, 0.25]
    assert found.passes_per_step == 3.5
    assert found.shapes == {0: {"3,2,8": 3}, 1: {"5,2,8": 1}}


def test_quality_seconds_are_no_times():
    rows = [row(arm.name, 0, correct=True) for arm in small().arms]
    summary = analyse(small(), rows)
    for cell in summary.cells:
        assert cell.speed.request_s is None
        assert cell.speed.speedup.value is None
    assert any("Nothing was timed" in text for text in summary.warnings)


def test_a_speed_up_is_the_median_over_restarts_of_ratios_within_a_block():
    rows = []
    for restart, (plain, ours) in enumerate([(2.0, 1.0), (30.0, 10.0), (8.0, 1.0)]):
        rows.append(row("plain", 0, phase="speed", restart=restart, seconds=plain))
        rows.append(row("strict/dcs", 0, phase="speed", restart=restart, seconds=ours))
    cell = analyse(small(), rows).cell("strict/dcs")
    assert cell.speed.speedup.value == pytest.approx(3.0)
    assert cell.speed.speedup.low is None
    assert cell.speed.token_speedup.value == pytest.approx(40 / 12)


def test_time_of_a_correct_answer_is_null_where_none_is_correct():
    rows = [row("plain", 0, phase="speed"), row("plain", 0, correct=False)]
    assert analyse(small(), rows).cell("plain").speed.correct_s is None
    rows = [row("plain", 0, phase="speed"), row("plain", 0, correct=True)]
    rows.append(row("plain", 1, correct=False))
    assert analyse(small(), rows).cell("plain").speed.correct_s == 2.0


def test_a_control_is_paired_with_the_arm_of_the_nearest_rate(summary):
    (line,) = summary.controls
    assert (line.control, line.arm) == ("coin:0.05/dcs", "margin:0.2/dcs")
    assert line.difference.value == pytest.approx(line.arm_accuracy - line.control_accuracy)


def test_servers_give_throughput_and_chunks():
    chunks = [[0.1, 10], [0.2, 20], [0.5, 30]]
    rows = [row("plain", i, phase="speed", seconds=0.5, chunks=chunks) for i in range(4)]
    speed = analyse(small(load={"concurrency": 4}), rows).cell("plain").speed
    assert speed.requests_per_s == pytest.approx(8)
    assert speed.gap_ms == pytest.approx(200)
    assert speed.chunk_characters == 20
    assert speed.chunk_tokens == pytest.approx(10 / 3)
    at_a_rate = analyse(small(load={"concurrency": 4, "request_rate": 2.0}), rows).cell("plain")
    assert at_a_rate.speed.requests_per_s is None


@pytest.mark.parametrize("phases", [("quality",), ("speed",), ("noise",), ("tune",)])
def test_a_run_may_lack_any_phase(run, phases):
    settings, rows = run
    summary = analyse(settings, [r for r in rows if r.place.phase in phases])
    assert all(math.isfinite(value) for value in figures(summary.cells))
    assert len(summary.headline()) == len(settings.arms)


def test_targets_that_tell_little_give_dashes():
    rows = [row(arm.name, i) for arm in small().arms for i in range(4)]
    line = analyse(small(), rows).headline()[2]
    assert line["tau"] == line["accuracy"] == line["promoted/100"] == line["speed-up"] == "–"  # noqa: RUF001


@examples(max_examples=25)
@given(st.data())
def test_whatever_is_missing_is_none(data):
    """Rows of targets that tell this and that: nothing fails, and no figure is NaN."""
    of = bench_rows.settings(
        tasks=("json", "chat"), items=2, arms=("plain", "strict/dcs", "fly/dcs"), restarts=1
    )
    kept = []
    for one in bench_rows.rows(of):
        if data.draw(st.booleans()):
            hidden = data.draw(st.sets(st.sampled_from(OPTIONAL)))
            emptied = data.draw(st.sampled_from([{}, {}, {"error": "lost"}, {"seconds": 0.0}]))
            changes = dict.fromkeys(hidden) | emptied
            one = Row(one.place, 0, dataclasses.replace(one.answer, **changes), one.grade)
            kept.append(one)
    summary = analyse(of, kept)
    numbers = [*figures(summary.cells), *figures(summary.noise), *figures(summary.controls)]
    assert all(math.isfinite(value) for value in numbers)
    assert summary.headline()


def test_rows_of_unknown_arms_are_left(run, summary):
    settings, rows = run
    stray = dataclasses.replace(rows[0].place, arm="another")
    again = analyse(settings, [*rows, Row(stray, 0, rows[0].answer, rows[0].grade)])
    assert again.cells == summary.cells


def test_the_headline_has_the_same_keys_for_every_arm(summary):
    lines = summary.headline()
    assert [line["arm"] for line in lines] == list(bench_rows.ARMS)
    assert len({tuple(line) for line in lines}) == 1
    assert all(isinstance(text, str) for line in lines for text in line.values())
    assert {line["text"] for line in lines} == {"lossless", "lossy"}


def test_the_table_of_the_paper_has_a_row_for_model_and_task(summary):
    table = summary.paper_table()
    assert [(line["model"], line["task"]) for line in table] == [
        ("tiny-chat", "json"),
        ("tiny-chat", "functions"),
        ("tiny-chat", POOLED),
    ]
    assert table[0]["strict/dcs"].count(" / ") == 2
    assert "margin:0.5/dcs" not in table[0]


def test_flat_rows_are_numbers_text_or_none(summary):
    lines = summary.csv_rows()
    assert len({tuple(line) for line in lines}) == 1
    for line in lines:
        assert all(v is None or isinstance(v, int | float | str | bool) for v in line.values())
        json.dumps(line, allow_nan=False)


def test_order_of_rows_does_not_matter(run, summary):
    settings, rows = run
    assert analyse(settings, reversed(rows)).cells == summary.cells

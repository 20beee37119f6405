"""What an analysis says against its own run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptivespec.eval.analysis import POOLED, analyse
from fakes import bench_rows
from fakes.bench_rows import row, small


def test_errors_count_apart():
    rows = [row("plain", i, correct=True) for i in range(2)]
    rows += [row("strict/dcs", 0, correct=True), row("strict/dcs", 1, error="out of memory")]
    summary = analyse(small(), rows)
    quality = summary.cell("strict/dcs").quality
    assert (quality.answers, quality.errors, quality.graded) == (1, 1, 1)
    assert quality.pairs.n == 1
    assert summary.warnings[0].startswith("strict/dcs: 1 requests failed")


def test_an_unpromoted_answer_that_is_not_strict_is_reported():
    none = {"num_promoted_tokens": 0, "num_spec_steps": 5}
    rows = []
    for index in range(2):
        rows += [row(arm, index, token_ids=[1, 2]) for arm in ("plain", "strict/dcs")]
    rows.append(row("margin:0.2/dcs", 0, token_ids=[1, 2], stats=none))
    rows.append(row("margin:0.2/dcs", 1, token_ids=[1, 9], stats=none))
    summary = analyse(small(), rows)
    found = summary.cell("margin:0.2/dcs").divergence
    assert found.strict_arm == "strict/dcs"
    assert (found.strict_compared, found.strict_equal) == (2, 1)
    assert found.strict_violations == ["json/1"]
    assert any("though none may: json/1" in text for text in summary.warnings)


def test_a_loss_within_the_noise_is_flagged():
    rows = []
    for index in range(4):
        rows.append(row("plain", index, correct=True, token_ids=[1, 2]))
        rows.append(row("plain", index, phase="noise", correct=index > 0, token_ids=[1, index]))
        rows.append(row("margin:0.2/dcs", index, correct=index > 0, token_ids=[3]))
    summary = analyse(small(), rows)
    line = next(line for line in summary.noise if line.task == POOLED)
    assert (line.items, line.diverged, line.divergence_at) == (4, 3, 1)
    assert line.difference.value == -0.25
    assert summary.cell("margin:0.2/dcs").below_noise is True
    assert any("below the noise floor" in text for text in summary.warnings)
    rows = [r for r in rows if r.place.arm == "plain"]
    rows += [row("margin:0.2/dcs", i, correct=i > 1, token_ids=[3]) for i in range(4)]
    assert analyse(small(), rows).cell("margin:0.2/dcs").below_noise is False


def test_a_baseline_that_is_never_right_cannot_show_a_loss():
    rows = [row(arm.name, i, correct=False) for arm in small().arms for i in range(4)]
    summary = analyse(small(), rows)
    assert any("cannot show a loss" in text for text in summary.warnings)
    assert summary.cell("margin:0.2/dcs").quality.recovery.value is None


def test_a_task_that_cannot_show_a_loss_is_left_out_of_pooled_accuracy():
    """Its lucky gains would hide the losses of others."""
    settings = bench_rows.settings(tasks=("json", "math"), items=20, arms=("plain", "fly/dcs"))
    rows = []
    for index in range(20):
        for arm, json_right, math_right in (("plain", True, False), ("fly/dcs", index > 1, True)):
            rows.append(row(arm, index, correct=json_right, seconds=1.0))
            rows.append(row(arm, index, phase="speed", seconds=1.0))
            for phase, correct in (("quality", math_right), ("speed", None)):
                one = row(arm, index, phase=phase, correct=correct, seconds=3.0)
                rows.append(replace(one, place=replace(one.place, task="math")))
    summary = analyse(settings, rows)
    pooled = summary.cell("fly/dcs")
    assert (pooled.quality.answers, pooled.quality.graded) == (40, 20)
    assert pooled.quality.accuracy.value == 0.9
    assert pooled.quality.difference.value == pytest.approx(-0.1)
    assert pooled.quality.pairs == summary.cell("fly/dcs", "json").quality.pairs
    assert pooled.speed.request_s == 2.0
    assert pooled.speed.correct_s == pytest.approx(1 / 0.9)
    assert summary.cell("fly/dcs", "math").quality.difference.value == 1.0
    assert any("math" in text and "left out of pooled" in text for text in summary.warnings)
    assert not any("json: the baseline" in text for text in summary.warnings)


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"finish_reason": "length"}, "cut at the bound"),
        ({"completion_tokens": 30}, "times as long"),
    ],
)
def test_what_a_sceptic_asks_about_an_arm(change, warning):
    rows = [row("plain", i, correct=True) for i in range(4)]
    rows += [row("margin:0.2/dcs", i, correct=True, **change) for i in range(4)]
    assert any(warning in text for text in analyse(small(), rows).warnings)


def test_weak_runs_say_so():
    settings = bench_rows.settings(items=12)
    text = " ".join(analyse(settings, bench_rows.rows(settings)).warnings)
    assert "no evidence that nothing is lost" in text
    rows = [row(arm.name, 0, phase="speed") for arm in small().arms]
    text = " ".join(analyse(small(), rows).warnings)
    assert "from 1 restarts" in text
    assert "speed alone" in text


def test_a_busy_machine_is_told():
    def told(load):
        provenance = {"machine": {"cpus": 8}, "load_average": load}
        return any("busy" in text for text in analyse(small(provenance=provenance), []).warnings)

    assert told(7.5)
    assert not told(0.3)
    assert not told(None)


def test_timed_answers_are_held_against_graded_ones():
    rows = [row("plain", i, text="a") for i in range(4)]
    rows += [row("plain", i, phase="speed", text="a" if i else "b") for i in range(4)]
    summary = analyse(small(), rows)
    assert summary.cell("plain").speed.same_text == 0.75
    assert any("does not repeat itself" in text for text in summary.warnings)


def test_arms_of_other_targets_are_timed_and_not_missed():
    settings = small()
    peer = settings.arms[0].model_copy(
        update={"name": "other", "target": "peer", "role": "arm", "lossless": None}
    )
    settings = settings.model_copy(update={"arms": [settings.arms[0], peer]})
    rows = [row("plain", i, correct=True) for i in range(4)]
    rows += [row(arm, i, phase="speed") for i in range(4) for arm in ("plain", "other")]
    summary = analyse(settings, rows)
    cell = summary.cell("other")
    assert cell.speed.speedup.value == 1
    assert cell.divergence.identical == 1
    assert cell.quality.graded == 0
    assert not any("no answer" in text for text in summary.warnings)

"""Training a judge: labels, resumption, the fit, and what the report says."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.core.progress import StageEvent
from adaptivespec.engine.engine import Engine
from adaptivespec.train.judge.fit import (
    FitOptions,
    at_precision,
    auc,
    bootstrap,
    fit_flips,
    fit_logistic,
)
from adaptivespec.train.judge.flips import FLIPS_FILE, Flip, FlipMiner, FlipOptions
from adaptivespec.train.judge.prompts import NUMBER, extractor, read_prompts
from adaptivespec.train.judge.run import JudgeRun
from adaptivespec.verify.probe import Probe
from fakes import scripted, tiny_engine

PROMPTS = [f"{a} {b}" for a in range(1, 13) for b in range(7, 61, 9)]
#: Short answers, and final answers that coincide every other time.
EOS, MODULUS = range(0, 61, 7), 2
MINING = FlipOptions(
    flips=20, flips_per_prompt=3, max_tokens=12, min_margin=0.001, policy="static:2,3,7"
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine.engine(EOS, MODULUS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"question": text}) for text in PROMPTS))
    return path


@pytest.fixture(scope="module")
def whole(engine: Engine, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of an undisturbed run."""
    output = tmp_path_factory.mktemp("whole")
    judge_run(engine, data, output).run()
    return output


def judge_run(engine: Engine, data: Path, output: Path, **options: Any) -> JudgeRun:
    return JudgeRun(engine, data, output, mining=MINING, fitting=FitOptions(0.4), **options)


def miner(engine: Engine, output: Path, **options: Any) -> FlipMiner:
    made = FlipMiner(engine, PROMPTS, output, replace(MINING, **options))
    made.resume()
    return made


def few(engine: Engine, output: Path, flips: int) -> str:
    """Mine so many flips, or a few more; returns the file."""
    made = miner(engine, output, flips=flips)
    while not made.done:
        made.mine_next()
    return made.path.read_text()


# --- prompts and answers


def test_prompt_forms(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"question": "a", "answer": "b"}\n\n{"prompt": "c"}\n')
    assert read_prompts(path) == ["a", "c"]


@pytest.mark.parametrize("line", ["", "{", "[1]", '{"p": "x"}', '{"prompt": 3}', '{"prompt": " "}'])
def test_bad_prompts_name_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(line)
    with pytest.raises(ConfigError) as caught:
        read_prompts(path)
    assert caught.value.field == "data"
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("3 + 4 = 7", "7"),
        ("so 1,200.50 dollars.", "1200.5"),
        ("7 and then 7.0", "7"),
        ("it is -12.", "-12"),
        ("none", None),
    ],
)
def test_the_last_number_is_the_answer(text: str, answer: str | None) -> None:
    assert extractor(NUMBER)(text) == answer


def test_an_answer_of_another_form() -> None:
    assert extractor(r"answer: (\w+)")("answer: B or answer: C") == "C"
    with pytest.raises(ConfigError, match="answer_regex"):
        FlipOptions(answer_regex="(")


@pytest.mark.parametrize("options", [{"flips": 0}, {"max_tokens": 0}, {"min_margin": 1.0}])
def test_options_have_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        FlipOptions(**options)


# --- mining


def test_a_label_is_what_the_target_does_after_the_flip(engine: Engine, whole: Path) -> None:
    made = miner(engine, whole)
    answer = extractor(NUMBER)
    assert len(made.flips) >= 20
    assert 0 < sum(flip.harmless for flip in made.flips) < len(made.flips)
    for flip in made.flips:
        prompt = engine.tokenizer.encode(PROMPTS[flip.prompt])
        strict = engine.generate(prompt, policy="none", max_tokens=12)
        assert strict.finish_reason == "stop"
        assert strict.token_ids[flip.position] == flip.own != flip.token
        assert not {flip.own, flip.token} & set(EOS)
        assert flip.margin > 0.001
        head = [*strict.token_ids[: flip.position], flip.token]
        rest = engine.generate([*prompt, *head], policy="none", max_tokens=15 - len(head))
        same = answer(engine.tokenizer.decode([*head, *rest.token_ids])) == answer(strict.text)
        assert flip.harmless == (same and rest.finish_reason == "stop")
        # The feature is the target's own state where it has just read the flipped token.
        cache = engine.target.new_cache(40)
        hidden = engine.target.prefill(cache, [*prompt, *head]).hidden
        assert torch.allclose(flip.hidden, hidden[0], atol=1e-3)
        assert flip.draft_hidden.shape == flip.hidden.shape


def test_few_flips_of_a_prompt_and_one_of_a_position(engine: Engine, whole: Path) -> None:
    made = miner(engine, whole)
    places = [(flip.prompt, flip.position) for flip in made.flips]
    assert len(set(places)) == len(places)
    for prompt in {flip.prompt for flip in made.flips}:
        positions = [p for q, p in places if q == prompt]
        assert len(positions) <= 3
        assert positions == sorted(positions, reverse=True)
    assert made.skipped
    assert sum(made.skipped.values()) + len({q for q, _ in places}) == made.seen


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(
    engine: Engine, whole: Path, tmp_path: Path
) -> None:
    parts = miner(engine, tmp_path, flips=8)
    while not parts.done:
        parts.mine_next()
        with parts.path.open("a") as file:
            file.write('{"prompt": 3, "fl')  # killed while it wrote
        parts = miner(engine, tmp_path, flips=8)
    assert (whole / FLIPS_FILE).read_text().startswith(parts.path.read_text())


def test_a_finished_run_goes_on_to_more_labels(engine: Engine, whole: Path, tmp_path: Path) -> None:
    first = few(engine, tmp_path, 3)
    second = few(engine, tmp_path, 8)
    assert second.startswith(first)
    assert first != second
    assert (whole / FLIPS_FILE).read_text().startswith(second)


def test_another_runs_flips_are_refused(engine: Engine, tmp_path: Path) -> None:
    miner(engine, tmp_path).mine_next()
    with pytest.raises(CheckpointError, match="other values of max_tokens"):
        miner(engine, tmp_path, max_tokens=17)
    with pytest.raises(CheckpointError, match="prompts_sha256"):
        FlipMiner(engine, PROMPTS[::-1], tmp_path, MINING).resume()
    (tmp_path / FLIPS_FILE).write_text("junk\n")
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        miner(engine, tmp_path)


def test_answers_by_a_function(engine: Engine, tmp_path: Path) -> None:
    made = FlipMiner(engine, PROMPTS, tmp_path, replace(MINING, flips=4), lambda text: "same")
    made.resume()
    while not made.done:
        made.mine_next()
    # Whatever finishes has the same answer.
    assert any(flip.harmless for flip in made.flips)
    rows = [json.loads(line) for line in made.path.read_text().splitlines()[1:]]
    assert all(f["harmless"] == (f["answer"] == "same") for row in rows for f in row["flips"])


def test_a_prompt_that_does_not_fit_is_skipped(engine: Engine, tmp_path: Path) -> None:
    made = FlipMiner(engine, ["7 " * 128], tmp_path, MINING)
    made.resume()
    made.mine_next()
    assert made.skipped == {"too long": 1}


def test_a_target_without_a_drafter(engine: Engine, tmp_path: Path) -> None:
    plain = Engine(engine.target, engine.tokenizer, None, "plain")
    with pytest.raises(ConfigError, match="plain has no drafter"):
        FlipMiner(plain, PROMPTS, tmp_path)


def test_a_target_without_hidden_states(tmp_path: Path) -> None:
    made = scripted.engine(lambda p: scripted.prefer(3), lambda p: scripted.chain(4))
    with pytest.raises(ConfigError, match="hidden states"):
        FlipMiner(made, ["a"], tmp_path).mine_next()


# --- fitting


def planted(count: int = 600, size: int = 12, noise: float = 0.3) -> tuple[list[Flip], list[str]]:
    """Flips whose label is the sign of a fixed direction; margins say nothing."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(count, size, generator=generator)
    score = hidden[:, 0] - 2 * hidden[:, 1] + noise * torch.randn(count, generator=generator)
    scale = torch.exp(3 * torch.randn(count, 1, generator=generator))
    margin = torch.rand(count, generator=generator)
    flips = [
        Flip(
            prompt=i // 6,
            position=0,
            token=1,
            own=2,
            margin=float(margin[i]),
            harmless=bool(score[i] > 1),
            hidden=(hidden * scale)[i],
            draft_hidden=hidden[i] * 0,
        )
        for i in range(count)
    ]
    return flips, [f"prompt {i}" for i in range(count // 6)]


def test_the_fit_finds_a_planted_direction() -> None:
    flips, texts = planted()
    fit = fit_flips(flips, texts, "judge")
    direction = torch.zeros(12)
    direction[0], direction[1] = 1.0, -2.0
    assert torch.cosine_similarity(fit.weight, direction, dim=0) > 0.97
    held = fit.report["held_out"]
    assert held["prompts"] == 20
    assert held["flips"] == 120
    assert held["auc"] > 0.95
    assert 0.3 < held["margin_auc"] < 0.7
    assert held["position_auc"] == 0.5  # all the same
    splits = fit.report["random_splits"]
    assert splits["auc"] > 0.95
    assert splits["auc_range"][0] > 0.9
    assert held["interval_95"]["difference"][0] > 0.2
    assert held["accuracy"] > held["majority_accuracy"] + 0.1
    assert held["at_90_precision"]["share"] > 0.5 > held["margin_at_90_precision"]["share"]


def test_nothing_to_find_is_said_so() -> None:
    flips, texts = planted()
    shuffled = [replace(f, harmless=g.harmless) for f, g in zip(flips, flips[::-1], strict=True)]
    held = fit_flips(shuffled, texts, "judge").report["held_out"]
    low, high = held["interval_95"]["auc"]
    assert low < 0.5 < high
    assert held["accuracy"] <= held["majority_accuracy"] + 0.05


def test_the_same_prompt_twice_is_one_prompt() -> None:
    flips, texts = planted(60)
    report = fit_flips(flips, [*texts[:5], *texts[:5]], "judge").report
    assert report["train"]["prompts"] + report["held_out"]["prompts"] == 5


def test_semantic_reads_both() -> None:
    flips, texts = planted()
    swapped = [replace(f, hidden=f.draft_hidden, draft_hidden=f.hidden) for f in flips]
    fit = fit_flips(swapped, texts, "semantic")
    assert fit.weight.shape == (24,)
    assert fit.weight[:12].abs().max() < 1e-6
    assert fit.report["held_out"]["auc"] > 0.95


def test_the_split_is_by_prompt_and_does_not_depend_on_the_order() -> None:
    flips, texts = planted(240)
    one = fit_flips(flips, texts, "judge").report
    two = fit_flips(flips[::-1], texts, "judge").report
    assert one["held_out"]["harmless"] == two["held_out"]["harmless"]
    assert one["held_out"]["prompts"] + one["train"]["prompts"] == 40
    other = fit_flips(flips, texts, "judge", FitOptions(seed=1)).report
    assert other["held_out"]["harmless"] != one["held_out"]["harmless"]


def test_one_class_alone_teaches_nothing() -> None:
    flips, texts = planted(60)
    with pytest.raises(ConfigError, match="48 train flips of 8 prompts 0 are harmless") as caught:
        fit_flips([replace(f, harmless=False) for f in flips], texts, "judge")
    assert caught.value.field == "flips"


def test_logistic_regression_by_hand() -> None:
    # 3 of 4 ones at x = 1 and 1 of 4 at x = -1: without a penalty the log odds are ln 3 and -ln 3.
    x = torch.tensor([1.0] * 4 + [-1.0] * 4).double()[:, None]
    y = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0]).double()
    weight, bias = fit_logistic(x, y, 0.0)
    assert weight.item() == pytest.approx(math.log(3), abs=1e-4)
    assert bias.item() == pytest.approx(0, abs=1e-4)
    # Units do not matter: the penalty is on standardised features.
    strong, _ = fit_logistic(x, y, 0.1)
    moved, offset = fit_logistic(100 * x + 7, y, 0.1)
    assert strong.item() < weight.item()
    assert moved.item() == pytest.approx(strong.item() / 100)
    assert offset.item() == pytest.approx(-7 * moved.item(), abs=1e-4)


def test_auc_by_hand() -> None:
    # Pairs (positive, negative): .9>.5 .9>.1 .5=.5 .5>.1 -> (1 + 1 + .5 + 1) / 4
    score = torch.tensor([0.9, 0.5, 0.5, 0.1])
    label = torch.tensor([True, True, False, False])
    assert auc(score, label) == 0.875
    assert math.isnan(auc(score, label | True))


def test_share_at_a_precision_by_hand() -> None:
    score = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5])
    label = torch.tensor([True, True, False, True, True])
    # Precision after 1 to 5 accepted: 1, 1, 2/3, 3/4, 4/5.
    assert at_precision(score, label, 0.9) == {
        "accepted": 2,
        "harmless": 2,
        "share": 0.5,
        "threshold": pytest.approx(0.8),
    }
    assert at_precision(score, label, 0.8)["share"] == 1.0
    # A threshold takes all of what ties: 1 of 2.
    tied = at_precision(torch.tensor([0.9, 0.9]), torch.tensor([True, False]), 0.9)
    assert tied == {"accepted": 0, "harmless": 0, "share": 0.0, "threshold": None}


def test_the_interval_draws_whole_prompts() -> None:
    label = torch.tensor([True, False] * 20)
    score = label.double()
    # One prompt: every resample is the sample itself.
    one = bootstrap(score, -score, label, torch.zeros(40), seed=0)
    assert one == {"auc": [1.0, 1.0], "margin_auc": [0.0, 0.0], "difference": [1.0, 1.0]}
    score[0] = -1.0
    many = bootstrap(score, -score, label, torch.arange(40) // 2, seed=0)
    assert many["auc"][0] < auc(score, label) <= many["auc"][1]


# --- the whole


@pytest.mark.parametrize("kind", ["judge", "semantic"])
def test_a_run_writes_a_head_that_its_rule_takes(
    engine: Engine, data: Path, whole: Path, tmp_path: Path, kind: str
) -> None:
    shutil.copy(whole / FLIPS_FILE, tmp_path)
    head = judge_run(engine, data, tmp_path, kind=kind).run()
    loaded = Probe.load(tmp_path, kind)
    assert torch.equal(loaded.weight, head.weight)
    report = loaded.provenance["report"]
    assert report["held_out"]["flips"] + report["train"]["flips"] >= 20
    assert loaded.provenance["data_sha256"]
    card = (tmp_path / "README.md").read_text()
    assert "the margin p / max p" in card.partition("##")[0]
    result = engine.generate([3, 5], rule=kind, rule_options={"head": str(tmp_path)}, max_tokens=8)
    assert not result.lossless


def test_an_interrupted_run_ends_with_the_same_head(
    engine: Engine, data: Path, whole: Path, tmp_path: Path
) -> None:
    events: list[StageEvent] = []

    def interrupt(event: StageEvent) -> None:
        events.append(event)
        if event.done >= 6 and len(events) < 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_run(engine, data, tmp_path, progress=interrupt).run()
    first = len(events)
    parts = judge_run(engine, data, tmp_path, progress=events.append).run()
    undisturbed = Probe.load(whole, "judge")
    assert torch.equal(undisturbed.weight, parts.weight)
    assert torch.equal(undisturbed.bias, parts.bias)
    assert undisturbed.provenance["report"] == parts.provenance["report"]
    assert {event.stage for event in events} == {"flips"}
    assert [event.values["prompts"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) > first


def test_a_short_run_fits_what_there_is(
    engine: Engine, data: Path, whole: Path, tmp_path: Path
) -> None:
    lines = (whole / FLIPS_FILE).read_text().splitlines(keepends=True)
    (tmp_path / FLIPS_FILE).write_text("".join(lines[:-2]))
    again = judge_run(engine, data, tmp_path, max_minutes=1e-9).run()
    assert again.provenance["prompts"]["read"] == len(lines) - 2


def test_what_a_run_refuses(engine: Engine, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Use judge or semantic"):
        judge_run(engine, data, tmp_path, kind="jury").run()
    run = judge_run(engine, data, tmp_path, extract=lambda text: None, max_minutes=1e-9)
    with pytest.raises(ConfigError, match="gave no flip"):
        run.run()
    with pytest.raises(ConfigError, match="held_out"):
        FitOptions(held_out=1.0)

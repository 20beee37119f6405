"""Training a head: corpus, loss, resumption, and that it learns."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from adaptivespec.core.errors import CheckpointError, ConfigError, NumericalError
from adaptivespec.core.progress import StageEvent
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.nn.attention import additive_mask, causal
from adaptivespec.nn.norm import fold_gain
from adaptivespec.train.data.corpus import Item, clean, loop_start, read_corpus, split
from adaptivespec.train.data.features import Sequence_
from adaptivespec.train.data.questions import Question
from adaptivespec.train.head.loss import SoftCrossEntropy
from adaptivespec.train.head.model import initial_checkpoint
from adaptivespec.train.head.options import TrainOptions
from adaptivespec.train.head.teacher import Teacher
from adaptivespec.train.head.trainer import HeadTrainer
from fakes import tiny


def encode(text: str) -> list[int]:
    return [ord(c) % 61 for c in text]


def texts(count: int, seed: int = 0) -> list[Item]:
    """Greedy answers of the tiny target to random prompts."""
    rng = random.Random(seed)
    target = tiny.target()
    items = []
    for _ in range(count):
        prompt = [rng.randrange(61) for _ in range(rng.randint(2, 5))]
        ids = list(prompt)
        cache = target.new_cache(40)
        out = target.prefill(cache, ids)
        for _ in range(rng.randint(10, 20)):
            ids.append(int(out.logits.argmax()))
            out = target.prefill(cache, ids[-1:])
        items.append(Item(tuple(prompt), tuple(ids[len(prompt) :])))
    return items


def start() -> Eagle3Checkpoint:
    """A new head that can draft every id."""
    config = tiny.head(draft_vocab_size=61).config
    return initial_checkpoint(config, tiny.weights(), tiny.CONFIG.num_layers, torch.arange(61))


class Features:
    """What the tiny target computes on `items`, in memory."""

    def __init__(self, items: list[Item]) -> None:
        self.items, self.made = items, [self._make(item) for item in items]

    def __getitem__(self, index: int) -> Sequence_:
        return self.made[index]

    @torch.no_grad()
    def _make(self, item: Item) -> Sequence_:
        model, tokens = tiny.target().model, torch.tensor(item.tokens)
        rows = tokens.shape[0]
        mask = additive_mask(causal(rows), 0, 2, torch.float32)
        cache = tiny.target().new_cache(rows)
        final, taps = model.forward(
            tokens, torch.arange(rows), cache.behind(), mask, tiny.HEAD.tap_layers
        )
        greedy = model.logits(final).argmax(-1)
        return Sequence_(tokens, taps.bfloat16(), final.bfloat16(), greedy, len(item.prompt))


def teacher() -> Teacher:
    model = tiny.target().model
    rows = fold_gain(model.output[:61], tiny.weights()["model.norm.weight"])
    return Teacher(model.embedding, rows, tiny.CONFIG.rms_norm_eps, tiny.CONFIG.eos_token_ids)


def trainer(output: Path, **options: Any) -> HeadTrainer:
    items = texts(20)
    chosen = TrainOptions(**{"epochs": 2, "learning_rate": 3e-3, "warmup_steps": 2, **options})
    events: list[StageEvent] = []
    made = HeadTrainer(
        teacher(),
        start(),
        Features(items[:16]),
        Features(items[16:]),
        output,
        chosen,
        events.append,
    )
    made.events = events  # type: ignore[attr-defined]
    return made


def test_corpus_forms(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    rows = [
        {"p": [1, 2], "o": [3], "k": "gsm"},
        {"prompt": "ab", "response": "cd"},
        {"prompt": "ab", "kind": "chat"},
    ]
    with gzip.open(path, "wt") as file:
        file.write("\n".join(json.dumps(row) for row in rows) + "\n\n")
    corpus = read_corpus(path, lambda text: [60, *encode(text)], encode)
    assert corpus.items[0] == Item((1, 2), (3,), "gsm")
    assert corpus.items[1] == Item((60, *encode("ab")), tuple(encode("cd")))
    assert corpus.questions == [Question("chat", ("ab",))]


BAD_LINES = ["", "{", "[1]", '{"p": [1]}', '{"q": 1}', '{"p": ["x"], "o": []}']


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_corpora_name_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(line)
    with pytest.raises(ConfigError) as caught:
        read_corpus(path, encode, encode)
    assert caught.value.field == "data"
    assert str(path) in str(caught.value)


def test_a_missing_corpus(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_corpus(tmp_path / "none.jsonl", encode, encode)


def test_loops_are_cut_where_the_third_begins() -> None:
    gram = list(range(8))
    assert loop_start([50, 51, *gram * 2, 52]) is None
    assert loop_start([50, *gram * 4]) == 17
    item = Item((1,), (50, *gram * 4))
    assert clean([item, item], max_len=100) == [Item((1,), (50, *gram * 2))]
    assert clean([item], max_len=12)[0].response == (50, *gram, 0, 1)
    assert clean([Item((1,), (2,) * 3)], max_len=100) == []


def test_the_split_is_by_prompt_and_stable() -> None:
    items = [Item((i % 7,), (i,) * 9) for i in range(40)]
    train, test = split(items, 2)
    assert len(train) + len(test) == 40
    assert not {i.prompt for i in train} & {i.prompt for i in test}
    assert split(list(reversed(items)), 2)[1] == list(reversed(test))


@pytest.mark.parametrize("exact", [False, True])
def test_loss_and_gradient_equal_torch(exact: bool) -> None:
    logits = torch.randn(160, 30, requires_grad=True)  # the last ten rows count for nothing
    p, index = torch.randn(70, 30).softmax(-1), torch.randint(70, (150,))
    best = p.argmax(-1)[index]
    got = logits.detach().clone()
    losses, hits = SoftCrossEntropy(30)(got, p, index, best, exact)
    want = F.cross_entropy(logits[:150], p[index], reduction="none")
    want.sum().backward()
    assert torch.allclose(losses, want, atol=1e-5)
    assert torch.allclose(got, logits.grad, atol=1e-6)
    assert torch.equal(hits, logits[:150].argmax(-1) == best)


def test_training_learns_and_writes_a_head_that_loads(tmp_path: Path) -> None:
    made = trainer(tmp_path, epochs=16, learning_rate=2e-2)
    made.run()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == made.total_steps == 64
    losses = [e.values["loss"][0] for e in made.events if e.stage == "train"]
    # The floor is the entropy of a random target, so the loss alone falls by a tenth.
    assert sum(losses[-8:]) < 0.92 * sum(losses[:8])
    assert rows[-1]["accuracy"]["all"][0] > rows[0]["accuracy"]["all"][0]
    assert {e.stage for e in made.events} == {"train", "check"}
    assert rows[-1]["tokens"] == 16 * sum(len(i.response) for i in made.train_set.items)
    assert rows[-1]["loss"][0] < rows[0]["loss"][0]
    assert all(e.values["tokens_per_s"] > 0 for e in made.events if e.stage == "train")
    loaded = Eagle3Checkpoint.load(tmp_path)
    now = made.module.checkpoint().tensors["fc.weight"].bfloat16()
    assert torch.equal(loaded.tensors["fc.weight"], now)


@pytest.mark.parametrize(
    "options", [{}, {"average": 0.9, "loss_rows": 0.5}, {"tie_output": True, "average": 0.9}]
)
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    whole = trainer(tmp_path / "whole", **options)
    head = whole.run()
    first = trainer(tmp_path / "parts", max_minutes=1e-9, **options)
    first.run()
    assert first.step == 1
    while first.step < whole.total_steps:
        first = trainer(tmp_path / "parts", max_minutes=1e-9, **options)
        resumed = first.run()
    assert first.tokens == whole.tokens
    for name, tensor in whole.module.state_dict().items():
        assert torch.equal(tensor, first.module.state_dict()[name]), name
    for name, tensor in head.tensors.items():
        assert torch.equal(tensor, resumed.tensors[name]), name


def test_max_steps_ends_the_schedule_wherever_the_epochs_are(tmp_path: Path) -> None:
    for steps, done in ((3, 3), (6, 6), (50, 8)):
        made = trainer(tmp_path / str(steps), max_steps=steps)
        made.run()
        assert (made.step, made.total_steps) == (done, done)
        assert made._rate() == pytest.approx(0.03 * 3e-3)


def test_an_interrupted_run_keeps_its_steps(tmp_path: Path) -> None:
    made = trainer(tmp_path)

    def interrupt(event: StageEvent) -> None:
        if event.stage == "train" and event.done == 3:
            raise KeyboardInterrupt

    made.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        made.run()
    again = trainer(tmp_path)
    again.run()
    steps = [e.done for e in again.events if e.stage == "train"]
    assert steps == list(range(4, again.total_steps + 1))


def test_another_runs_state_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, max_minutes=1e-9).run()
    with pytest.raises(CheckpointError, match="batch_size"):
        trainer(tmp_path, batch_size=2).run()
    (tmp_path / "training-state.pt").write_bytes(b"junk")
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        trainer(tmp_path).run()


CHANGES = [
    {"unroll_steps": 2},
    {"average": 0.5},
    {"tie_output": True},
    {"loss_rows": 0.5},
    {"step_weight": 0.5},
    {"final_rate": 0.5},
    {"warmup_steps": 1},
]


def test_every_option_that_changes_the_result_must_stay(tmp_path: Path) -> None:
    trainer(tmp_path, max_minutes=1e-9).run()
    for change in CHANGES:
        with pytest.raises(CheckpointError, match=next(iter(change))):
            trainer(tmp_path, **change).run()
    assert not {"max_minutes", "checkpoint_minutes"} & set(TrainOptions.fixed())


def test_the_average_is_what_is_written_and_the_raw_weights_go_on(tmp_path: Path) -> None:
    made = trainer(tmp_path, epochs=4, learning_rate=2e-2, average=0.9)
    written = made.run().tensors["fc.weight"]
    raw = made.module.w("fc").detach()
    assert torch.equal(Eagle3Checkpoint.load(tmp_path).tensors["fc.weight"], written.bfloat16())
    assert not torch.equal(written, raw)
    assert (written - raw).norm() < (start().tensors["fc.weight"] - raw).norm()
    state = torch.load(tmp_path / "training-state.pt", weights_only=True)
    assert torch.equal(state["weights"]["weights.fc__weight"], raw)


def test_a_tied_output_layer_stays_the_targets(tmp_path: Path) -> None:
    made = trainer(tmp_path, tie_output=True)
    first = made.module.checkpoint().tensors
    head = made.run()
    assert torch.equal(head.tensors["lm_head.weight"], teacher().output)
    assert not torch.equal(head.tensors["norm.weight"], first["norm.weight"])
    # The new head's output layer is the target's already, with the norm's gain outside of it.
    assert torch.allclose(first["norm.weight"], torch.ones(32), atol=1e-4)
    assert "lm_head.weight" in Eagle3Checkpoint.load(tmp_path).tensors


def test_what_is_not_finite_stops_the_run_and_is_not_written(tmp_path: Path) -> None:
    made = trainer(tmp_path)

    def spoil(event: StageEvent) -> None:
        if event.stage == "train" and event.done == 2:
            made.module.w("fc").data.fill_(torch.nan)

    made.progress = spoil
    with pytest.raises(NumericalError, match="optimiser step 3") as caught:
        made.run()
    assert caught.value.step == 2
    assert caught.value.remedy
    loaded = Eagle3Checkpoint.load(tmp_path).tensors
    assert all(tensor.isfinite().all() for tensor in loaded.values())


BAD_OPTIONS = [
    {"epochs": 0},
    {"learning_rate": 0.0},
    {"learning_rate": float("nan")},
    {"batch_size": -1},
    {"unroll_steps": 0},
    {"warmup_steps": -1},
    {"step_weight": 0.0},
    {"final_rate": 1.5},
    {"average": 1.0},
    {"loss_rows": 0.0},
    {"checkpoint_minutes": -1.0},
    {"max_minutes": 0.0},
]


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_options_have_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        TrainOptions(**options)

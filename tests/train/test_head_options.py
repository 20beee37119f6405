"""The packed training step against the plain computation, and heads that grow."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint
from adaptivespec.nn.rope import Rope, rotate
from adaptivespec.train.data.corpus import Item
from adaptivespec.train.data.features import Sequence_
from adaptivespec.train.head.grow import grow, tied
from adaptivespec.train.head.model import Eagle3Module
from adaptivespec.train.head.options import TrainOptions
from adaptivespec.train.head.teacher import Teacher
from adaptivespec.train.head.trainer import HeadTrainer
from fakes import tiny

VOCAB, HIDDEN, EOS = 61, 32, 0


class Random:
    """Texts of given (prompt, response) lengths with random features and choices."""

    def __init__(self, lengths: list[tuple[int, int]], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.items, self.texts = [], []
        for prompt, response in lengths:
            n = prompt + response
            tokens = torch.randint(VOCAB, (n,), generator=draw)
            ids = tokens.tolist()
            self.items.append(Item(tuple(ids[:prompt]), tuple(ids[prompt:]), "ab"[n % 2]))
            taps = torch.randn(n, 3 * HIDDEN, generator=draw)
            final = torch.randn(n, HIDDEN, generator=draw)
            greedy = torch.randint(VOCAB, (n,), generator=draw)
            self.texts.append(Sequence_(tokens, taps, final, greedy, prompt))

    def __getitem__(self, index: int) -> Sequence_:
        return self.texts[index]


def teacher(seed: int = 0) -> Teacher:
    draw = torch.Generator().manual_seed(seed)
    embedding, output = torch.randn(2, VOCAB, HIDDEN, generator=draw)
    return Teacher(embedding, 0.3 * output, 1e-5, (EOS,))


class Exact(HeadTrainer):
    dtype = torch.float32


def exact(texts: Random, workers: int = 1, **options: Any) -> Exact:
    chosen = TrainOptions(**options)
    return Exact(teacher(), tiny.head(), texts, texts, Path("none"), chosen, workers=workers)


def plain_outputs(w: dict[str, Tensor], text: Sequence_, steps: int) -> list[Tensor]:
    """Logits `[n, draft vocab]` per unroll step with every row and full masks."""
    c, n = tiny.HEAD, text.tokens.shape[0]
    rope = Rope(c.head_dim, c.rope_theta, 256, torch.float32)
    tokens = F.pad(text.tokens, (0, steps + 1))
    embedding = teacher().embedding

    def norm(x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (HIDDEN,), w[f"{name}.weight"], c.rms_norm_eps)

    def project(x: Tensor, name: str) -> Tensor:
        return F.linear(x, w[f"{LAYER}.self_attn.{name}_proj.weight"])

    x = F.linear(text.taps, w["fc.weight"])
    keys, values, masks, outputs = [], [], [], []
    for step in range(steps):
        e = norm(embedding[tokens[step + 1 : step + 1 + n]], f"{LAYER}.input_layernorm")
        both = torch.cat((e, norm(x, f"{LAYER}.hidden_norm")), -1)
        cos, sin = rope.at(torch.arange(step, step + n))
        q = rotate(project(both, "q").view(n, c.num_heads, c.head_dim), cos, sin)
        k = rotate(project(both, "k").view(n, c.num_kv_heads, c.head_dim), cos, sin)
        v = project(both, "v").view(n, c.num_kv_heads, c.head_dim)
        groups = c.num_heads // c.num_kv_heads
        keys.append(k.repeat_interleave(groups, 1))
        values.append(v.repeat_interleave(groups, 1))
        masks.append(torch.ones(n, n).tril().bool() if step == 0 else torch.eye(n).bool())
        score = torch.einsum("thd,shd->hts", q, torch.cat(keys)) * c.head_dim**-0.5
        weight = score.masked_fill(~torch.cat(masks, 1), -torch.inf).softmax(-1)
        out = torch.einsum("hts,shd->thd", weight, torch.cat(values)).reshape(n, -1)
        x = x + project(out, "o")
        y = norm(x, f"{LAYER}.post_attention_layernorm")
        gate = F.silu(F.linear(y, w[f"{LAYER}.mlp.gate_proj.weight"]))
        up = F.linear(y, w[f"{LAYER}.mlp.up_proj.weight"])
        x = x + F.linear(gate * up, w[f"{LAYER}.mlp.down_proj.weight"])
        outputs.append(F.linear(norm(x, "norm"), w["lm_head.weight"]))
    return outputs


def plain_losses(
    w: dict[str, Tensor], texts: list[Sequence_], steps: int
) -> tuple[list[Tensor], list[float]]:
    """Mean loss and accuracy of each unroll step, row by row."""
    ids = tiny.head().target_ids
    known: list[int] = ids.tolist()
    rows: list[list[Tensor]] = [[] for _ in range(steps)]
    hits: list[list[float]] = [[] for _ in range(steps)]
    for text in texts:
        final = F.rms_norm(text.final, (HIDDEN,), None, 1e-5)
        wanted = F.linear(final, teacher().output[ids]).softmax(-1)
        for k, logits in enumerate(plain_outputs(w, text, steps)):
            for t in range(max(text.prompt_len - 1, 0), text.tokens.shape[0] - k - 1):
                said = t + k + 1
                choice = int(text.greedy[said])
                if choice in known and int(text.tokens[said]) != EOS:
                    rows[k].append(F.cross_entropy(logits[t], wanted[said]))
                    hits[k].append(float(known[int(logits[t].argmax())] == choice))
    count = [max(len(r), 1) for r in rows]
    zero = torch.zeros(())
    return (
        [torch.stack([zero, *r]).sum() / n for r, n in zip(rows, count, strict=True)],
        [sum(h) / n for h, n in zip(hits, count, strict=True)],
    )


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), min_size=1, max_size=4)


@settings(max_examples=20, deadline=None)
@given(lengths=LENGTHS, steps=st.integers(1, 5), seed=st.integers(0, 99))
def test_losses_and_gradients_equal_the_plain_computation(
    lengths: list[tuple[int, int]], steps: int, seed: int
) -> None:
    texts = Random(lengths, seed)
    made = exact(texts, unroll_steps=steps, step_weight=0.7)
    losses, accuracy = made._gradients(range(len(lengths)))
    weights = {
        name.replace("__", "."): p.detach().clone().requires_grad_()
        for name, p in made.module.weights.items()
    }
    want, hits = plain_losses(weights, texts.texts, steps)
    assert losses == pytest.approx([float(v.detach()) for v in want], rel=1e-5, abs=1e-5)
    assert accuracy == pytest.approx(hits, abs=1e-6)
    total = sum(loss * 0.7**k for k, loss in enumerate(want))
    if not isinstance(total, Tensor) or not total.requires_grad:
        return
    total.backward()
    for name, p in weights.items():
        got = made.module.weights[name.replace(".", "__")].grad
        assert got is not None
        expected = torch.zeros_like(p) if p.grad is None else p.grad
        scale = max(float(expected.abs().max()), 1e-3)
        assert torch.allclose(got, expected, atol=2e-5 * scale, rtol=1e-4), name


def test_a_check_is_the_plain_accuracy_by_kind() -> None:
    texts = Random([(3, 9 + i) for i in range(11)], seed=5)
    made = exact(texts, unroll_steps=3)
    got = made.evaluate()
    weights = {name.replace("__", "."): p.detach() for name, p in made.module.weights.items()}
    for kind in ("all", "a", "b"):
        some = [t for t, i in zip(texts.texts, texts.items, strict=True) if kind in ("all", i.kind)]
        losses, hits = plain_losses(weights, some, 5)
        assert got["accuracy"][kind] == pytest.approx(hits, abs=1e-4)
        if kind == "all":
            assert got["loss"] == pytest.approx([float(v) for v in losses], abs=1e-3)


def test_bfloat16_is_near_float32() -> None:
    texts = Random([(5, 70), (9, 40), (2, 66)], seed=1)
    made = exact(texts, unroll_steps=3)
    rough = HeadTrainer(
        teacher(), tiny.head(), texts, texts, Path("none"), TrainOptions(unroll_steps=3)
    )
    want, _ = made._gradients([0, 1, 2])
    got, _ = rough._gradients([0, 1, 2])
    assert got == pytest.approx(want, rel=0.02)
    for name, p in made.module.weights.items():
        other = rough.module.weights[name].grad
        assert p.grad is not None
        assert other is not None
        assert F.cosine_similarity(p.grad.flatten(), other.flatten(), dim=0) > 0.99, name


def test_gradients_do_not_add_up_between_steps() -> None:
    texts = Random([(5, 30), (9, 20)], seed=2)
    made = exact(texts)
    made._gradients([0])
    made._gradients([1])
    fresh = exact(texts)
    fresh._gradients([1])
    for name, p in made.module.weights.items():
        assert torch.equal(p.grad, fresh.module.weights[name].grad), name  # type: ignore[arg-type]


def test_a_share_of_the_rows_is_chosen_by_seed_at_later_steps_only() -> None:
    texts = Random([(3, 80), (5, 60)], seed=3)
    whole, part = exact(texts), exact(texts, loss_rows=0.25)
    made = part.lanes[0].part(texts.texts, "0-0")
    again = part.lanes[0].part(texts.texts, "0-0")
    other = part.lanes[0].part(texts.texts, "1-0")
    for k in range(3):
        rows, at = made.batch.counted(k)
        chosen, their = made.chosen[k]
        assert chosen.numel() == (rows.numel() if k == 0 else math.ceil(rows.numel() / 4))
        assert set(chosen.tolist()) <= set(rows.tolist())
        assert torch.equal(their, at[torch.isin(rows, chosen)])
        assert torch.equal(chosen, again.chosen[k][0])
    assert not torch.equal(made.chosen[1][0], other.chosen[1][0])
    assert part._gradients([0, 1])[0][0] == whole._gradients([0, 1])[0][0]


@pytest.mark.parametrize("workers", [2, 3])
def test_lanes_share_a_batch_and_change_nothing_but_rounding(workers: int) -> None:
    texts = Random([(3, 30), (5, 31), (4, 33), (6, 35)], seed=4)
    alone, shared = exact(texts), exact(texts, workers=workers)
    assert len(shared.lanes) == workers
    with shared._threads():
        for batch in ([0, 1, 2, 3], [3, 1], [2], [0, 1, 2, 3]):
            expected, got = alone._gradients(batch), shared._gradients(batch)
            assert got[0] == pytest.approx(expected[0], rel=1e-5)
            assert got[1] == pytest.approx(expected[1])
            for name, p in alone.module.weights.items():
                mine = shared.module.weights[name].grad
                assert mine is not None, name
                torch.testing.assert_close(mine, p.grad, rtol=1e-4, atol=1e-6)
            with torch.no_grad():  # what a step changes, the lanes follow
                for module in (alone.module, shared.module):
                    for p in module.weights.values():
                        p.mul_(1.01)


def test_a_batch_without_a_row_that_counts_changes_nothing() -> None:
    texts = Random([(4, 5)], seed=0)
    texts.texts[0].greedy.fill_(1)  # the tiny head drafts odd ids from 3 on
    made = exact(texts)
    assert made._gradients([0])[0] == [0.0, 0.0, 0.0]
    assert all(float(p.grad.abs().max()) == 0 for p in made.module.weights.values())


def test_the_wrong_target_is_refused() -> None:
    small = Teacher(torch.zeros(60, HIDDEN), torch.zeros(60, HIDDEN), 1e-5, (EOS,))
    texts = Random([(2, 9)], seed=0)
    with pytest.raises(CheckpointError, match="vocabulary"):
        HeadTrainer(small, tiny.head(), texts, texts, Path("none"), TrainOptions())
    with pytest.raises(ConfigError, match="output"):
        replace(small, output=torch.zeros(59, HIDDEN))


def outputs(head: Eagle3Checkpoint, steps: int = 2) -> list[Tensor]:
    """Logits of a head on fixed inputs, in float32."""
    draw = torch.Generator().manual_seed(7)
    taps = torch.randn(1, 12, 3 * HIDDEN, generator=draw)
    tokens = torch.randint(VOCAB, (1, 12 + steps), generator=draw)
    module = Eagle3Module(head, teacher().embedding, tiny.MAX_LEN, torch.float32)
    with torch.no_grad():
        return [module.logits(normed[0]) for normed in module.unroll(taps, tokens, steps)]


def test_a_wider_mlp_computes_the_same() -> None:
    head = tiny.head()
    wide = grow(head, teacher=teacher(), intermediate_size=56)
    assert wide.config == replace(head.config, intermediate_size=56)
    for name, tensor in wide.tensors.items():
        assert tuple(tensor.shape) == wide.config.shapes()[name]
    for old, new in zip(outputs(head), outputs(wide), strict=True):
        assert torch.allclose(old, new, atol=1e-4)
    gate = wide.tensors[f"{LAYER}.mlp.gate_proj.weight"][40:]
    assert 0 < gate.std() < head.tensors[f"{LAYER}.mlp.gate_proj.weight"].std()
    again = grow(head, teacher=teacher(), intermediate_size=56)
    assert all(torch.equal(tensor, again.tensors[name]) for name, tensor in wide.tensors.items())
    other = grow(head, teacher=teacher(), intermediate_size=56, seed=1)
    assert not torch.equal(gate, other.tensors[f"{LAYER}.mlp.gate_proj.weight"][40:])


@settings(max_examples=20, deadline=None)
@given(ids=st.sets(st.integers(0, VOCAB - 1), min_size=1))
def test_another_draft_vocabulary_keeps_what_both_have(ids: set[int]) -> None:
    head = tiny.head()
    grown = grow(head, teacher=teacher(), target_ids=torch.tensor(sorted(ids)))
    assert grown.config.draft_vocab_size == len(ids)
    assert grown.target_ids.tolist() == sorted(ids)
    old_ids, new_ids = head.target_ids.tolist(), grown.target_ids.tolist()
    shared = sorted(ids & set(old_ids))
    left, right = [old_ids.index(i) for i in shared], [new_ids.index(i) for i in shared]
    for old, new in zip(outputs(head), outputs(grown), strict=True):
        assert torch.allclose(old[:, left], new[:, right], atol=1e-4)


def test_new_ids_get_commensurate_rows() -> None:
    """A head whose rows are the target's, each column scaled, gets its new rows alike."""
    head, factors = tiny.head(), torch.linspace(0.5, 2, HIDDEN)
    head.tensors["lm_head.weight"] = teacher().rows(head.target_ids) * factors
    grown = grow(head, teacher=teacher(), target_ids=torch.arange(VOCAB))
    assert torch.allclose(grown.tensors["lm_head.weight"], teacher().output * factors, atol=1e-5)


def test_tying_such_a_head_changes_nothing() -> None:
    head, factors = tiny.head(), torch.linspace(0.5, 2, HIDDEN)
    head.tensors["lm_head.weight"] = teacher().rows(head.target_ids) * factors
    for old, new in zip(outputs(head), outputs(tied(head, teacher())), strict=True):
        assert torch.allclose(old, new, atol=1e-3)


def test_a_grown_head_survives_the_disk(tmp_path: Path) -> None:
    ids = torch.arange(0, VOCAB, 2)
    grow(tiny.head(), teacher=teacher(), intermediate_size=64, target_ids=ids).save(tmp_path)
    loaded = Eagle3Checkpoint.load(tmp_path)
    assert loaded.config.intermediate_size == 64
    assert torch.equal(loaded.target_ids, ids)


BAD_GROWTH: list[dict[str, Any]] = [
    {"intermediate_size": 39},
    {"target_ids": torch.tensor([3, 3])},
    {"target_ids": torch.tensor([5, 3])},
    {"target_ids": torch.tensor([3, VOCAB])},
    {"target_ids": torch.tensor([-1, 3])},
    {"target_ids": torch.tensor([], dtype=torch.long)},
]


@pytest.mark.parametrize("change", BAD_GROWTH)
def test_growth_has_bounds(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        grow(tiny.head(), teacher=teacher(), **change)

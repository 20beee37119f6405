"""The EAGLE-3 drafter: growth, its cache, checkpoints, and agreement with the trained module."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adaptivespec.core.errors import CheckpointError, ModelNotFoundError
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint, Eagle3Config
from adaptivespec.draft.growth import Growth
from adaptivespec.policy.base import TreePlan, available_nodes
from adaptivespec.policy.plan import Stop
from adaptivespec.train.head.model import Eagle3Module
from fakes import tiny

PROMPT = [5, 9, 11, 2, 40, 7, 33]


def ready(prompt: list[int] = PROMPT) -> tuple[Any, Any]:
    """A drafter that has read a prompt whose last token is the root."""
    target = tiny.target()
    drafter = tiny.drafter(target)
    taps = target.prefill(target.new_cache(64), prompt[:-1], drafter.tap_layers).taps
    state = drafter.new_state(4)
    drafter.observe(state, prompt[1:], taps)
    return drafter, state


@pytest.mark.parametrize(
    ("budget", "topk", "depth"),
    list(itertools.product([0, 1, 2, 3, 5, 10_000], [1, 2, 3], [1, 2, 3])),
)
def test_budget_is_met_or_everything_is_taken(budget: int, topk: int, depth: int) -> None:
    drafter, state = ready()
    tree = drafter.draft(state, TreePlan(depth, topk, budget)).tree
    available = available_nodes(depth, topk)
    assert tree.validate().num_nodes == max(1, min(budget, available))
    assert tree.max_depth <= depth
    assert int(tree.token[0]) == PROMPT[-1]


def test_growth_keeps_the_likeliest_and_stays_closed() -> None:
    growth = Growth(9, TreePlan(2, 2, 4))
    first = growth.expand(torch.tensor([[1, 2]]), torch.tensor([[0.6, 0.3]]).log())
    assert first.tolist() == [0, 0]
    second = growth.expand(
        torch.tensor([[3, 4], [5, 6]]), torch.tensor([[0.9, 0.05], [0.8, 0.1]]).log()
    )
    assert second.tolist() == [0, 1]  # 0.54 below node 1, 0.24 below node 2
    tree = growth.draft().tree.validate()
    assert growth.num_candidates == 6
    assert tree.token.tolist() == [9, 1, 2, 3]  # 0.6, 0.3, 0.54; 0.24 is left out
    assert tree.parent.tolist() == [-1, 0, 0, 1]
    assert tree.logq.exp().tolist() == pytest.approx([1.0, 0.6, 0.3, 0.9])


def test_a_certain_child_never_beats_its_parent() -> None:
    growth = Growth(9, TreePlan(2, 1, 2))
    growth.expand(torch.tensor([[1]]), torch.zeros(1, 1))
    growth.expand(torch.tensor([[2]]), torch.zeros(1, 1))
    assert growth.draft().tree.validate().token.tolist() == [9, 1]


def test_confidence_floor_stops_a_chain() -> None:
    drafter, state = ready()
    full = drafter.draft(state, TreePlan(5, 1, 6)).tree
    q = full.logq.exp().tolist()[1:]
    floor = sorted(q)[2]
    stop = next(i for i, value in enumerate(q) if value < floor) + 1
    short = drafter.draft(state, TreePlan(5, 1, 6, stop=Stop(floor))).tree
    assert short.token.tolist() == full.token.tolist()[: stop + 1]


def test_drafting_leaves_no_trace() -> None:
    drafter, state = ready()
    want = drafter.draft(state, TreePlan(4, 3, 12)).tree
    drafter.draft(state, TreePlan(3, 2, 5))
    again = drafter.draft(state, TreePlan(4, 3, 12)).tree
    assert torch.equal(want.token, again.token)
    assert torch.equal(want.logq, again.logq)
    assert drafter.length(state) == len(PROMPT) - 1


def test_reading_in_pieces_equals_reading_at_once() -> None:
    drafter, at_once = ready()
    target = tiny.target()
    cache, state = target.new_cache(8), drafter.new_state(4)
    for i in range(0, len(PROMPT) - 1, 2):
        rows = PROMPT[i : min(i + 2, len(PROMPT) - 1)]
        taps = target.prefill(cache, rows, drafter.tap_layers).taps
        drafter.observe(state, PROMPT[i + 1 : i + 1 + len(rows)], taps)
        if i == 2:
            drafter.confidence(state)  # reads what is pending
    plan = TreePlan(3, 2, 8)
    a, b = drafter.draft(at_once, plan).tree, drafter.draft(state, plan).tree
    assert a.token.tolist() == b.token.tolist()
    assert torch.allclose(a.logq, b.logq, atol=1e-4)


@pytest.mark.parametrize("read", [False, True])
def test_truncating_forgets(read: bool) -> None:
    target = tiny.target()
    drafter, state = ready()
    if read:
        drafter.confidence(state)
    drafter.truncate(state, 3)
    assert drafter.length(state) == 3
    other = [*PROMPT[:4], 50, 51]
    cache = target.new_cache(8)
    taps = target.prefill(cache, other[:-1], drafter.tap_layers).taps
    drafter.observe(state, other[4:], taps[3:])
    fresh, fresh_state = ready(other)
    plan = TreePlan(3, 2, 8)
    got, want = drafter.draft(state, plan).tree, fresh.draft(fresh_state, plan).tree
    assert got.token.tolist() == want.token.tolist()
    assert torch.allclose(got.logq, want.logq, atol=1e-4)


def test_drafts_equal_the_unrolled_module() -> None:
    """What training optimises is what serving runs: a chain, step by step."""
    drafter, state = ready()
    steps = 4
    tree = drafter.draft(state, TreePlan(steps, 1, steps + 1)).tree
    target = tiny.target()
    checkpoint = tiny.head()
    module = Eagle3Module(checkpoint, target.model.embedding, tiny.MAX_LEN)
    module.embedding = target.model.embedding  # float32 here
    module.rope.cos, module.rope.sin = module.rope.cos.float(), module.rope.sin.float()
    rope = drafter.rope
    module.rope.cos, module.rope.sin = rope.cos, rope.sin
    taps = target.prefill(target.new_cache(8), PROMPT[:-1], drafter.tap_layers).taps
    tokens = torch.tensor([[*PROMPT, *tree.token.tolist()[1:]]])
    with torch.no_grad():
        for k, normed in enumerate(module.unroll(taps[None].float(), tokens, steps)):
            logits = module.logits(normed[0, -1:])[0]
            assert int(checkpoint.target_ids[logits.argmax()]) == int(tree.token[k + 1])
            logq = float(logits.log_softmax(-1).max())
            assert logq == pytest.approx(float(tree.logq[k + 1]), abs=1e-3)


def written(tmp_path: Path, **changes: Any) -> Path:
    tiny.head(**changes).save(tmp_path)
    return tmp_path


def edit(path: Path, change: Any) -> None:
    file = path / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def test_a_checkpoint_survives_the_disk(tmp_path: Path) -> None:
    path = written(tmp_path)
    loaded = Eagle3Checkpoint.load(path)
    assert loaded.config == tiny.HEAD
    assert torch.equal(loaded.target_ids, tiny.head().target_ids)
    want = tiny.head().tensors["fc.weight"].bfloat16()
    assert torch.equal(loaded.tensors["fc.weight"], want)


FAULTS = {
    "missing fc": (lambda t: t.pop("fc.weight"), "fc.weight"),
    "missing d2t": (lambda t: t.pop("d2t"), "d2t"),
    "missing lm_head": (lambda t: t.pop("lm_head.weight"), "lm_head.weight"),
    "extra": (lambda t: t.update(extra=torch.zeros(1)), "extra"),
    "shape": (lambda t: t.update({"norm.weight": torch.zeros(3)}), "norm.weight"),
    "integers": (lambda t: t.update({"norm.weight": torch.zeros(32).long()}), "norm.weight"),
    "d2t range": (lambda t: t["d2t"].fill_(1000), "outside"),
    "d2t twice": (lambda t: t["d2t"].copy_(-torch.arange(23)), "two draft ids"),
    "t2d": (lambda t: t["t2d"].logical_not_(), "t2d"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_checkpoints_name_what_is_wrong(tmp_path: Path, fault: str) -> None:
    change, text = FAULTS[fault]
    path = written(tmp_path)
    edit(path, change)
    with pytest.raises(CheckpointError, match=text):
        Eagle3Checkpoint.load(path)


def test_equal_vocabularies_need_neither_d2t_nor_lm_head(tmp_path: Path) -> None:
    config = {**tiny.HEAD.__dict__, "draft_vocab_size": 61}
    head = tiny.head()
    tensors = {name: t for name, t in head.tensors.items() if name != "lm_head.weight"}
    Eagle3Checkpoint(Eagle3Config(**config), tensors, torch.arange(61)).save(tmp_path)
    edit(tmp_path, lambda t: t.pop("d2t"))
    loaded = Eagle3Checkpoint.load(tmp_path)
    target = tiny.target()
    drafter = tiny.drafter(target, loaded)
    state = drafter.new_state(8)
    taps = target.prefill(target.new_cache(8), PROMPT[:-1], drafter.tap_layers).taps
    drafter.observe(state, PROMPT[1:], taps)
    assert drafter.draft(state, TreePlan(2, 2, 6)).tree.num_nodes == 6


def set_config(path: Path, **values: Any) -> None:
    file = path / "config.json"
    data = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"architectures": ["BertModel"]}, "BertModel"),
        ({"num_hidden_layers": 30}, "num_hidden_layers"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "wide"}, "wide"),
    ],
)
def test_foreign_configs(tmp_path: Path, values: dict[str, Any], text: str) -> None:
    path = written(tmp_path)
    set_config(path, **values)
    with pytest.raises(CheckpointError, match=text):
        Eagle3Checkpoint.load(path)


def test_dialects_of_the_tapped_layers(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert Eagle3Checkpoint.load(path).config.tap_layers == (1, 2, 4)
    set_config(path, eagle_aux_hidden_state_layer_ids=None)
    assert Eagle3Checkpoint.load(path).config.tap_layers == (1, 2, 4)  # SGLang's list, plus one
    set_config(path, eagle_config=None, architectures=["LlamaForCausalLM"])
    config = Eagle3Checkpoint.load(path).config
    assert config.tap_layers is None
    assert config.taps_for(30) == (2, 15, 27)
    with pytest.raises(CheckpointError, match="layers"):
        config.taps_for(3)


def test_directories_that_are_no_head(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        Eagle3Checkpoint.load(tmp_path / "nowhere")
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        Eagle3Checkpoint.load(tmp_path)
    written(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Eagle3Checkpoint.load(tmp_path)


def test_a_head_for_another_target_is_refused() -> None:
    with pytest.raises(CheckpointError, match="wants a target"):
        tiny.drafter(tiny.target(), tiny.head(vocab_size=62))


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("rows", [0, 3, len(PROMPT) - 1])
def test_copied_rows_draft_as_those_observed(read: bool, rows: int) -> None:
    drafter, source = ready()
    if read:
        drafter.confidence(source)
    state = ready([50, 51, 52])[1]
    assert drafter.copy(state, source, rows)
    assert drafter.length(state) == rows
    drafter.truncate(source, 0)
    target = tiny.target()
    other = [*PROMPT[: rows + 1], 50, 51]
    taps = target.prefill(target.new_cache(8), other[:-1], drafter.tap_layers).taps
    drafter.observe(state, other[rows + 1 :], taps[rows:])
    fresh, fresh_state = ready(other)
    plan = TreePlan(3, 2, 8)
    got, want = drafter.draft(state, plan).tree, fresh.draft(fresh_state, plan).tree
    assert got.token.tolist() == want.token.tolist()
    assert torch.allclose(got.logq, want.logq, atol=1e-4)

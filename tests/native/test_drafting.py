"""The native drafter: passes against torch, trees against `draft.growth`, bits that never move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import CheckpointError
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.eagle3_native import NativeEagle3Drafter, pack_plan, serves
from adaptivespec.native.drafting import NativeDraft
from adaptivespec.native.library import Mode, NativeError
from adaptivespec.policy import POLICIES
from adaptivespec.policy.plan import Keep, Stop, TreePlan
from fakes import targets, tiny
from fakes.plans import plans

MODES = [Mode.A8, Mode.A16]
HEAD = {"hidden_size": 32, "intermediate_size": 64}


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """A matrix as the engine's Q8_0 holds it."""
    groups = tensor.reshape(-1, 32)
    scale = (groups.abs().amax(-1, keepdim=True) / 127).half().float()
    return ((groups / scale).round().clamp(-127, 127) * scale).reshape(tensor.shape)


def in_torch(checkpoint: Eagle3Checkpoint) -> Eagle3Drafter:
    """The head in torch, with the weights that the native engine computes with."""
    tensors = {
        name: rounded(tensor) if tensor.dim() > 1 else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return Eagle3Drafter(
        Eagle3Checkpoint(checkpoint.config, tensors, checkpoint.target_ids),
        tiny.target(targets.CONFIG).model.embedding,
        targets.CONFIG.num_layers,
        tiny.MAX_LEN,
        torch.float32,
    )


def head(**changes: Any) -> Eagle3Checkpoint:
    return tiny.head(**(HEAD | changes))


def drafter(
    mode: Mode = Mode.A16, threads: int = 1, checkpoint: Eagle3Checkpoint | None = None
) -> NativeEagle3Drafter:
    target = targets.native(mode.name)
    layers = target.limits.num_layers
    checkpoint = checkpoint or head()
    return NativeEagle3Drafter(checkpoint, target.model, layers, tiny.MAX_LEN, mode, threads)


def taps(rows: int, seed: int = 0, width: int = 96) -> torch.Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    )


def tokens(rows: int, seed: int = 1) -> list[int]:
    vocab = targets.CONFIG.vocab_size
    return np.random.default_rng(seed).integers(0, vocab, rows).tolist()


def ready(on: Any, rows: int = 9, seed: int = 0) -> Any:
    """A state that has read some rows."""
    state = on.new_state(4)
    on.observe(state, tokens(rows, seed), taps(rows, seed, len(on.tap_layers) * 32))
    return state


def by_levels(on: NativeEagle3Drafter, state: Any, plan: TreePlan) -> Any:
    """The tree of the same plan, chosen by `draft.growth` from the native offers."""
    on.confidence(state)
    return on._by_levels(state, plan, None, False)


def assert_same(got: Any, want: Any) -> None:
    for name in ("token", "parent", "depth", "logq"):
        assert torch.equal(getattr(got.tree, name), getattr(want.tree, name)), name
    assert got.tree.max_depth == want.tree.max_depth
    assert (got.rank is None) == (want.rank is None)
    if want.rank is not None:
        assert torch.equal(got.rank, want.rank)
        assert torch.allclose(got.score, want.score, atol=1e-4, rtol=1e-4)
    assert got.num_candidates == want.num_candidates
    assert got.num_levels == want.num_levels
    assert got.reason == pytest.approx(want.reason, abs=1e-5)


# -- against torch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 120])
def test_a_read_gives_torch_s_view(rows: int) -> None:
    native, reference = drafter(), in_torch(head())
    ours, theirs = ready(native, rows), ready(reference, rows)
    assert native.confidence(ours) == pytest.approx(reference.confidence(theirs), abs=5e-3)
    got, want = ours.memory.level(4), theirs.view
    assert want is not None
    feature, logits = (tensor.numpy() for tensor in want)
    assert got.features == pytest.approx(feature, abs=5e-3 * float(feature.std()))
    assert got.logits == pytest.approx(logits, abs=5e-3 * float(logits.std()))
    likeliest = torch.log_softmax(want[1], -1).topk(4, -1)
    assert got.logq == pytest.approx(likeliest.values.numpy(), abs=1e-2)
    assert got.words.tolist() == reference.target_ids[likeliest.indices].tolist()


def test_trees_are_those_of_torch() -> None:
    native, reference = drafter(), in_torch(head())
    same = 0
    for seed in range(20):
        plan = TreePlan(4, 3, 10)
        got = native.draft(ready(native, 9, seed), plan).tree
        want = reference.draft(ready(reference, 9, seed), plan).tree
        if torch.equal(got.token, want.token) and torch.equal(got.parent, want.parent):
            assert got.logq.numpy() == pytest.approx(want.logq.numpy(), abs=2e-2)
            same += 1
    assert same >= 18  # near ties fall either way


# -- growth ----------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(plan=plans(), seed=st.integers(0, 50))
def test_any_plan_grows_the_tree_of_python_s_growth(plan: TreePlan, seed: int) -> None:
    on = drafter(Mode.A8)
    state = ready(on, 5, seed)
    want = by_levels(on, state, plan)
    got = on.draft(state, plan)
    got.tree.validate()
    assert_same(got, want)


@pytest.mark.parametrize(
    "plan",
    [
        TreePlan(6, 8, 200),
        TreePlan(4, 16, 65536, keep=Keep(width=120)),  # wider than a pass of the head
        TreePlan(5, 4, 60, keep=Keep(width=9, drop=True, relative=0.05, first=2)),
        TreePlan(8, 2, 40, stop=Stop(min_gain=0.01)),
        TreePlan(8, 30, 31),  # more children than the draft vocabulary has words
        TreePlan(64, 1, 65),
        TreePlan(3, 4, 1),
        TreePlan(0, 4, 9),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_large_and_odd_plans(plan: TreePlan, threads: int) -> None:
    on = drafter(Mode.A8, threads)
    state = ready(on)
    assert_same(on.draft(state, plan), by_levels(on, state, plan))


@pytest.mark.parametrize("name", POLICIES.names())
def test_every_policy_gets_its_tree(name: str) -> None:
    from adaptivespec.policy.base import Outcome, Signals
    from adaptivespec.policy.costs import CostProfile

    on, policy = drafter(), POLICIES.load(name)()
    policy.costs = CostProfile.parse("x:verify=[[1,5],[8,7],[64,20]],draft=0.3")
    policy.begin()
    drafted = 0
    for step in range(12):
        state = ready(on, 6, step)
        confidence = on.confidence(state)
        plan = policy.plan(Signals(confidence, step * 2, 100, 50))
        got = on.draft(state, plan)
        assert_same(got, by_levels(on, state, plan))
        drafted += got.tree.num_nodes - 1
        path = [0]  # follow the first child as far as every third step allows
        while len(path) <= step % 3 and len(found := (got.tree.parent == path[-1]).nonzero()):
            path.append(int(found[0]))
        outcome = Outcome(
            num_accepted=len(path) - 1,
            num_promoted=0,
            num_verified=got.tree.num_nodes - 1,
            committed=len(path),
            path=path,
            draft=got,
            seconds={"draft": 1e-3, "verify": 5e-3, "host": 1e-4},
            root_confidence=confidence,
        )
        policy.observe(plan, outcome)
    assert (drafted == 0) == (not policy.needs_draft)


def test_a_draft_can_be_repeated() -> None:
    on = drafter()
    state = ready(on)
    plan = TreePlan(4, 3, 12)
    first = on.draft(state, plan)
    on.draft(state, TreePlan(2, 2, 5))
    assert_same(on.draft(state, plan), first)


# -- drafts that are drawn, and features -----------------------------------------------------------


def sampler(seed: int = 3) -> Sampler:
    params = SamplingParams(temperature=1.0, seed=seed)
    return Sampler(params, targets.CONFIG.vocab_size, frozenset(), [0])


def test_drawn_drafts_carry_their_law() -> None:
    on = drafter()
    tree = on.draft(ready(on), TreePlan(4, 1, 5), sampler()).tree.validate()
    assert tree.q is not None
    assert tree.q[:-1].sum(-1).numpy() == pytest.approx(1, abs=1e-5)
    drafted = tree.q[tree.parent[1:], tree.token[1:]].log()
    assert torch.allclose(drafted, tree.logq[1:], atol=1e-5)
    outside = torch.ones(targets.CONFIG.vocab_size, dtype=torch.bool)
    outside[on.target_ids] = False
    assert float(tree.q[:, outside].abs().sum()) == 0


def test_features_stand_by_their_nodes() -> None:
    on = drafter()
    state = ready(on)
    tree = on.draft(state, TreePlan(3, 2, 9), keep_hidden=True).tree
    root = state.memory.level(2)
    assert tree.hidden is not None
    assert tree.hidden.shape == (9, 32)
    for node in range(1, 9):  # children of one parent share the feature that proposed them
        if int(tree.parent[node]) == 0:
            assert np.array_equal(tree.hidden[node].numpy(), root.features[0])


# -- exactness -------------------------------------------------------------------------------------


def everything(memory: NativeDraft, threads: int = 1) -> list[Any]:
    """The view of the root and two levels under it."""
    root = memory.level(3)
    first = memory.level(3, root.words[0], np.zeros(3, np.int32), threads)
    deep = memory.level(3, first.words[:, 0].copy(), np.arange(3, dtype=np.int32), threads)
    return [
        getattr(level, name)
        for level in (root, first, deep)
        for name in ("features", "logits", "words", "logq")
    ]


@pytest.mark.parametrize("mode", MODES)
def test_bits_do_not_depend_on_how_rows_were_read(mode: Mode) -> None:
    rows = 70
    ids, tapped = tokens(rows), taps(rows).numpy()
    want = None
    for threads in (1, 2, 5):
        on = drafter(mode, threads)
        for sizes in ([rows], [1] * rows, [3, 64, 3], [64, 6]):
            memory, at = on.new_state(1).memory, 0
            for size in sizes:
                memory.read(ids[at : at + size], tapped[at : at + size], threads)
                at += size
            found = everything(memory, threads)
            want = want or found
            assert all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_a_row_of_a_level_does_not_depend_on_its_neighbours(mode: Mode) -> None:
    on = drafter(mode)
    memory = on.new_state(1).memory
    memory.read(tokens(20), taps(20).numpy())
    drafted = np.array(tokens(90, seed=4), np.int32)
    memory.level(2)
    together = memory.level(2, drafted, np.zeros(90, np.int32))
    for i in (0, 1, 63, 64, 89):
        memory.level(2)
        alone = memory.level(2, drafted[i : i + 1], np.zeros(1, np.int32))
        assert np.array_equal(alone.features[0], together.features[i])
        assert np.array_equal(alone.logits[0], together.logits[i])


@pytest.mark.parametrize("mode", MODES)
def test_instruction_sets_agree(mode: Mode, libraries: Any) -> None:
    found = []
    for library in libraries:
        target = targets.native(mode.name, library=library)
        on = NativeEagle3Drafter(head(), target.model, target.limits.num_layers, tiny.MAX_LEN, mode)
        state = on.new_state(1)
        state.memory.read(tokens(30), taps(30).numpy())
        found.append([*everything(state.memory), *on.draft(state, TreePlan(5, 4, 16)).tree.token])
    assert len(found) > 1
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


# -- memory of a sequence --------------------------------------------------------------------------


def test_what_is_truncated_was_never_there() -> None:
    on = drafter()
    plan = TreePlan(3, 2, 6)
    state = ready(on, 12)
    on.confidence(state)
    on.truncate(state, 7)
    assert on.length(state) == 7
    on.observe(state, tokens(5, seed=9), taps(5, seed=9))
    fresh = on.new_state(4)
    on.observe(fresh, tokens(12, 0)[:7], taps(12, 0)[:7])
    on.observe(fresh, tokens(5, seed=9), taps(5, seed=9))
    assert_same(on.draft(state, plan), on.draft(fresh, plan))


def test_pending_rows_are_truncated_too() -> None:
    on = drafter()
    state = ready(on, 6)
    on.truncate(state, 4)
    assert on.length(state) == 4
    assert state.memory.length == 0
    on.truncate(state, 0)
    assert on.length(state) == 0
    on.observe(state, tokens(3), taps(3))
    assert on.confidence(state) > 0


@pytest.mark.parametrize("read", [0, 5, 12])
@pytest.mark.parametrize("rows", [0, 4, 7, 12])
def test_what_is_copied_is_as_if_it_was_read(read: int, rows: int) -> None:
    on = drafter()
    plan = TreePlan(3, 2, 6)
    source, state = on.new_state(4), ready(on, 20, 5)
    for first, last in ((0, read), (read, 12)):
        if last > first:
            on.observe(source, tokens(12, 0)[first:last], taps(12, 0)[first:last])
        if last == read > 0:
            on.confidence(source)
    assert on.copy(state, source, rows)
    assert on.length(state) == rows
    on.truncate(source, 0)
    on.observe(state, tokens(5, seed=9), taps(5, seed=9))
    fresh = on.new_state(4)
    if rows:
        on.observe(fresh, tokens(12, 0)[:rows], taps(12, 0)[:rows])
    on.observe(fresh, tokens(5, seed=9), taps(5, seed=9))
    assert_same(on.draft(state, plan), on.draft(fresh, plan))


def test_what_cannot_be_copied_is_refused_and_changes_nothing() -> None:
    on, other = drafter(), drafter()
    plan = TreePlan(2, 2, 5)
    state, foreign = ready(on), ready(other)
    on.confidence(state)
    other.confidence(foreign)
    want = on.draft(state, plan)
    for source, rows in ((state, 3), (foreign, 3), (ready(on), 1)):
        with pytest.raises(NativeError):
            state.memory.copy(source.memory, rows)
        assert_same(on.draft(state, plan), want)


def test_states_do_not_meet() -> None:
    on = drafter()
    plan = TreePlan(3, 2, 6)
    states = [ready(on, 4 + i, i) for i in range(3)]
    want = [on.draft(state, plan) for state in states]
    for state, tree in zip(reversed(states), reversed(want), strict=True):
        assert_same(on.draft(state, plan), tree)


# -- what is refused -------------------------------------------------------------------------------


def test_a_head_for_another_target_is_refused() -> None:
    with pytest.raises(CheckpointError, match="vocabulary"):
        drafter(checkpoint=head(vocab_size=500))


def test_sizes_that_the_engine_runs() -> None:
    assert serves(head().config)
    for change in ({"intermediate_size": 48}, {"head_dim": 24}, {"hidden_size": 40}):
        assert not serves(head(**change).config)


def test_an_order_of_calls_that_makes_no_sense_is_refused() -> None:
    on = drafter()
    memory = on.new_state(1).memory
    packed, held = pack_plan(TreePlan(2, 2, 4))
    with pytest.raises(NativeError, match="as_draft_read comes first"):
        memory.grow(packed)
    with pytest.raises(NativeError, match="as_draft_read comes first"):
        memory.level(2)
    assert held == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_steps", 65),
        ("num_steps", -1),
        ("topk", 0),
        ("topk", 65),
        ("num_draft_tokens", 65537),
        ("width", 0),
        ("keep_first", 0),
        ("keep_relative", 1.5),
        ("keep_absolute", float("nan")),
        ("min_path", -0.1),
        ("price_count", 5),
        ("position_count", 3),
        ("follow_count", 2),
        ("lift_count", 65),
    ],
)
def test_a_plan_out_of_bounds_is_refused(field: str, value: float) -> None:
    on = drafter()
    state = ready(on)
    on.confidence(state)
    packed, _ = pack_plan(TreePlan(2, 2, 4))
    setattr(packed, field, value)
    with pytest.raises(NativeError):
        state.memory.grow(packed)
    assert on.draft(state, TreePlan(2, 2, 4)).tree.num_nodes == 4


def test_rows_out_of_bounds_are_refused_and_change_nothing() -> None:
    on = drafter()
    memory = on.new_state(1).memory
    memory.read(tokens(5), taps(5).numpy())
    vocab = targets.CONFIG.vocab_size
    for bad in (-1, vocab):
        with pytest.raises(NativeError, match="token"):
            memory.read([*tokens(70), bad], taps(71).numpy())
        assert memory.length == 5
    with pytest.raises(NativeError, match="rows"):
        memory.read(tokens(tiny.MAX_LEN), taps(tiny.MAX_LEN).numpy())
    before = memory.level(2)
    memory.truncate(5)
    with pytest.raises(NativeError, match="as_draft_read comes first"):
        memory.level(2)
    memory.truncate(4)
    memory.read(tokens(5)[4:], taps(5).numpy()[4:])
    assert np.array_equal(memory.level(2).logits, before.logits)
    for sources in ([1, 0], [-1, 0]):
        memory.level(2)
        with pytest.raises(NativeError, match="source"):
            memory.level(2, np.array([1, 2], np.int32), np.array(sources, np.int32))
    with pytest.raises(ValueError, match="shape"):
        memory.read([3], taps(1, width=64).numpy())


def test_a_context_that_is_full_is_refused() -> None:
    on = drafter()
    memory = on.new_state(1).memory
    rows = tiny.MAX_LEN - 2
    memory.read(tokens(rows), taps(rows).numpy())
    packed, _ = pack_plan(TreePlan(6, 1, 7))
    with pytest.raises(NativeError, match="position"):
        memory.grow(packed)
    packed, _ = pack_plan(TreePlan(3, 1, 4))
    assert len(memory.grow(packed).token) == 4


def test_taps_that_are_not_numbers_still_give_a_tree() -> None:
    on = drafter()
    state = on.new_state(1)
    spoilt = taps(3)
    spoilt[1, 5] = float("nan")
    on.observe(state, tokens(3), spoilt)
    assert on.draft(state, TreePlan(3, 3, 8)).tree.validate().num_nodes == 8


def test_the_drafted_tree_is_a_tree_of_the_target_s_words() -> None:
    on = drafter()
    tree = on.draft(ready(on), TreePlan(4, 4, 14)).tree
    assert isinstance(tree, DraftTree)
    assert set(tree.token[1:].tolist()) <= set(on.target_ids.tolist())

import math

import pytest
import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import greedy_law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.margin import MarginOptions, MarginRule, drop_limit, promote

INF = math.inf
V = 8


def state(protected=(), digits=None):
    def mask(ids):
        out = torch.zeros(V, dtype=torch.bool)
        out[list(ids)] = True
        return out

    sampler = Sampler(SamplingParams(temperature=1.0, seed=0), V, frozenset(), [0])
    return VerifyState(mask(protected), sampler, digit_ids=None if digits is None else mask(digits))


def row(**drops):
    """Logits with peak 0 at token 0; keys t1..t7 give other tokens' drops, the rest are -20."""
    z = torch.full((V,), -20.0)
    z[0] = 0.0
    for key, drop in drops.items():
        z[int(key[1:])] = -drop
    return z


def choose(rule, z, tree, protected=(), **kwargs):
    return make_rule(rule).choose(greedy_law(z), tree, state(protected, **kwargs))


SIBLINGS = DraftTree.from_parents([5, 1, 2, 3], [-1, 0, 0, 0])


def test_strict_changes_nothing():
    z = torch.stack([row(t1=0.01)] * 4)
    chosen = choose("strict", z, SIBLINGS)
    assert chosen.tokens.tolist() == [0, 0, 0, 0]
    assert chosen.child_drop.tolist() == [INF, pytest.approx(0.01), 20.0, 20.0]
    assert verdict(SIBLINGS, chosen).tokens == [0]
    assert make_rule("strict").lossless
    assert make_rule("strict").limits is None


def test_the_largest_margin_is_promoted():
    z = torch.stack([row(t1=0.9, t2=0.4, t3=0.6)] * 4)
    v = verdict(SIBLINGS, choose("margin:0.3", z, SIBLINGS))
    assert v.path == [0, 2]
    assert v.kinds == [Kind.PROMOTED, Kind.BONUS]
    assert v.margins[0] == pytest.approx(math.exp(-0.4))
    assert v.strict == [0, 0]


def test_ties_go_to_the_lowest_draft_rank():
    z = torch.stack([row(t1=0.5, t2=0.5, t3=0.5)] * 4)
    assert choose("margin:0.3", z, SIBLINGS).tokens[0] == 1
    turned = DraftTree.from_parents([5, 3, 2, 1], [-1, 0, 0, 0])
    assert choose("margin:0.3", z, turned).tokens[0] == 3


def test_the_exact_child_beats_a_deeper_sibling():
    # 0 is the argmax and a child; its sibling 1 is nearly as good and has a child of its own
    tree = DraftTree.from_parents([5, 1, 0, 0], [-1, 0, 0, 1])
    z = torch.stack([row(t1=0.01)] * 4)
    v = verdict(tree, choose("margin:0.1", z, tree))
    assert (v.path, v.kinds[0]) == ([0, 2], Kind.EXACT)


def test_the_comparison_is_strict():
    # exp(-ln 2) is not above one half, the next smaller drop is
    drop = float(torch.tensor(math.log(2.0), dtype=torch.float32))
    at = torch.stack([row(t1=drop)] * 4)
    assert choose("margin:0.5", at, SIBLINGS).tokens[0] == 0
    above = at.clone()
    above[:, 1] = torch.nextafter(at[0, 1], torch.tensor(0.0))
    assert choose("margin:0.5", above, SIBLINGS).tokens[0] == 1


@pytest.mark.parametrize("kappa", [1.0, 1.5, 1e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kappa_one_never_promotes_a_tie(kappa, dtype):
    z = torch.zeros(4, V, dtype=dtype)
    rule = MarginRule(MarginOptions(kappa=kappa))
    assert rule.lossless
    chosen = rule.choose(greedy_law(z), SIBLINGS, state())
    assert chosen.tokens.tolist() == [0, 0, 0, 0]
    limit = drop_limit(kappa)  # without the rule's short cut as well
    tokens = promote(greedy_law(z), SIBLINGS, limit, torch.zeros(V, dtype=torch.bool))
    assert tokens.tolist() == [0, 0, 0, 0]


def test_a_tie_is_promoted_just_below_one():
    z = torch.zeros(4, V)
    assert choose("margin:0.999", z, SIBLINGS).tokens.tolist()[0] == 1


def test_kappa_zero_takes_anything_legal():
    z = torch.full((4, V), -INF)
    z[:, 0] = 0.0
    z[:, 2] = -1e30
    assert choose("margin:0", z, SIBLINGS).tokens[0] == 2
    z[:, 2] = -INF  # masked children are never eligible
    assert choose("margin:0", z, SIBLINGS).tokens[0] == 0


@pytest.mark.parametrize(
    ("protected", "expected"),
    [((), 1), ((1,), 2), ((1, 2, 3), 0), ((0,), 0), ((4,), 1)],
)
def test_protected_tokens_are_neither_promoted_nor_overridden(protected, expected):
    z = torch.stack([row(t1=0.1, t2=0.2, t3=0.3)] * 4)
    assert choose("margin:0.3", z, SIBLINGS, protected).tokens[0] == expected


def test_an_exact_match_of_a_protected_token_is_fine():
    tree = DraftTree.from_parents([5, 0], [-1, 0])
    v = verdict(tree, choose("margin:0.3", torch.stack([row()] * 2), tree, protected=(0,)))
    assert (v.path, v.kinds) == ([0, 1], [Kind.EXACT, Kind.BONUS])


def test_protect_digits():
    z = torch.stack([row(t1=0.1, t2=0.2)] * 4)
    rule = "margin:kappa=0.3,protect_digits=true"
    assert choose(rule, z, SIBLINGS, digits=(1,)).tokens[0] == 2
    assert choose(rule, z, SIBLINGS, digits=(0,)).tokens[0] == 0
    assert choose(rule, z, SIBLINGS, protected=(2,), digits=(1,)).tokens[0] == 0
    with pytest.raises(ConfigError, match="protect_digits"):
        choose(rule, z, SIBLINGS)


def test_a_root_alone_is_never_promoted():
    tree = DraftTree.root_only(1)
    assert choose("margin:0", row()[None], tree).tokens.tolist() == [0]


def test_the_bonus_comes_from_the_row_after_the_promoted_token():
    tree = DraftTree.chain([5, 1])
    z = torch.stack([row(t1=0.1), row(t6=-3.0)])
    v = verdict(tree, choose("margin:0.3", z, tree))
    assert v.tokens == [1, 6]


def test_sampling_needs_noise_and_promotes_only_what_the_filters_leave():
    z = torch.stack([row(t1=0.1, t2=0.2, t4=0.05)] * 4)
    uniform = torch.full((4,), 0.9, dtype=torch.float64)
    law = sampled_law(z, uniform, 1.0, top_k=3)  # leaves 0, 4 and 1
    assert law.target.tolist() == [4, 4, 4, 4]  # no child
    allowed = torch.zeros(V, dtype=torch.bool)
    with pytest.raises(ValueError, match="noise"):
        promote(law, SIBLINGS, drop_limit(0.1), allowed)
    for seed in range(20):
        noise = torch.rand(4, generator=torch.Generator().manual_seed(seed))
        assert promote(law, SIBLINGS, drop_limit(0.1), allowed, noise)[0] == 1


@pytest.mark.parametrize("u", [0.0, 2.0**-24, 0.5, 1 - 2.0**-24])
def test_extreme_noise_still_promotes_the_only_eligible_child(u):
    z = torch.stack([row(t1=0.1)] * 4)
    law = sampled_law(z, torch.zeros(4, dtype=torch.float64), 1.0)
    tree = DraftTree.from_parents([5, 1], [-1, 0])
    law = sampled_law(z[:2], torch.zeros(2, dtype=torch.float64), 1.0)
    law = type(law)(law.logits, law.peak, torch.tensor([6, 6]), law.scaled)
    noise = torch.full((2,), u)
    tokens = promote(law, tree, drop_limit(0.1), torch.zeros(V, dtype=torch.bool), noise)
    assert tokens[0] == 1


def test_margins_do_not_move_with_temperature():
    z = torch.stack([row(t1=1.0)] * 2)
    tree = DraftTree.chain([5, 1])
    for temperature in (0.1, 1.0, 5.0):
        law = sampled_law(z, torch.zeros(2, dtype=torch.float64), temperature)
        assert law.child_drop(tree)[1] == 1.0


def test_a_limit_for_each_tree_of_a_batch():
    batch = DraftTree.pad_stack([SIBLINGS, SIBLINGS])
    z = torch.stack([torch.stack([row(t1=1.0)] * 4)] * 2)
    limit = torch.tensor([[2.0], [0.5]])
    tokens = promote(greedy_law(z), batch, limit, torch.zeros(V, dtype=torch.bool))
    assert tokens[:, 0].tolist() == [1, 0]


def test_the_state_is_not_changed_at_temperature_zero():
    one = state()
    make_rule("margin:0.2").choose(greedy_law(torch.stack([row(t1=0.1)] * 4)), SIBLINGS, one)
    assert one.sampler._promotions is None
    assert one.ledger.outputs == 0


def test_logits_are_not_copied():
    z = torch.stack([row(t1=0.1)] * 4)
    before = z.clone()
    law = greedy_law(z)
    make_rule("margin:0.2").choose(law, SIBLINGS, state())
    assert law.logits is z
    assert torch.equal(z, before)

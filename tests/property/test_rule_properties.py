"""The properties (i) to (x) of a lossy tree verifier, for every registered rule.

A new rule is held to all of them. Where a rule is defined in another way ``EXEMPT`` says why, and
the test then asks for the opposite: that the property is seen to fail.

(ii) speaks of kappa alone and is with the margin rule; (viii) is ``test_rule_law``, (ix)
``test_rule_chains``.
"""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from rule_cases import (
    decode,
    greedy,
    law_of_the_root,
    memory_of,
    ready,
    rules_of,
    sampled,
    state_for,
    uniforms,
)
from tree_cases import Cases, cases_for, drawn

from adaptivespec.core.registry import Registry
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, follow
from adaptivespec.verify import RULES, make_rule

V = 5
PROTECTED = (0, 3)
REDRAWS = "emits tokens of its own drawing: y decides nothing where there are children"
AHEAD = "may follow a sibling although y was drafted"

EXEMPT = {
    ("i", "rejection"): REDRAWS,
    ("iv", "rejection"): REDRAWS,
    ("iv", "cascade"): AHEAD,
    ("iv", "typical"): AHEAD,
    ("iv", "threshold"): AHEAD,
    ("v", "rejection"): REDRAWS,
    ("vi", "cascade"): "is defined by draft order",
    ("vii", "mars"): "looks at a ratio of raw logits",
    ("target", "rejection"): REDRAWS,
}

every_rule = pytest.mark.parametrize("name", RULES.names())


def hold(law, name, found):
    """Ask that ``found``, the violations of a property, is empty; that it is not, where exempt."""
    reason = EXEMPT.get((law, name))
    if reason is None:
        assert found == []
    else:
        assert found, f"({law}) holds for {name}, which is exempt because it {reason}"


def where(label, bad):
    """One line that names the first index where ``bad`` holds; none when it holds nowhere."""
    return [f"{label}, {bad.nonzero()[0].tolist()}"] if bad.any() else []


def laws(cls, cases, seed=0):
    """(T, law, tree) of the cases at temperature 0 and, where the rule samples, above it."""
    yield 0.0, greedy(cases), cases.tree
    if cls.sampling:
        generator = torch.Generator().manual_seed(seed)
        for temperature, filters in [(1.0, {}), (0.7, {"top_k": 3})]:
            tree = cases.tree
            if cls.sampled_drafts:
                tree = drawn(tree, cases.drafter / temperature, generator=generator)
            uniform = uniforms(tree, generator)
            yield temperature, sampled(cases, uniform, temperature, filters), tree


def chosen(rule, law, tree, temperature, protected=()):
    state = state_for(rule, law.logits.shape[-1], protected, temperature, tree.token.shape)
    return rule.choose(law, tree, state)


def choices(cls, cases, protected=()):
    """(label, law, tree, choice) over all option sets and temperatures."""
    for rule in rules_of(cls, cases.vocab):
        for temperature, law, tree in laws(cls, cases):
            label = f"{rule.label} at T = {temperature}"
            yield label, law, tree, chosen(rule, law, tree, temperature, protected)


@every_rule
def test_i_the_strictest_setting_never_promotes(name):
    """A setting that says it is lossless keeps y at every node: ties, and ties of bfloat16 too."""
    cls, found = RULES.load(name), []
    cases = cases_for(cls, 1, 60, V, ("ties", "ratio", "near"))
    for rule in rules_of(cls, V):
        if not rule.lossless:
            continue
        for dtype in (torch.float32, torch.bfloat16):
            law = greedy(cases, dtype)
            assert torch.equal(chosen(rule, law, cases.tree, 0.0).tokens, law.target), rule.label
        for temperature, law, tree in laws(cls, cases):
            bad = chosen(rule, law, tree, temperature).tokens != law.target
            found += where(f"{rule.label} at T = {temperature}", bad & (tree.token >= 0))
    hold("i", name, found)


@every_rule
def test_iii_what_is_accepted_grows_with_the_threshold(name):
    """Every float option is a threshold: along it the cases whose root is followed only grow.

    For a rule of single nodes that is the growth of the eligible set. Rules that choose among
    paths, and draws among more children, may go another way farther down.
    """
    cls = RULES.load(name)
    cases = cases_for(cls, 2, 240, V)
    memory = memory_of(ready(cls(), V), V)
    for field, values in thresholds(cls):
        for temperature, law, tree in laws(cls, cases):
            accepted = []
            for value in values:
                rule = ready(cls(cls.Options.model_validate({field: value})), V)
                state = state_for(rule, V, (), temperature, tree.token.shape, memory=memory)
                accepted.append(follow(tree, rule.choose(law, tree, state).tokens).length > 1)
            steps = torch.stack(accepted).int().diff(dim=0)
            assert (steps >= 0).all() or (steps <= 0).all(), (field, temperature)


def thresholds(cls):
    """(field, nine rising legal values) of every float option."""
    for field, schema in cls.Options.model_json_schema().get("properties", {}).items():
        for part in schema.get("anyOf", [schema]):
            if part.get("type") == "number":
                low = part.get("minimum", part.get("exclusiveMinimum", 0.0) + 1e-6)
                high = part.get("maximum", part.get("exclusiveMaximum", low + 2.0) - 1e-6)
                yield field, [low + (high - low) * i / 8 for i in range(9)]


@every_rule
def test_iv_the_total_variation_is_the_promotion_probability(name):
    """Equal where a promotion overrides a rejection, which is asked of every rule that is not
    exempt; and never above it."""
    cls, found = RULES.load(name), []
    if not cls.sampling:
        pytest.skip("defined at temperature 0 only")
    cases = cases_for(cls, 3, 24, V)
    for rule in rules_of(cls, V):
        for settings in [(1.0, {}, ()), (1.5, {"top_k": 4}, PROTECTED)]:
            tokens, p, promotes = law_of_the_root(rule, cases, settings, 60, 0)
            y = torch.arange(V).unsqueeze(-1)
            promoted = (p * (tokens != y).double().mean(-1)).sum(-1)
            hit = torch.nn.functional.one_hot(tokens, V).double().mean(2)  # [B, y, x]
            variation = ((p.unsqueeze(-1) * hit).sum(1) - p).abs().sum(-1) / 2
            assert (variation <= promoted + 1e-9).all(), rule.label
            if not promotes:
                found.append(f"{rule.label} overrides a drafted y, or with what is no child")
            else:
                assert torch.allclose(variation, promoted, rtol=0, atol=1e-9), rule.label
    hold("iv", name, found)


PARAMS = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.5, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 4, "frequency_penalty": 0.5},
]


@cache
def strict_tokens(seed, index, steps):
    params = SamplingParams(seed=seed, max_tokens=10**6, **PARAMS[index])
    verdicts, _ = decode(make_rule("strict"), seed, params, steps)
    return [token for done in verdicts for token in done.tokens]


@every_rule
def test_v_lossy_and_strict_coincide_up_to_the_first_promotion(name):
    """With shared randomness; so a request without promotions is identical to strict."""
    cls, found = RULES.load(name), []
    rules = rules_of(cls, 8)
    for index in range(len(PARAMS) if cls.sampling else 1):
        for seed, rule in enumerate([rules[0], rules[0], rules[-1]]):
            params = SamplingParams(seed=seed, max_tokens=10**6, **PARAMS[index])
            verdicts, _ = decode(rule, seed, params, 12, protected=(2,))
            tokens = [token for done in verdicts for token in done.tokens]
            kinds = [kind for done in verdicts for kind in done.kinds]
            own = [token for done in verdicts for token in done.strict]
            promoted = kinds.index(Kind.PROMOTED) if Kind.PROMOTED in kinds else len(kinds)
            strict = strict_tokens(seed, index, 60)
            assert len(strict) >= promoted
            if tokens[:promoted] != strict[:promoted] or (
                own[: promoted + 1] != strict[: promoted + 1][: len(own)]
            ):
                found.append(f"{rule.label}, {PARAMS[index]}, seed {seed}")
    hold("v", name, found)


def permuted(cases, seed):
    """The same trees with siblings in another order, parents still first; and new -> old nodes."""
    rng, orders = random.Random(seed), []
    for tree in cases.trees:
        parents, order = tree.parent.tolist(), [0]
        ready_nodes = [i for i, parent in enumerate(parents) if parent == 0]
        while ready_nodes:
            order.append(ready_nodes.pop(rng.randrange(len(ready_nodes))))
            ready_nodes += [i for i, parent in enumerate(parents) if parent == order[-1]]
        orders.append(order + list(range(len(order), cases.tree.num_nodes)))
    order = torch.tensor(orders)
    old, rows = cases.tree, torch.arange(len(orders)).unsqueeze(-1)
    place = order.argsort(-1)  # old -> new
    parent = old.parent[rows, order]
    tree = DraftTree(
        old.token[rows, order],
        torch.where(parent < 0, -1, place.gather(-1, parent.clamp_min(0))),
        old.depth[rows, order],
        old.logq[rows, order],
        old.max_depth,
        None if old.q is None else old.q[rows, order],
        None if old.hidden is None else old.hidden[rows, order],
    )
    arrays = (cases.logits, cases.hidden, cases.drafter)
    return Cases(cases.trees, tree.validate(), *(array[rows, order] for array in arrays)), order


@every_rule
def test_vi_the_order_of_siblings_does_not_matter_when_greedy(name):
    cls, found = RULES.load(name), []
    cases = cases_for(cls, 4, 160, 8, ("floats", "near", "ratio", "matching"))
    other, order = permuted(cases, 0)
    for rule in rules_of(cls, 8):
        one = chosen(rule, greedy(cases), cases.tree, 0.0, PROTECTED).tokens
        two = chosen(rule, greedy(other), other.tree, 0.0, PROTECTED).tokens
        one, two = follow(cases.tree, one), follow(other.tree, two)
        back = torch.where(two.path >= 0, order.gather(-1, two.path.clamp_min(0)), -1)
        bad = (one.path != back).any(-1) | (one.bonus != two.bonus)
        found += where(rule.label, bad)
    hold("vi", name, found)


@every_rule
def test_vii_a_constant_added_to_the_logits_changes_nothing(name):
    """Integers, so that adding is exact."""
    cls, found = RULES.load(name), []
    cases = cases_for(cls, 5, 120, V, ("integers", "ties"))
    for shift in (-64.0, 7.0, 1024.0):
        other = replace(cases, logits=cases.logits + shift)
        for one, two in zip(choices(cls, cases), choices(cls, other), strict=True):
            found += where(f"{one[0]}, shift {shift}", one[3].tokens != two[3].tokens)
    hold("vii", name, found)


@every_rule
def test_a_promoted_token_is_never_protected_and_overrides_none_that_is(name):
    cls, promotions, ids = RULES.load(name), 0, torch.tensor(PROTECTED)
    for label, _, tree, choice in choices(cls, cases_for(cls, 6, 160, V), PROTECTED):
        closed = torch.isin(choice.tokens, ids) | torch.isin(choice.target, ids)
        promoted = (choice.tokens != choice.target) & (tree.token >= 0)
        assert where(label, promoted & closed) == []
        promotions += int(promoted.sum())
    assert promotions or all(rule.lossless for rule in rules_of(cls, V))


@every_rule
def test_the_target_token_that_a_rule_reports_is_y(name):
    """Otherwise a promotion could pass for the target's own choice."""
    cls, found = RULES.load(name), []
    for label, law, _, choice in choices(cls, cases_for(cls, 7, 60, V)):
        found += where(label, choice.target != law.target)
        drop = law.drop_of(choice.target)
        assert torch.equal(choice.target_drop, drop)
    hold("target", name, found)


@every_rule
def test_only_possible_tokens_are_chosen(name):
    """Neither a masked token (-inf) nor, at T > 0, one that the filters leave out."""
    cls = RULES.load(name)
    cases = cases_for(cls, 8, 160, V)
    generator = torch.Generator().manual_seed(0)
    out = torch.rand(cases.logits.shape, generator=generator) < 0.4
    out &= cases.logits < cases.logits.amax(-1, keepdim=True)
    masked = replace(cases, logits=cases.logits.masked_fill(out, -torch.inf))
    for label, law, tree, choice in choices(cls, masked):
        rows = law.logits if law.scaled is None else law.scaled
        worth = rows.gather(-1, choice.tokens.unsqueeze(-1)).squeeze(-1)
        assert where(label, (worth == -torch.inf) & (tree.token >= 0)) == []
        assert torch.equal(choice.child_drop, law.child_drop(tree))


WRONG = [
    (test_i_the_strictest_setting_never_promotes, "LooseMargin"),
    (test_iii_what_is_accepted_grows_with_the_threshold, "Band"),
    (test_iv_the_total_variation_is_the_promotion_probability, "Careless"),
    (test_v_lossy_and_strict_coincide_up_to_the_first_promotion, "HiddenMargin"),
    (test_vi_the_order_of_siblings_does_not_matter_when_greedy, "Careless"),
    (test_vii_a_constant_added_to_the_logits_changes_nothing, "AboveZero"),
    (test_a_promoted_token_is_never_protected_and_overrides_none_that_is, "Band"),
    (test_the_target_token_that_a_rule_reports_is_y, "HiddenMargin"),
    (test_only_possible_tokens_are_chosen, "Careless"),
]


@pytest.mark.parametrize(("test", "wrong"), WRONG)
def test_a_wrong_rule_is_found(test, wrong, monkeypatch):
    rules = Registry("rule", {wrong: f"wrong_rules:{wrong}"})
    monkeypatch.setitem(globals(), "RULES", rules)
    with pytest.raises(AssertionError):
        test(wrong)

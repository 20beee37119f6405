"""The contract of ``Rule.choose``, for every registered rule: batches, dtypes, and no side effects.

It changes nothing it is given, treats a batch as its trees one by one, reads any floating type, and
draws no random number at temperature 0.
"""

import copy
import dataclasses

import pytest
import torch
from rule_cases import Table, decode, greedy, rows_of, rules_of, sampled, state_for, uniforms
from tree_cases import cases_for, drawn

from adaptivespec.core.errors import NumericalError
from adaptivespec.core.law import Law
from adaptivespec.core.registry import Registry
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.verify import RULES

V = 5
PROTECTED = (3,)

every_rule = pytest.mark.parametrize("name", RULES.names())


def sample_laws(cls, cases):
    """(law, tree) at T = 0 and, where the rule samples, at T = 1."""
    yield greedy(cases), cases.tree
    if cls.sampling:
        generator = torch.Generator().manual_seed(0)
        tree = cases.tree
        if cls.sampled_drafts:
            tree = drawn(tree, cases.drafter, generator=generator)
        yield sampled(cases, uniforms(tree, generator), 1.0), tree


@every_rule
def test_x_a_batch_of_trees_equals_the_single_runs(name):
    """Bit for bit, with the padding of the batch and without."""
    cls = RULES.load(name)
    cases = cases_for(cls, 11, 36, V)
    table = torch.rand(4, *cases.tree.token.shape, generator=torch.Generator().manual_seed(1))
    for rule in rules_of(cls, V):
        for law, tree in sample_laws(cls, cases):
            state = dataclasses.replace(state_for(rule, V, PROTECTED), sampler=Table(table, V))
            together = rule.choose(law, tree, state)
            for index, single in enumerate(cases.trees):
                for size in {single.num_nodes, tree.num_nodes}:
                    sampler = Table(table[:, index, :size], V)
                    own = dataclasses.replace(state, sampler=sampler)
                    at = (index, slice(size))
                    one = rule.choose(rows_of(law, at), rows_of(tree, at), own)
                    for field in dataclasses.fields(one):
                        want = getattr(together, field.name)[index, : single.num_nodes]
                        got = getattr(one, field.name)[: single.num_nodes]
                        assert torch.equal(got, want), (rule.label, index, size, field.name)


def tensors_in(value):
    """Every tensor inside of dataclasses, objects, dictionaries and sequences, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [x for key in value for x in tensors_in(value[key])]
    if isinstance(value, list | tuple):
        return [x for item in value for x in tensors_in(item)]
    return tensors_in(vars(value)) if isinstance(value, Law | DraftTree) else []


@every_rule
def test_choosing_changes_nothing_that_it_is_given(name):
    cls = RULES.load(name)
    cases = cases_for(cls, 12, 60, V)
    for rule in rules_of(cls, V):
        for law, tree in sample_laws(cls, cases):
            state = state_for(rule, V, PROTECTED, 1.0, tree.token.shape)
            given = [law.logits, *tensors_in(vars(law)), *tensors_in(vars(tree)), state.protected]
            before = [array.clone() for array in given]
            rest = copy.deepcopy((state.ledger, state.memory, rule.options))
            logits = law.logits
            choice = rule.choose(law, tree, state)
            assert law.logits is logits
            assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True)), rule.label
            same = copy.deepcopy((state.ledger, state.memory, rule.options))
            assert repr(same) == repr(rest), rule.label
            assert choice.tokens.shape == choice.child_drop.shape == tree.token.shape
            assert choice.tokens.dtype == choice.target.dtype == torch.int64
            assert choice.child_drop.dtype == choice.target_drop.dtype == torch.float32


@every_rule
def test_the_same_call_gives_the_same_tokens(name):
    cls = RULES.load(name)
    cases = cases_for(cls, 13, 60, V)
    for rule in rules_of(cls, V):
        for law, tree in sample_laws(cls, cases):
            one, two = (
                rule.choose(law, tree, state_for(rule, V, (), 1.0, tree.token.shape, 5))
                for _ in range(2)
            )
            assert torch.equal(one.tokens, two.tokens), rule.label


@every_rule
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_any_floating_type_of_logits_will_do(name, dtype):
    """Small integers are the same in all of them, and so are the decisions."""
    cls = RULES.load(name)
    cases = cases_for(cls, 14, 120, V, ("integers", "ties"))
    for rule in rules_of(cls, V):
        for law, tree in sample_laws(cls, cases):
            other = dataclasses.replace(law, logits=law.logits.to(dtype))
            one, two = (
                rule.choose(x, tree, state_for(rule, V, PROTECTED, 1.0, tree.token.shape, 5))
                for x in (law, other)
            )
            for field in dataclasses.fields(one):
                assert torch.equal(getattr(one, field.name), getattr(two, field.name)), rule.label


@every_rule
def test_no_random_number_is_drawn_at_temperature_zero(name):
    cls = RULES.load(name)
    cases = cases_for(cls, 15, 60, V)
    for rule in rules_of(cls, V):
        state = dataclasses.replace(
            state_for(rule, V), sampler=Table(torch.empty(0, *cases.tree.token.shape), V)
        )
        rule.choose(greedy(cases), cases.tree, state)
        assert state.sampler.used == 0


@every_rule
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_refused_and_never_accepted(name, bad):
    """The sampler raises before the rule is asked."""
    cls = RULES.load(name)
    rule = rules_of(cls, 8)[0]
    with pytest.raises(NumericalError) as caught:
        decode(rule, 0, SamplingParams(max_tokens=10**6), 20, spoil=(4, bad))
    assert caught.value.step == 4
    assert caught.value.node is not None


@pytest.mark.parametrize(
    ("test", "wrong"),
    [
        (test_x_a_batch_of_trees_equals_the_single_runs, "Neighbour"),
        (test_choosing_changes_nothing_that_it_is_given, "InPlace"),
    ],
)
def test_a_wrong_rule_is_found(test, wrong, monkeypatch):
    rules = Registry("rule", {wrong: f"wrong_rules:{wrong}"})
    monkeypatch.setitem(globals(), "RULES", rules)
    with pytest.raises(AssertionError):
        test(wrong)

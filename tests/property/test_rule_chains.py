"""(ix) A tree that is one chain equals the chain code, for every registered rule."""

from dataclasses import replace

import pytest
import torch
from chain_reference import ACCEPTS, Chain, rejection_chain, verify_chain
from rule_cases import Table, greedy, rows_of, rules_of, sampled, state_for, uniforms
from tree_cases import cases_for, drawn

from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import RULES

V = 5
PROTECTED = (3,)


def one_by_one(rule, law, tree, state, table):
    """The chain code of a rule that has none of its own: the rule itself, one draft at a time."""
    tokens, kinds, size = [], [], tree.num_nodes
    for j in range(size):
        pair = slice(j, min(j + 2, size))
        rows = [rows_of(x, pair) for x in (law, tree)]
        head = torch.arange(rows[1].num_nodes)
        sub = replace(rows[1], parent=head - 1, depth=head, max_depth=len(head) - 1)
        own = replace(state, sampler=Table(table[:, pair], V))
        choice = rule.choose(rows[0], sub, own)
        token, y = int(choice.tokens[0]), int(choice.target[0])
        tokens.append(token)
        if j + 1 == size or token != int(tree.token[j + 1]):
            return tokens, [*kinds, Kind.BONUS]
        kinds.append(Kind.EXACT if token == y else Kind.PROMOTED)


def reference(rule, law, tree, state, table):
    """(tokens, kinds) of the chain code."""
    if rule.name not in ACCEPTS and not rule.sampled_drafts:
        return one_by_one(rule, law, tree, state, table)
    digits = getattr(rule.options, "protect_digits", False)
    chain = Chain(
        drafts=tree.token[1:].tolist(),
        z=law.logits.tolist(),
        scaled=None if law.scaled is None else law.scaled.tolist(),
        y=law.target.tolist(),
        protected=(state.protected_with_digits if digits else state.protected).tolist(),
        q=None if tree.q is None else tree.q.tolist(),
        hidden=law.hidden.tolist(),
        draft_hidden=None if tree.hidden is None else tree.hidden.tolist(),
        coins=table.tolist(),
        counts=state.memory.get("counts", {}),
    )
    if rule.sampled_drafts:
        return rejection_chain(rule, chain)
    return verify_chain(rule, chain, ACCEPTS[rule.name])


@pytest.mark.parametrize("name", RULES.names())
def test_ix_a_tree_that_is_a_chain_equals_the_chain_code(name):
    cls = RULES.load(name)
    cases = cases_for(cls, 21, 60, V, chain=True)
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(4, *cases.tree.token.shape, generator=generator)
    for rule in rules_of(cls, V):
        state = state_for(rule, V, PROTECTED)
        laws = [(greedy(cases), cases.tree)]
        if cls.sampling:
            tree = cases.tree
            if cls.sampled_drafts:
                tree = drawn(tree, cases.drafter, generator=generator)
            laws.append((sampled(cases, uniforms(tree, generator), 1.0, {"top_k": 4}), tree))
        for law, tree in laws:
            for index, single in enumerate(cases.trees):
                at = (index, slice(single.num_nodes))
                one = rows_of(law, at), rows_of(tree, at)
                noise = table[:, index, : single.num_nodes]
                own = replace(state, sampler=Table(noise, V))
                done = verdict(one[1], rule.choose(*one, own))
                want = reference(rule, *one, state, noise)
                assert (done.tokens, done.kinds) == want, (rule.label, index, law.scaled is None)


@pytest.mark.parametrize("name", ["relaxed", "judge"])
def test_a_rule_without_a_reference_is_held_to_itself(name, monkeypatch):
    monkeypatch.setitem(globals(), "ACCEPTS", {})
    test_ix_a_tree_that_is_a_chain_equals_the_chain_code(name)


def test_a_rule_that_looks_ahead_needs_a_reference(monkeypatch):
    monkeypatch.setitem(globals(), "ACCEPTS", {})
    with pytest.raises(AssertionError):
        test_ix_a_tree_that_is_a_chain_equals_the_chain_code("fly")

import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import TreeError
from adaptivespec.core.law import Law, greedy_law
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.rejection import ratios
from property.naive_reference import FAST, bare_state, random_mask, random_tree, seeds


class Noise:
    """A sampler whose promotion stream is given: the coins, then two uniforms for each draw."""

    def __init__(self, *rows):
        self.rows = torch.tensor(rows) if isinstance(rows[0], list) else torch.stack(rows)

    def promotion_noise(self, n, device=None):
        assert n == self.rows.numel()
        return self.rows.flatten()


def law_of(p, target=None):
    """A law at T > 0 with these probabilities [..., N, V]; y is token 0 unless given."""
    z = torch.as_tensor(p, dtype=torch.float32).log()
    peak = z.amax(-1)
    target = torch.zeros(peak.shape, dtype=torch.int64) if target is None else target
    return Law(z, peak, target, z - peak.unsqueeze(-1))


def star(children, q):
    """A root whose children were drawn from q in this order."""
    tree = DraftTree.from_parents([0, *children], [-1] + [0] * len(children))
    laws = torch.zeros(len(children) + 1, len(q))
    laws[0] = torch.tensor(q)
    return replace(tree, q=laws)


def choose(p, tree, coins, draw=0.5, lenience=1.0, protected=()):
    """The rule at the root of a star, whose children all have p for a law as well."""
    n, vocab = tree.num_nodes, len(p)
    mask = torch.zeros(vocab, dtype=torch.bool)
    mask[list(protected)] = True
    noise = Noise([0.0, *coins], [draw] * n, [0.0] * n)
    state = VerifyState(mask, noise)  # type: ignore[arg-type]
    law = law_of([p] * n, torch.full((n,), vocab - 1))
    return make_rule(f"rejection:{lenience}").choose(law, tree, state)


def random_p(rng, vocab, zeros=0):
    p = torch.tensor([rng.expovariate(1) for _ in range(vocab)], dtype=torch.float64)
    p[rng.sample(range(vocab), zeros)] = 0
    return p / p.sum()


# -- by hand ---------------------------------------------------------------------------------------


def test_one_draft_by_hand():
    tree = star([1], [0.2, 0.8])
    ratio, rest = ratios(torch.tensor([[0.6, 0.4]] * 2), tree.q, tree)
    assert ratio.tolist() == pytest.approx([0.0, 0.5])
    assert rest[0].tolist() == pytest.approx([1.0, 0.0])  # norm(max(0, (.4, -.4)))
    assert rest[1].tolist() == pytest.approx([0.6, 0.4])  # nothing was drafted below the child
    assert verdict(tree, choose([0.6, 0.4], tree, [0.49])).kinds == [Kind.EXACT, Kind.BONUS]
    assert choose([0.6, 0.4], tree, [0.51]).tokens[0] == 0


def test_two_drafts_by_hand():
    # 1 is accepted with .3 / .7. Then r = (.3, 0, .1) / .4 and q = (1/3, 0, 2/3): 2 is accepted
    # with .25 / .6667 = .375, and (.75 - .3333, 0, 0) is left.
    p, tree = [0.4, 0.3, 0.3], star([1, 2], [0.1, 0.7, 0.2])
    ratio, rest = ratios(torch.tensor([p] * 3), tree.q, tree)
    assert ratio.tolist() == pytest.approx([0.0, 3 / 7, 0.375])
    assert rest[0].tolist() == pytest.approx([1.0, 0.0, 0.0])
    for coins, token in (([0.42, 0.9], 1), ([0.43, 0.37], 2), ([0.43, 0.38], 0), ([0.1, 0.1], 1)):
        chosen = choose(p, tree, coins)
        assert int(chosen.tokens[0]) == token
        assert torch.equal(chosen.tokens, chosen.target)


def test_a_draft_that_q_excludes_is_never_accepted():
    # q holds 1 alone, so that 2 was drawn for want of anything else.
    p, tree = [0.2, 0.3, 0.5], star([1, 2], [0.0, 1.0, 0.0])
    ratio, rest = ratios(torch.tensor([p] * 3), tree.q, tree)
    assert ratio.tolist() == pytest.approx([0.0, 0.3, 0.0])
    assert rest[0].tolist() == pytest.approx([2 / 7, 0.0, 5 / 7])
    # The residual may draw the same token; the walk then goes there.
    assert verdict(tree, choose(p, tree, [0.9, 0.0], draw=0.9)).path == [0, 2]
    assert verdict(tree, choose(p, tree, [0.9, 0.0], draw=0.1)).path == [0]


def test_what_is_left_of_q_may_underflow():
    tree = star([1, 2], [0.0, 1.0, 1e-42])
    ratio, rest = ratios(torch.tensor([[0.2, 0.3, 0.5]] * 3), tree.q, tree)
    assert ratio.tolist() == pytest.approx([0.0, 0.3, 0.0])
    assert rest[0].tolist() == pytest.approx([2 / 7, 0.0, 5 / 7])


def test_equal_laws_accept_always():
    tree = star([2], [0.2, 0.3, 0.5])
    assert choose([0.2, 0.3, 0.5], tree, [1 - 2.0**-24]).tokens[0] == 2


def test_lenience_divides_the_ratio():
    # The ratio is .5: at l = 1/2 every coin accepts, at l = .8 those below .625.
    p, tree = [0.6, 0.4], star([1], [0.2, 0.8])
    for lenience, coin, token in ((0.5, 0.99, 1), (0.8, 0.62, 1), (0.8, 0.63, 0)):
        chosen = choose(p, tree, [coin], lenience=lenience)
        assert (int(chosen.tokens[0]), int(chosen.target[0])) == (token, 0)
    done = verdict(tree, choose(p, tree, [0.6], lenience=0.5))
    assert (done.tokens[0], done.strict[0], done.kinds[0]) == (1, 0, Kind.PROMOTED)
    assert done.drops[0] == pytest.approx(math.log(1.5))
    assert verdict(tree, choose(p, tree, [0.4], lenience=0.5)).kinds[0] is Kind.EXACT


def test_protected_tokens_are_accepted_by_their_law_only():
    p, tree = [0.4, 0.3, 0.3], star([1, 2], [0.1, 0.7, 0.2])

    def tokens(coins, protected, lenience=0.5):
        chosen = choose(p, tree, coins, lenience=lenience, protected=protected)
        return int(chosen.tokens[0]), int(chosen.target[0])

    assert tokens([0.5, 0.9], ()) == (1, 0)
    assert tokens([0.5, 0.9], (1,)) == (0, 0)  # 1 is not promoted
    assert tokens([0.5, 0.5], (1,)) == (2, 0)  # but its sibling may be
    assert tokens([0.5, 0.9], (0,)) == (0, 0)  # y is not overridden
    assert tokens([0.5, 0.2], (2,)) == (2, 2)  # l = 1 takes 2, and it stays
    assert tokens([0.4, 0.9], (1,)) == (1, 1)  # l = 1 accepts 1
    assert tokens([0.5, 0.2], ()) == (1, 2)  # an earlier sibling promoted past y


def test_drops_are_those_of_the_token_that_was_drawn():
    p, tree = [0.6, 0.1, 0.3], star([1], [0.0, 1.0, 0.0])
    chosen = choose(p, tree, [0.9], draw=0.9)  # (.6, 0, .3) / .9 is left
    assert chosen.target[0] == 2
    assert float(chosen.target_drop[0]) == pytest.approx(math.log(2))
    assert float(choose(p, tree, [0.9], draw=0.1).target_drop[0]) == 0.0
    assert chosen.child_drop.tolist() == [math.inf, pytest.approx(math.log(6))]


def test_nodes_without_children_keep_the_token_of_the_request():
    tree = star([1], [0.2, 0.8])
    assert choose([0.6, 0.4], tree, [0.9], draw=0.0).tokens.tolist() == [0, 1]
    alone = DraftTree.root_only(0)
    law = law_of([[0.5, 0.5]], torch.tensor([1]))
    state = bare_state(SamplingParams(temperature=1.0, seed=0), 2)
    assert make_rule("rejection").choose(law, alone, state).tokens.tolist() == [1]
    assert state.sampler._promotions is None


def test_residuals_resolve_rare_tokens():
    # What is left is (2^-26, 1 - 2^-26, 0); one float32 uniform would take token 0 far too often.
    p, tree = [2.0**-26, 1 - 2.0**-26, 0.0], star([2], [0.0, 0.0, 1.0])
    for fine, token in ((0.2, 0), (0.3, 1)):
        noise = Noise([0.0, 0.5], [0.0, 0.0], [fine, fine])
        state = VerifyState(torch.zeros(3, dtype=torch.bool), noise)  # type: ignore[arg-type]
        assert make_rule("rejection").choose(law_of([p] * 2), tree, state).tokens[0] == token


def test_greedy_is_strict():
    tree = star([1, 2], [0.0, 1.0, 0.0])
    z = torch.tensor([[0.0, 1.0, 2.0]] * 3)
    state = bare_state(SamplingParams(), 3)
    for rule in ("rejection", "rejection:0.5"):
        chosen = make_rule(rule).choose(greedy_law(z), tree, state)
        assert chosen.tokens.tolist() == [2, 2, 2]
    assert state.sampler._promotions is None


def test_trees_without_the_law_of_their_drafts_are_refused():
    state = bare_state(SamplingParams(temperature=1.0), 2)
    with pytest.raises(TreeError, match="q: rule 'rejection'"):
        make_rule("rejection").choose(law_of([[0.5, 0.5]] * 2), DraftTree.chain([0, 1]), state)


def test_lossless_without_lenience_only():
    assert make_rule("rejection").lossless
    assert not make_rule("rejection:0.99").lossless
    assert make_rule("rejection").sampled_drafts
    assert make_rule("rejection:0.5").label == "rejection:lenience=0.5"


# -- trees and batches -----------------------------------------------------------------------------


def random_case(seed, vocab=6):
    """A random tree with laws p and q, some of them with zeros."""
    rng = random.Random(seed)
    tree = random_tree(rng, vocab)
    zeros = rng.choice([0, 2])
    p = torch.stack([random_p(rng, vocab, zeros) for _ in range(tree.num_nodes)]).float()
    q = torch.stack([random_p(rng, vocab, zeros) for _ in range(tree.num_nodes)]).float()
    noise = torch.tensor([[rng.random() for _ in range(tree.num_nodes)] for _ in range(3)])
    return rng, tree, p, q, noise


def naive_ratios(tree, p, q):
    ratio, rest = [0.0] * tree.num_nodes, [row.double() for row in p]
    laws = [row.double() for row in q]
    for node, (x, parent) in enumerate(zip(tree.token.tolist(), tree.parent.tolist(), strict=True)):
        if parent < 0:
            continue
        law = laws[parent] / laws[parent].sum() if laws[parent].sum() > 0 else laws[parent]
        ratio[node] = float(rest[parent][x] / law[x]) if law[x] > 0 else 0.0
        left = (rest[parent] - law).clamp_min(0)
        rest[parent] = left / left.sum() if left.sum() > 1e-9 else rest[parent]
        laws[parent] = law.clone()
        laws[parent][x] = 0.0
    return ratio, torch.stack(rest)


@FAST
@given(seeds)
def test_ratios_are_their_definition(seed):
    _, tree, p, q, _ = random_case(seed)
    ratio, rest = ratios(p, q, tree)
    want_ratio, want_rest = naive_ratios(tree, p, q)
    assert ratio.tolist() == pytest.approx(want_ratio, rel=1e-3, abs=1e-5)
    assert torch.allclose(rest.double(), want_rest, atol=1e-4)
    assert torch.allclose(rest.sum(-1), torch.ones(tree.num_nodes))


@FAST
@given(seeds, st.sampled_from([1.0, 0.7, 0.3]))
def test_what_lenience_changes_is_promoted(seed, lenience):
    rng, tree, p, q, noise = random_case(seed)
    protected = random_mask(rng, 6)
    state = VerifyState(protected, Noise(*noise))  # type: ignore[arg-type]
    law, tree = law_of(p), replace(tree, q=q)
    strict = make_rule("rejection").choose(law, tree, state)
    lenient = make_rule(f"rejection:{lenience}").choose(law, tree, state)
    assert torch.equal(strict.tokens, strict.target)
    assert torch.equal(lenient.target, strict.target)
    changed = lenient.tokens != strict.tokens
    assert not (lenient.target_drop < 0).any()
    assert not (changed & protected[lenient.tokens]).any()
    assert not (changed & protected[strict.tokens]).any()
    for node in changed.nonzero().flatten().tolist():
        assert int(lenient.tokens[node]) in tree.token[tree.parent == node].tolist()
    assert lenience < 1 or not changed.any()


@FAST
@given(st.lists(seeds, min_size=1, max_size=5), st.sampled_from([1.0, 0.5]))
def test_a_batch_of_trees_equals_the_single_runs(tree_seeds, lenience):
    cases = [random_case(seed) for seed in tree_seeds]
    batch = DraftTree.pad_stack([case[1] for case in cases])
    size = batch.num_nodes

    def stack(index, fill, dim):
        pads = [
            (0, 0, 0, size - case[1].num_nodes) if dim == -2 else (0, size - case[1].num_nodes)
            for case in cases
        ]
        rows = [
            torch.nn.functional.pad(case[index], pad, value=fill)
            for case, pad in zip(cases, pads, strict=True)
        ]
        return torch.stack(rows, -2 if dim == -1 else 0)

    protected = random_mask(cases[0][0], 6)
    noise = stack(4, 0.5, -1)  # [3, B, N]
    rule = make_rule(f"rejection:{lenience}")
    together = rule.choose(
        law_of(stack(2, 1.0, -2)),
        replace(batch, q=stack(3, 0.0, -2)),
        VerifyState(protected, Noise(*noise)),  # type: ignore[arg-type]
    )
    for index, (_, tree, p, q, own) in enumerate(cases):
        state = VerifyState(protected, Noise(*own))  # type: ignore[arg-type]
        single = rule.choose(law_of(p), replace(tree, q=q), state)
        n = tree.num_nodes
        for name in ("target", "tokens", "child_drop", "target_drop"):
            assert torch.equal(getattr(together, name)[index, :n], getattr(single, name))

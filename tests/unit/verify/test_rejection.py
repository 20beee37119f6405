import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import TreeError
from adaptivespec.core.law import Law, greedy_law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, follow, verdict
from adaptivespec.engine.engine import Engine
from adaptivespec.policy import make_policy
from adaptivespec.policy.plan import TreePlan
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.rejection import ratios
from fakes import tiny
from fakes.scripted import LetterTokenizer
from property.naive_reference import FAST, bare_state, path_to, random_mask, random_tree, seeds

DRAWS = 200_000
FEWER = 50_000
# Upper 1e-5 points of chi-square by degrees of freedom.
CHI_SQUARE = {2: 23.0, 3: 25.9, 4: 28.5, 5: 30.9, 6: 33.1, 7: 35.3, 15: 51.0, 24: 65.6, 55: 108.0}


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


# -- the law of what is emitted --------------------------------------------------------------------


def random_p(rng, vocab, zeros=0):
    p = torch.tensor([rng.expovariate(1) for _ in range(vocab)], dtype=torch.float64)
    p[rng.sample(range(vocab), zeros)] = 0
    return p / p.sum()


def emitted(p, q, k, lenience=1.0):
    """f64[V]: the law of the root's token over all draws of k drafts and all coins."""
    vocab = len(p)
    orders = list(itertools.permutations(range(vocab), k))
    chance = []
    for order in orders:
        left, prob = q.clone(), 1.0
        for place, x in enumerate(order):
            # Tokens that q excludes come when all others are drawn, each as likely as the next.
            mass = float(left.sum())
            prob *= float(left[x]) / mass if mass > 0 else 1 / (vocab - place)
            left[x] = 0.0
            if mass == 0 and q[x] > 0:
                prob = 0.0
        chance.append(prob)
    batch = DraftTree.pad_stack(
        [DraftTree.from_parents([0, *order], [-1] + [0] * k) for order in orders]
    )
    shape = (len(orders), k + 1, vocab)
    ratio, rest = ratios(p.float().expand(shape), q.float().expand(shape), batch)
    out = torch.zeros(vocab, dtype=torch.float64)
    for index, (order, prob) in enumerate(zip(orders, chance, strict=True)):
        reach = prob
        # A coin in [0, 1) accepts below ratio / l; those that reject are what is left of the coins.
        for place, x in enumerate(order):
            accept = min(1.0, float(ratio[index, place + 1]) / lenience)
            out[x] += reach * accept
            reach *= 1 - accept
        out += reach * rest[index, 0].double()
    return out


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("zeros", [(0, 0), (2, 0), (0, 3), (2, 2)])
def test_emitted_tokens_have_the_targets_law(k, zeros):
    """Exact: every draw of k drafts without replacement, every coin, 5 tokens."""
    for seed in range(4):
        rng = random.Random(f"{k} {zeros} {seed}")
        p, q = random_p(rng, 5, zeros[0]), random_p(rng, 5, zeros[1])
        assert torch.allclose(emitted(p, q, k), p, atol=1e-6, rtol=0)
    assert torch.allclose(emitted(p, p, k), p, atol=1e-6, rtol=0)


def test_lenience_multiplies_no_probability_by_more_than_its_inverse():
    for seed in range(8):
        rng = random.Random(seed)
        p, q = random_p(rng, 5), random_p(rng, 5)
        for lenience in (0.9, 0.5):
            out = emitted(p, q, 1, lenience)
            assert float(out.sum()) == pytest.approx(1.0, abs=1e-6)
            assert (out <= p / lenience + 1e-6).all()
            assert not torch.allclose(out, p, atol=1e-3)


def chi_square(counts, p):
    """The statistic over outcomes of positive probability; others must not occur."""
    assert (counts[p == 0] == 0).all()
    expected = p[p > 0] * counts.sum()
    return float(((counts[p > 0] - expected) ** 2 / expected).sum())


class Stream:
    """The promotion stream of one request, for a whole batch of trees."""

    def __init__(self, seed):
        self.sampler = Sampler(SamplingParams(temperature=1.0, seed=seed), 1, frozenset(), [0])

    def promotion_noise(self, n, device=None):
        return self.sampler.promotion_noise(n, device)


def state_of(vocab, seed):
    return VerifyState(torch.zeros(vocab, dtype=torch.bool), Stream(seed))  # type: ignore[arg-type]


@pytest.mark.parametrize(("filters", "draws"), [({}, DRAWS), ({"top_k": 2}, FEWER)])
def test_drawn_drafts_and_the_rule_together_have_the_targets_law(filters, draws):
    vocab, k = 8, 3
    z = torch.tensor([0.3, -0.8, 1.2, 0.0, 0.7, -1.5, 0.9, -0.2])
    drafter = torch.tensor([1.1, 0.5, -0.6, 0.2, 1.4, -1.0, -0.3, 0.8])
    sampler = Sampler(SamplingParams(temperature=0.8, seed=3, **filters), vocab, frozenset(), [0])
    token, logq, q = sampler.draw_drafts(drafter.expand(draws, vocab), k)
    star_of = DraftTree.from_parents([0] * (k + 1), [-1] + [0] * k)
    tree = DraftTree(
        torch.cat((torch.zeros(draws, 1, dtype=torch.int64), token), 1),
        star_of.parent.expand(draws, -1),
        star_of.depth.expand(draws, -1),
        torch.cat((torch.zeros(draws, 1), logq), 1),
        q=torch.cat((q.unsqueeze(1), torch.zeros(draws, k, vocab)), 1),
    )
    uniform = torch.rand(k + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = sampled_law(z.expand(k + 1, vocab), uniform, 0.8, **filters)
    law = Law(*(x.expand(draws, *x.shape) for x in (one.logits, one.peak, one.target, one.scaled)))
    tokens = make_rule("rejection").choose(law, tree, state_of(vocab, 4)).tokens[:, 0]
    p = one.logp[0].double().exp()
    counts = torch.bincount(tokens, minlength=vocab).double()
    assert chi_square(counts, p) < CHI_SQUARE[max(int((p > 0).sum()) - 1, 2)]


def test_two_tokens_in_a_row_have_the_joint_law():
    """Two drawn children of the root, one drawn below each; rows depend on the token before."""
    vocab, generator = 4, torch.Generator().manual_seed(11)
    rows = torch.rand(vocab, vocab, generator=generator) + 0.05  # p after each token
    rows /= rows.sum(-1, keepdim=True)
    drafts = torch.rand(vocab, vocab, generator=generator) + 0.05
    sampler = Sampler(SamplingParams(temperature=1.0, seed=7), vocab, frozenset(), [0])
    first, _, q0 = sampler.draw_drafts(drafts[0].log().expand(FEWER, vocab), 2)
    second, _, q1 = sampler.draw_drafts(drafts[first].log().reshape(-1, vocab), 1)
    shape = DraftTree.from_parents([0] * 5, [-1, 0, 0, 1, 2])
    tree = DraftTree(
        torch.cat((torch.zeros(FEWER, 1, dtype=torch.int64), first, second.view(FEWER, 2)), 1),
        *(x.expand(FEWER, -1) for x in (shape.parent, shape.depth, shape.logq)),
        q=torch.cat((q0.unsqueeze(1), q1.view(FEWER, 2, vocab), torch.zeros(FEWER, 2, vocab)), 1),
    )
    p = rows[tree.token]  # [FEWER, 5, V]
    own = torch.multinomial(p.reshape(-1, vocab), 1, generator=generator).view(FEWER, 5)
    tokens = make_rule("rejection").choose(law_of(p, own), tree, state_of(vocab, 8)).tokens
    walked = follow(tree, tokens)
    emitted_first = tokens[:, 0]
    # Where the walk ended at the root, the next step draws the second token from its own row.
    later = torch.multinomial(rows[emitted_first], 1, generator=generator).squeeze(-1)
    next_ = tokens.gather(-1, walked.path[:, 1:2].clamp_min(0)).squeeze(-1)
    emitted_second = torch.where(walked.length > 1, next_, later)
    assert 0.5 < float((walked.length > 1).double().mean()) < 1
    counts = torch.bincount(emitted_first * vocab + emitted_second, minlength=vocab**2).double()
    joint = (rows[0].unsqueeze(-1) * rows).double().flatten()
    assert chi_square(counts, joint) < CHI_SQUARE[15]


# -- drawn drafts ----------------------------------------------------------------------------------


def test_drafts_are_drawn_in_order_without_replacement():
    q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=0), 4, frozenset(), [0])
    index, logq, law = sampler.draw_drafts(q.log().float().expand(DRAWS, 4), 2)
    assert torch.allclose(law[0].double(), q)
    assert torch.allclose(logq.double(), q[index].log(), atol=1e-6)
    pairs = q.unsqueeze(-1) * q / (1 - q).unsqueeze(-1)  # P(first) P(second | not first)
    pairs.fill_diagonal_(0.0)
    counts = torch.bincount(index[:, 0] * 4 + index[:, 1], minlength=16).double()
    assert chi_square(counts, pairs.flatten()) < CHI_SQUARE[15]


def test_drafts_obey_the_filters_and_fall_back_to_what_they_exclude():
    params = SamplingParams(temperature=2.0, top_k=2, seed=0)
    sampler = Sampler(params, 4, frozenset(), [0])
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]] * 50)
    index, logq, law = sampler.draw_drafts(logits, 3)
    share = 1 / (1 + math.exp(-0.5))
    assert law[0].tolist() == pytest.approx([0.0, share, 1 - share, 0.0])
    assert set(index[:, :2].flatten().tolist()) == {1, 2}
    assert (logq[:, 2] == -math.inf).all()
    assert all(len(set(row)) == 3 for row in index.tolist())
    greedy = Sampler(SamplingParams(), 4, frozenset(), [0]).draw_drafts(logits[:1], 2)
    assert greedy[0].tolist() == [[1, 2]]
    assert greedy[1].tolist() == [[0.0, -math.inf]]
    assert greedy[2].tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_drawn_drafts_repeat_with_the_seed_and_leave_the_other_streams_alone():
    def fresh():
        return Sampler(SamplingParams(temperature=1.0, seed=9), 50, frozenset(), [0])

    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    one, two = fresh(), fresh()
    two.promotion_noise(10)
    two._uniforms(DraftTree.chain([0, 1, 2]), 0)
    for _ in range(2):
        for a, b in zip(one.draw_drafts(logits, 4), two.draw_drafts(logits, 4), strict=True):
            assert torch.equal(a, b)
    one.promotion_noise(10)
    assert torch.equal(one.promotion_noise(4), two.promotion_noise(4))


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


# -- end to end ------------------------------------------------------------------------------------


class TinyTokenizer(LetterTokenizer):
    """Ids of the tiny model; none of them ends the text."""

    eos_token_ids = ()
    special_ids: frozenset[int] = frozenset()
    vocab_size = tiny.CONFIG.vocab_size

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(chr(200 + i) for i in ids)

    def token_text(self, token: int) -> str:
        return chr(200 + token)


@pytest.fixture(scope="module")
def engine():
    target = tiny.target()
    tokenizer: Any = TinyTokenizer()
    return Engine(target, tokenizer, tiny.drafter(target), "tiny")


POLICIES = ["chain:3", "medusa"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("options", [{}, {"top_p": 0.8}, {"top_k": 2}])
def test_seeded_requests_repeat_and_their_statistics_are_sane(engine, policy, options):
    options = {"max_tokens": 40, "temperature": 1.0, "rule": "rejection", **options}
    runs = [engine.generate([9, 4, 27], policy=policy, seed=5, **options) for _ in range(2)]
    assert runs[0].token_ids == runs[1].token_ids
    assert runs[0].lossless
    assert len(runs[0].token_ids) == 40
    assert runs[0].finish_reason == "length"
    assert Kind.PROMOTED not in [token.kind for token in runs[0].tokens]
    stats = runs[0].statistics
    assert 1 <= stats["accept_length"] <= 5
    assert stats["num_accepted_draft_tokens"] + stats["num_spec_steps"] == 39
    other = engine.generate([9, 4, 27], policy=policy, seed=6, **options)
    assert other.token_ids != runs[0].token_ids or options.get("top_k") == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_requests_equal_plain_decoding(engine, policy):
    plain = engine.generate([9, 4, 27], policy="none", max_tokens=30)
    got = engine.generate([9, 4, 27], policy=policy, max_tokens=30, rule="rejection")
    assert got.token_ids == plain.token_ids


def test_lenience_promotes(engine):
    options = {"max_tokens": 60, "temperature": 1.0, "policy": "chain:3", "seed": 1}
    lossy = engine.generate([9, 4, 27], rule="rejection:0.05", **options)
    exact = engine.generate([9, 4, 27], rule="rejection", **options)
    assert not lossy.lossless
    assert Kind.PROMOTED in [token.kind for token in lossy.tokens]
    assert lossy.statistics["accept_length"] > exact.statistics["accept_length"]


class Forced:
    """A sampler that drafts given tokens one by one and keeps the law of each."""

    def __init__(self, ids, temperature):
        self.ids, self.temperature, self.laws = ids, temperature, []

    def draw_drafts(self, logits, k):
        self.laws.append((logits / self.temperature).softmax(-1)[0])
        index = torch.tensor([[self.ids[len(self.laws) - 1]]])
        return index, self.laws[-1][index].log(), self.laws[-1].unsqueeze(0)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_drafters_tree_carries_the_laws_its_children_were_drawn_from(engine, policy):
    drafter = engine.drafter
    prompt = [5, 9, 11, 2]
    sampler = Sampler(SamplingParams(temperature=0.7, seed=2), 61, frozenset(), [0])
    taps = engine.target.prefill(engine.target.new_cache(64), prompt[:-1], drafter.tap_layers).taps
    state = drafter.new_state(64)
    drafter.observe(state, prompt[1:], taps)
    tree = drafter.draft(state, make_policy(policy).largest(), sampler).tree.validate()
    own = drafter.target_ids.tolist()  # target ids of the draft vocabulary
    inner = set(tree.parent[1:].tolist())
    for leaf in set(range(tree.num_nodes)) - inner:
        path = path_to(tree, leaf)
        forced = Forced([own.index(int(tree.token[node])) for node in path[1:]], 0.7)
        chain = TreePlan(len(path) - 1, 1, len(path))
        assert torch.equal(drafter.draft(state, chain, forced).tree.token, tree.token[path])
        for node, law in zip(path[:-1], forced.laws, strict=True):
            assert torch.allclose(tree.q[node, own], law, atol=1e-5)
            assert float(tree.q[node].sum()) == pytest.approx(1.0, abs=1e-5)
        child = tree.q[path[-2], int(tree.token[leaf])]
        assert float(child.log()) == pytest.approx(float(tree.logq[leaf]), abs=1e-5)
    for node in set(range(tree.num_nodes)) - inner:
        assert not tree.q[node].any()

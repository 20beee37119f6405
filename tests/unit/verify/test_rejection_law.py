import itertools
import math
import random

import pytest
import torch

from adaptivespec.core.law import Law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, follow
from adaptivespec.policy import make_policy
from adaptivespec.policy.plan import TreePlan
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.rejection import ratios
from fakes import tiny_engine
from property.naive_reference import path_to

DRAWS = 200_000
FEWER = 50_000
# Upper 1e-5 points of chi-square by degrees of freedom.
CHI_SQUARE = {1: 19.5, 7: 35.3, 15: 51.0}


def law_of(p, target=None):
    """A law at T > 0 with these probabilities [..., N, V]; y is token 0 unless given."""
    z = torch.as_tensor(p, dtype=torch.float32).log()
    peak = z.amax(-1)
    target = torch.zeros(peak.shape, dtype=torch.int64) if target is None else target
    return Law(z, peak, target, z - peak.unsqueeze(-1))


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
    assert chi_square(counts, p) < CHI_SQUARE[int((p > 0).sum()) - 1]


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


# -- end to end ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine():
    return tiny_engine.endless()


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

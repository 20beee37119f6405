"""The margin rule on batches, against the code that serves one request, and by its law."""

import math
import random
from collections import Counter, deque
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import Law, greedy_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, Verdict, follow, verdict
from adaptivespec.integrations.sglang.margin import Ledgers, MarginRows, TokenClasses, decide
from adaptivespec.integrations.sglang.sampling import SamplingRows, law_of, promotion_uniforms
from adaptivespec.integrations.sglang.trees import tree_of
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits
from adaptivespec.verify.margin import MarginOptions, MarginRule

V = 12
THINK = (10, 11)
SLOTS, DEPTH, MOST = 40, 5, 60  # slots, levels, output tokens
CHI_SQUARE = {1: 19.5, 2: 23.0, 3: 25.9, 4: 28.5}  # upper 1e-5 points by degrees of freedom


def mask(*ids, vocab=V):
    out = torch.zeros(vocab, dtype=torch.bool)
    out[list(ids)] = True
    return out


TOKENS = TokenClasses(protected=mask(0), digits=mask(1, 2), think_ids=THINK)


def random_options(rng):
    """Each option on for about every third request."""
    given = {
        "kappa": rng.choice([0.0, 0.05, 0.2, 0.5, 0.5, 1.0]),
        "protect_digits": rng.random() < 0.3,
        "exact_between": rng.random() < 0.3,
        "think_only": rng.random() < 0.2,
        "max_promotions_per_step": rng.choice([None, None, None, 0, 1, 2]),
        "skip_tokens": rng.choice([0, 0, 0, 3, 20]),
        "think_ids": rng.choice([None, (5, 6)]),
    }
    if rng.random() < 0.5:
        given["max_regret"] = rng.choice([0.0, 0.5, 1.5, 3.0])
        given["regret_window"] = rng.choice([1, 2, 3, 7, 20, 300])
    return MarginOptions(**given)


class Request:
    """One request, decoded by the code for one request."""

    def __init__(self, rng, options=None, temperature=0.0):
        self.options = options or random_options(rng)
        self.temperature = temperature
        self.seed = rng.randrange(2**40)
        self.stop_ids = set(rng.sample(range(V), rng.randrange(3)))
        self.rule = MarginRule(self.options)
        prompt = [rng.randrange(V) for _ in range(4)]
        self.ledger = Ledger.start(self.rule.limits, prompt, THINK)
        self.output = []
        self.known = self.ledger  # as the host knows it: without the newest token
        self.prefill(rng)

    @property
    def position(self):
        return len(self.output)

    def prefill(self, rng):
        """One token that no step decided, after whatever came before."""
        self.known = replace(self.ledger, charges=deque(self.ledger.charges))
        token = rng.randrange(V)
        self.ledger.record(Verdict([0], [token], [Kind.BONUS], [0.0], [token], [0.0]))
        self.output.append(token)

    def step(self, law, tree):
        """The verdict of a step, and the regret by depth."""
        free = verdict(tree, self.rule.choose(law, tree, self.state(tree)))
        done = apply_limits(free, self.rule.limits, self.ledger)
        self.ledger.record(done)
        self.output += done.tokens
        regret = [-1.0] * tree.max_depth
        for index, (kind, drop) in enumerate(zip(done.kinds, done.drops, strict=True)):
            if kind is Kind.PROMOTED:
                regret[index] = drop
        return free, done, regret

    def state(self, tree):
        protected = TOKENS.protected.clone()
        protected[list(self.stop_ids)] = True
        return VerifyState(protected, self.noise(tree), self.ledger, TOKENS.digits)

    def noise(self, tree):
        """A sampler of which the rule asks the promotion stream only."""
        place = self.position + tree.depth - 1
        numbers = promotion_uniforms(torch.tensor([self.seed]), place[None], tree.token[None])[0]

        class Stream:
            def promotion_noise(self, n, device):
                return numbers

        return Stream()


class Batch:
    """Requests in slots, decoded by the code for batches."""

    def __init__(self, rng, requests):
        self.rng = rng
        self.requests, self.slots = [], []
        self.ledgers = Ledgers(SLOTS, DEPTH, MOST, None)
        self.join(requests)

    def join(self, requests):
        before = len(self.requests)
        self.requests += requests
        self.slots += self.free_slots(len(requests))
        self.admit(range(before, len(self.requests)))

    def free_slots(self, count):
        free = [slot for slot in range(SLOTS) if slot not in self.slots]
        return self.rng.sample(free, count)

    def admit(self, rows):
        requests = [self.requests[row] for row in rows]
        ledgers = [self.rng.choice([one.known, one.ledger]) for one in requests]
        self.ledgers.admit(
            [self.slots[row] for row in rows], ledgers, [one.options for one in requests]
        )

    def resume(self, row):
        """Retracted: the request comes back in another slot, after another prefill."""
        self.requests[row].prefill(self.rng)
        (self.slots[row],) = self.free_slots(1)
        self.admit([row])

    def decide(self, z, tree, rows):
        chosen = [self.requests[row] for row in rows]
        sampling = SamplingRows.of(
            [one.temperature for one in chosen],
            *([off] * len(chosen) for off in (0, 1.0, 0.0)),
            [one.seed for one in chosen],
            V,
        )
        position = torch.tensor([one.position for one in chosen])
        margins = MarginRows.of(
            [one.options for one in chosen], [one.stop_ids for one in chosen], TOKENS
        )
        law = law_of(z, tree, sampling, position)
        slots = torch.tensor([self.slots[row] for row in rows])
        return law, decide(law, tree, margins, self.ledgers, slots, position, sampling.seed)


def random_trees(rng, roots, size, depth):
    """Trees of ``size`` nodes and at most ``depth`` levels below these roots."""
    out = []
    for root in roots:
        tokens, parents, depths = [root], [-1], [0]
        while len(tokens) < size:
            parent = rng.choice([node for node, above in enumerate(depths) if above < depth][-3:])
            taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
            tokens.append(rng.choice([token for token in range(V) if token not in taken]))
            parents.append(parent)
            depths.append(depths[parent] + 1)
        out.append(DraftTree.from_parents(tokens, parents))
    return replace(DraftTree.pad_stack(out), max_depth=depth)


def random_rows(rng, tree):
    """f32[B, N, V]: the first child is often the target's choice, and else near it."""
    generator = torch.Generator().manual_seed(rng.randrange(2**40))
    z = torch.randn(*tree.token.shape, V, generator=generator)
    for row, parents in enumerate(tree.parent.tolist()):
        for node in set(parents[1:]):
            child = int(tree.token[row, parents.index(node)])
            z[row, node, child] = z[row, node].max() + rng.choice([1.0, 1.0, 0.0, -0.2, -0.4, -2.0])
    return z


def one_of(tree, row):
    """The tree of one request."""
    arrays = (tree.token[row], tree.parent[row], tree.depth[row], tree.logq[row])
    return DraftTree(*arrays, tree.max_depth)


def row_of(law, row):
    """The law of one request, as the code for one request has it."""
    greedy = law.scaled is None or (law.greedy is not None and bool(law.greedy[row]))
    scaled = None if greedy else law.scaled[row]
    return Law(law.logits[row], law.peak[row], law.target[row], scaled)


@pytest.mark.parametrize("temperatures", [(0.0,), (1.0,), (0.0, 0.7, 1.5)])
def test_every_request_is_decoded_as_if_it_were_alone(temperatures):
    """Over many steps, with all limits, requests resumed in other slots, and rows left out."""
    seen = Counter()
    for seed in range(8):
        seen += decode_side_by_side(random.Random(seed), temperatures)
    assert seen["promoted"] > 100
    assert seen["cut"] > 30


def decode_side_by_side(rng, temperatures):
    """Compare every step of some requests; returns what happened to them."""
    requests = [Request(rng, temperature=rng.choice(temperatures)) for _ in range(5)]
    batch, seen = Batch(rng, requests), Counter()
    while max(one.position for one in requests) < MOST - 2 * DEPTH:
        if rng.random() < 0.1:
            batch.resume(rng.randrange(len(requests)))
        rows = rng.sample(range(len(requests)), rng.choice([5, 5, 4, 1]))
        depth = rng.randint(1, DEPTH)
        tree = random_trees(rng, [requests[row].output[-1] for row in rows], depth + 3, depth)
        law, decision = batch.decide(random_rows(rng, tree), tree, rows)
        followed = follow(tree, decision.tokens)
        for index, row in enumerate(rows):
            alone = one_of(tree, index)
            free, done, regret = requests[row].step(row_of(law, index), alone)
            path = followed.path[index, : followed.length[index]]
            assert path.tolist() == done.path
            tokens = [*alone.token[path[1:]].tolist(), int(followed.bonus[index])]
            assert tokens == done.tokens
            assert decision.regret[index].tolist() == regret
            seen["cut"] += len(free.path) > len(done.path)
            seen["promoted"] += done.num_promoted
        assert torch.equal(decision.target, law.target)
    return seen


@pytest.mark.parametrize(
    "limit",
    [
        {"max_promotions_per_step": 1},
        {"exact_between": True},
        {"max_regret": 0.7, "regret_window": 12},
        {"max_regret": 0.3, "regret_window": 2},
        {"max_regret": 3.0, "regret_window": 10**9},
        {"skip_tokens": 17},
        {"think_only": True},
        {"think_only": True, "think_ids": (3, 4)},
    ],
)
def test_each_limit_alone(limit):
    rng, cuts = random.Random(1), 0
    requests = [Request(rng, MarginOptions(kappa=0.1, **limit)) for _ in range(4)]
    batch, rows = Batch(rng, requests), range(4)
    for _ in range(12):
        tree = random_trees(rng, [one.output[-1] for one in requests], 7, 4)
        law, decision = batch.decide(random_rows(rng, tree), tree, rows)
        followed = follow(tree, decision.tokens)
        for row in rows:
            free, done, regret = requests[row].step(row_of(law, row), one_of(tree, row))
            cuts += len(free.path) > len(done.path)
            assert followed.path[row, : followed.length[row]].tolist() == done.path
            assert decision.regret[row].tolist() == regret
    assert cuts > 0


def free_batch(seed, batch, options, temperature=0.0, size=8, depth=4):
    """Law, tree and arguments of ``decide`` for requests without a past."""
    rng = random.Random(seed)
    tree = random_trees(rng, [rng.randrange(V) for _ in range(batch)], size, depth)
    seeds = torch.tensor([rng.randrange(2**40) for _ in range(batch)])
    position = torch.tensor([rng.randrange(1, 500) for _ in range(batch)])
    columns = ([off] * batch for off in (temperature, 0, 1.0, 0.0))
    sampling = SamplingRows.of(*columns, seeds.tolist(), V)
    law = law_of(random_rows(rng, tree), tree, sampling, position)
    return law, tree, options, seeds, position


def decided(law, tree, options, seeds, position, stop_ids=None):
    rows = MarginRows.of(options, stop_ids or [()] * len(options), TOKENS)
    slots = torch.arange(len(options))
    ledgers = Ledgers(len(options), tree.max_depth, 600, None)
    ledgers.admit(slots.tolist(), [Ledger() for _ in options], options)
    return decide(law, tree, rows, ledgers, slots, position, seeds)


def picked(law, tree, order):
    """The same batch in another order."""
    arrays = (x[order] for x in (tree.token, tree.parent, tree.depth, tree.logq))
    scaled = None if law.scaled is None else law.scaled[order]
    return Law(law.logits[order], law.peak[order], law.target[order], scaled), DraftTree(
        *arrays, tree.max_depth
    )


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_permuting_the_batch_permutes_the_decision(seed, temperature):
    rng = random.Random(seed)
    options = [random_options(rng) for _ in range(6)]
    law, tree, _, seeds, position = free_batch(seed, 6, options, temperature)
    stops = [rng.sample(range(V), rng.randrange(3)) for _ in range(6)]
    whole = decided(law, tree, options, seeds, position, stops)
    order = rng.sample(range(6), 6)
    other = decided(
        *picked(law, tree, order),
        [options[i] for i in order],
        seeds[order],
        position[order],
        [stops[i] for i in order],
    )
    for name in ("target", "tokens", "regret"):
        assert torch.equal(getattr(other, name), getattr(whole, name)[order])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("strict", [{"kappa": 1.0}, {"kappa": 7.0}, {"max_promotions_per_step": 0}])
def test_lossless_requests_keep_the_targets_tokens_beside_lossy_ones(temperature, strict):
    options = [MarginOptions(**strict), MarginOptions(kappa=0.0)] * 8
    law, tree, *rest = free_batch(3, 16, options, temperature)
    law = replace(law, logits=law.logits.round(), peak=law.peak.round())  # with ties
    decision = decided(law, tree, *rest)
    assert torch.equal(decision.tokens[::2], law.target[::2])
    assert (decision.regret[::2] == -1).all()
    assert (decision.tokens[1::2] != law.target[1::2]).any()
    assert (decision.regret[1::2] >= 0).any()


def test_a_batch_of_lossless_requests_does_no_work():
    options = [MarginOptions(kappa=1.0)] * 3
    law, tree, _, seeds, position = free_batch(1, 3, options)
    rows = MarginRows.of(options, [(1,)] * 3, TOKENS)
    assert rows.lossless
    ledgers = Ledgers(3, tree.max_depth, 600, None)
    slots = torch.arange(3)
    with Recorded() as seen:
        decision = decide(law, tree, rows, ledgers, slots, position, seeds)
    assert decision.tokens is law.target
    assert decision.regret.tolist() == [[-1.0] * tree.max_depth] * 3
    assert seen.names == {"full_like", "slice", "expand"}


def test_nan_rows_never_promote():
    options = [MarginOptions(kappa=0.0)] * 4
    law, tree, _, seeds, position = free_batch(2, 4, options)
    z = law.logits.clone()
    z[:2, :, 5] = math.nan
    law = greedy_law(z)
    decision = decided(law, tree, options, seeds, position)
    assert torch.equal(decision.tokens[:2], law.target[:2])
    assert (decision.regret[:2] == -1).all()
    assert (decision.regret[2:] >= 0).any()


def test_a_root_without_drafts():
    law, tree, options, seeds, position = free_batch(
        0, 2, [MarginOptions(exact_between=True, max_regret=1.0, think_only=True)] * 2, size=1
    )
    for depth in (0, 3):
        decision = decided(law, replace(tree, max_depth=depth), options, seeds, position)
        assert torch.equal(decision.tokens, law.target)
        assert decision.regret.tolist() == [[-1.0] * depth] * 2


def test_stop_ids_and_digits_are_protected_for_the_request_that_asks():
    """The likeliest token is 4, the draft 1, a digit, is right behind."""
    options = [MarginOptions(kappa=0.5, protect_digits=digits) for digits in (False, True)] * 3
    stops = [(), (), (1,), (3, 1), (4,), (4, 5, 6)]
    tree = DraftTree.pad_stack([DraftTree.chain([0, 1])] * 6)
    z = torch.full((6, 2, V), -9.0)
    z[:, 0, 4], z[:, 0, 1] = 1.0, 0.9
    zeros = torch.zeros(6, dtype=torch.int64)
    decision = decided(greedy_law(z), tree, options, zeros, zeros, stops)
    assert decision.tokens[:, 0].tolist() == [1, 4, 4, 4, 4, 4]
    assert decision.regret[0, 0] == pytest.approx(0.1)


def test_classes_of_tokens_that_are_not_known_are_refused():
    bare = TokenClasses(mask())
    for option in ({"protect_digits": True}, {"think_only": True}):
        with pytest.raises(ConfigError, match=next(iter(option))):
            MarginRows.of([MarginOptions(**option)], [()], bare)
    MarginRows.of([MarginOptions(think_only=True, think_ids=(1, 2))], [()], bare)


def test_regret_is_kept_only_where_it_is_limited():
    ledgers = Ledgers(4, 3, 100, None)
    ledgers.admit([0], [Ledger()], [MarginOptions(exact_between=True)])
    assert ledgers.totals is None
    ledgers.admit([1], [Ledger()], [MarginOptions(max_regret=1.0, regret_window=5)])
    assert ledgers.totals.shape == (4, 9)


def half_a_nat_each(requests, depth):
    """Chains of which every draft is promoted at 0.5 nats, 7 and 8 in turn, and their logits."""
    chains = [[one.output[-1], *([7, 8] * depth)[:depth]] for one in requests]
    tree = DraftTree.pad_stack([DraftTree.chain(chain) for chain in chains])
    z = torch.full((*tree.token.shape, V), -9.0)
    z[..., 9], z[..., 7:9] = 0.5, 0.0
    return z, tree


def compare_steps(batch, depths):
    """Decode chains of these depths; returns how many drafts were accepted."""
    rows, accepted = range(len(batch.requests)), []
    for depth in depths:
        z, tree = half_a_nat_each(batch.requests, depth)
        law, decision = batch.decide(z, tree, rows)
        for row in rows:
            _, done, regret = batch.requests[row].step(row_of(law, row), one_of(tree, row))
            assert decision.regret[row].tolist() == regret
            accepted.append(done.num_accepted)
    return accepted


def thrifty(rng, most, window):
    request = Request(rng, MarginOptions(kappa=0.5, max_regret=most, regret_window=window))
    request.stop_ids = ()
    return request


@pytest.mark.parametrize(("kappa", "accepted"), [(math.exp(-0.5), 0), (math.exp(-0.5001), 2)])
def test_a_margin_must_exceed_kappa(kappa, accepted):
    rng = random.Random(0)
    request = Request(rng, MarginOptions(kappa=kappa))
    request.stop_ids = ()
    assert compare_steps(Batch(rng, [request]), [2]) == [accepted]


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 6, 10])
def test_a_window_that_begins_within_the_walk(window):
    rng = random.Random(window)
    requests = [thrifty(rng, most, window) for most in (0.0, 0.5, 1.0, 1.5, 2.0)]
    accepted = compare_steps(Batch(rng, requests), [5, 3, 5, 1, 5])
    assert accepted[0] == 0
    assert accepted[4] == (5 if window <= 4 else 4)  # a budget spent to the last is not exceeded


@pytest.mark.parametrize("newest", [True, False])
def test_a_request_that_comes_back_has_spent_what_it_spent(newest):
    rng = random.Random(0)
    request = thrifty(rng, 1.0, 8)
    batch = Batch(rng, [request])
    assert compare_steps(batch, [4]) == [2]
    request.prefill(rng)
    batch.slots = [7]
    batch.ledgers.admit([7], [request.ledger if newest else request.known], [request.options])
    assert compare_steps(batch, [4] * 5) == [0, 0, 0, 0, 2]  # then the first two are forgotten


def test_a_longer_window_leaves_shorter_ones_alone():
    """A request of window 20 spends its budget; then others of longer windows arrive."""
    rng = random.Random(4)
    batch = Batch(rng, [thrifty(rng, 1.0, 20)])
    assert compare_steps(batch, [4]) == [2]
    for window in (45, 10**9):
        batch.join([thrifty(rng, 1.0, window)])
        compare_steps(batch, [2, 4, 3])
    assert batch.ledgers.totals.shape[-1] >= MOST


# The law of what is emitted, on five tokens.

LOGITS = torch.tensor([1.0, 0.6, 0.2, -0.4, -1.5])
FREE = TokenClasses(mask(vocab=5))


def star_law(children, temperature, filters, batch):
    """The law of ``batch`` requests at the root of a star, and the tree."""
    star = DraftTree.from_parents([0, *children], [-1] + [0] * len(children))
    arrays = (star.token, star.parent, star.depth, star.logq)
    tree = DraftTree(*(array.expand(batch, -1) for array in arrays), 1)
    columns = [
        [filters.get(name, off)] * batch
        for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))
    ]
    rows = SamplingRows.of([temperature] * batch, *columns, range(batch), 5)
    position = torch.zeros(batch, dtype=torch.int64)
    z = LOGITS.expand(*tree.token.shape, 5)
    return law_of(z, tree, rows, position), tree, rows.seed, position


def root_tokens(law, tree, seeds, position, kappa, stop_ids):
    batch = len(seeds)
    rows = MarginRows.of([MarginOptions(kappa=kappa)] * batch, [stop_ids] * batch, FREE)
    ledgers = Ledgers(batch, 1, 10, None)
    return decide(law, tree, rows, ledgers, torch.arange(batch), position, seeds).tokens[:, 0]


def eligible(children, kappa, protected, p):
    """From the definition, on tokens."""
    margin = (LOGITS - LOGITS.max()).exp()
    return [x for x in children if margin[x] > kappa and p[x] > 0 and x not in protected]


LAWS = [
    (children, kappa, temperature, filters, protected)
    for children in [(1,), (1, 3), (0, 1), (1, 2, 3, 4)]
    for kappa in (0.0, 0.5, 1.0)
    for temperature, filters in [(0.5, {}), (2.0, {"top_k": 3}), (1.0, {"min_p": 0.3})]
    for protected in [(), (1,), (0,)]
]


def test_the_total_variation_is_the_promotion_probability():
    """Enumerate the target's token; which child is promoted cannot change it."""
    for children, kappa, temperature, filters, protected in LAWS:
        law, tree, seeds, position = star_law(children, temperature, filters, 64)
        p = law.logp[0, 0].double().exp()
        out, promoted = torch.zeros(5, dtype=torch.float64), 0.0
        for y in range(5):
            given = replace(law, target=torch.full_like(law.target, y))
            tokens = root_tokens(given, tree, seeds, position, kappa, protected)
            out += p[y] * torch.bincount(tokens, minlength=5) / 64
            promoted += float(p[y] * (tokens != y).double().mean())
        allowed = eligible(children, kappa, protected, p)
        outside = [y for y in range(5) if y not in children and y not in protected]
        assert promoted == pytest.approx(float(p[outside].sum()) if allowed else 0.0, abs=1e-9)
        assert float((out - p).abs().sum()) / 2 == pytest.approx(promoted, abs=1e-9)


@pytest.mark.parametrize(
    ("children", "kappa", "temperature", "filters", "protected"),
    [
        ((1, 3), 0.2, 1.0, {}, ()),
        ((1, 2, 3), 0.0, 1.5, {}, ()),
        ((1, 2, 3), 0.3, 0.7, {"top_k": 4}, (0,)),
        ((1, 2), 0.1, 2.0, {"min_p": 0.2}, (2,)),
        ((0, 1), 0.5, 1.0, {"top_p": 0.9}, ()),
        ((1, 2), 1.0, 1.0, {}, ()),
        ((1, 2), 1.5, 0.5, {"top_k": 3}, ()),
    ],
)
def test_emitted_tokens_have_the_law_of_the_definition(
    children, kappa, temperature, filters, protected
):
    law, *rest = star_law(children, temperature, filters, 50_000)
    p = law.logp[0, 0].double().exp()
    allowed = eligible(children, kappa, protected, p)
    expected = torch.zeros(5, dtype=torch.float64)
    for y in range(5):
        if y in children or y in protected or not allowed:
            expected[y] += p[y]
        else:
            expected[allowed] += p[y] * p[allowed] / p[allowed].sum()
    counts = torch.bincount(root_tokens(law, *rest, kappa, protected), minlength=5).double()
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    wanted = expected[possible] * counts.sum()
    statistic = float(((counts[possible] - wanted) ** 2 / wanted).sum())
    assert statistic < CHI_SQUARE[int(possible.sum()) - 1]


# What runs on the device waits for nothing: arrays of the meta device hold no numbers to read.


class Recorded(TorchDispatchMode):
    """Names of the operations that run, and whether an array of the host was made or read."""

    def __init__(self):
        super().__init__()
        self.names, self.host = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.names.add(name)
        leaves = torch.utils._pytree.tree_leaves((args, kwargs, out))
        if any(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in leaves):
            self.host.add(name)
        return out


@pytest.mark.parametrize("topk", [1, 4])
@pytest.mark.parametrize("temperatures", [(0, 0, 0), (1, 1, 1), (0, 1, 0.5)])
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {
            "exact_between": True,
            "max_regret": 1.0,
            "skip_tokens": 2,
            "think_only": True,
            "max_promotions_per_step": 2,
            "protect_digits": True,
        },
    ],
)
def test_nothing_is_read_from_the_device(topk, temperatures, limits):
    device, size, vocab = torch.device("meta"), 6, 300
    integers = torch.zeros(3, size, dtype=torch.int64, device=device)
    classes = TokenClasses(mask(vocab=vocab).to(device), mask(vocab=vocab).to(device), THINK)
    options = [MarginOptions(kappa=0.2, **limits)] * 3
    filters = ([0, 20, 5], [0.9, 0.8, 1.0], [0.0, 0.1, 0.2])
    sampling = SamplingRows.of(temperatures, *filters, [1, 2, 3], vocab, device)
    rows = MarginRows.of(options, [(), (1,), (2, 3)], classes)
    ledgers = Ledgers(9, 5, 100, device)
    ledgers.admit([2, 4, 6], [Ledger()] * 3, options)
    slots, z = integers[:, 0], torch.zeros(3, size, vocab, device=device)
    with Recorded() as seen:
        tree = tree_of(integers, integers, integers, integers.view(-1), slots, topk, 5)
        law = law_of(z, tree, sampling, slots)
        decide(law, tree, rows, ledgers, slots, slots, sampling.seed)
    assert not seen.host
    reading = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "masked_select"}
    assert not seen.names & reading

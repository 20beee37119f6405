"""The margin rule on batches, against the code that serves one request."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import Law, greedy_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import follow
from adaptivespec.integrations.sglang.ledgers import Ledgers
from adaptivespec.integrations.sglang.margin import MarginRows, TokenClasses, decide
from adaptivespec.integrations.sglang.sampling import SamplingRows, law_of
from adaptivespec.integrations.sglang.trees import tree_of
from adaptivespec.verify.limits import Ledger
from adaptivespec.verify.margin import MarginOptions
from fakes.margin_batch import (
    DEPTH,
    MOST,
    THINK,
    TOKENS,
    Batch,
    Request,
    V,
    mask,
    one_of,
    random_options,
    random_rows,
    random_trees,
    row_of,
)


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


def test_a_margin_must_exceed_kappa():
    options = [MarginOptions(kappa=math.exp(-drop)) for drop in (0.5, 0.5001)]
    tree = DraftTree.pad_stack([DraftTree.chain([0, 1])] * 2)
    z = torch.full((2, 2, V), -9.0)
    z[:, 0, 4], z[:, 0, 1] = 0.5, 0.0
    zeros = torch.zeros(2, dtype=torch.int64)
    assert decided(greedy_law(z), tree, options, zeros, zeros).tokens[:, 0].tolist() == [4, 1]


def test_classes_of_tokens_that_are_not_known_are_refused():
    bare = TokenClasses(mask())
    for option in ({"protect_digits": True}, {"think_only": True}):
        with pytest.raises(ConfigError, match=next(iter(option))):
            MarginRows.of([MarginOptions(**option)], [()], bare)
    MarginRows.of([MarginOptions(think_only=True, think_ids=(1, 2))], [()], bare)


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

"""Limits over many steps of a batch, against the code that serves one request."""

import random

import pytest
import torch

from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import follow
from adaptivespec.integrations.sglang.ledgers import Ledgers
from adaptivespec.verify.limits import Ledger
from adaptivespec.verify.margin import MarginOptions
from fakes.margin_batch import (
    MOST,
    Batch,
    Request,
    V,
    one_of,
    random_rows,
    random_trees,
    row_of,
)


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

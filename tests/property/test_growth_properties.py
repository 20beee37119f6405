"""Whatever a plan says and a drafter offers, the tree is valid and its arrays are right."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_reference import FAST, seeds

from adaptivespec.draft.growth import Growth
from adaptivespec.policy.plan import Keep, TreePlan
from fakes.plans import plans


def offered(rng, width, k, sparse):
    """Sorted log q `[width, k]`, with ties, certain children and, when sparse, missing ones."""
    rows = []
    for _ in range(width):
        weights = sorted((rng.choice([0, 1, 2, 5]) for _ in range(k)), reverse=True)
        total = sum(weights) + rng.choice([0, 1, 3])
        if not total:
            weights, total = [1, *weights[1:]], 1
        row = [weight / total for weight in weights]
        rows.append([math.log(q) if q else -math.inf if sparse else -30.0 for q in row])
    return torch.tensor(rows)


@settings(FAST, max_examples=200)
@given(plans(), seeds, st.booleans(), st.booleans())
def test_any_plan_on_any_offers_gives_a_valid_tree(plan, seed, sparse, sampled):
    rng = random.Random(seed)
    sampled = sampled and plan.fixed_shape and not sparse
    growth = Growth(0, plan, sparse=sparse, sampled=sampled)
    tokens = rng.choice([2, 4, 4])  # of the drafter's vocabulary
    above = {0: (-1, 0, 0.0, 0.0)}
    while not growth.stopped:
        frontier = growth.frontier_tokens.tolist()
        logq = offered(rng, len(frontier), min(plan.topk, tokens), sparse)
        ids = torch.arange(len(above), len(above) + logq.numel()).view(logq.shape)
        step = logq
        if plan.acceptance is not None:
            step = plan.acceptance.log_of(logq, growth.level + 1)
        for row, parent in enumerate(frontier):
            for rank, token in enumerate(ids[row].tolist()):
                score = above[parent][3] + float(step[row, rank])
                above[token] = (parent, rank, float(logq[row, rank]), score)
        source = growth.expand(ids, logq)
        parents = [above[token][0] for token in growth.frontier_tokens.tolist()]
        assert [frontier[row] for row in source.tolist()] == parents
        assert growth.width <= plan.width
    draft = growth.draft()
    tree = draft.tree.validate()  # parents come first, so every node has its parent in the tree
    assert tree.num_nodes <= max(1, min(plan.num_draft_tokens, plan.available))
    assert tree.max_depth <= min(plan.num_steps, growth.level)
    assert draft.num_candidates <= len(above) - 1
    if tree.num_nodes == 1:
        return
    got = zip(
        tree.token[tree.parent_index].tolist()[1:],
        draft.rank.tolist()[1:],
        tree.logq.tolist()[1:],
        draft.score.tolist()[1:],
        strict=True,
    )
    for node, (token, values) in enumerate(zip(tree.token.tolist()[1:], got, strict=True), 1):
        assert values == pytest.approx(above[token], abs=1e-4), node
    assert draft.rank[0] == draft.score[0] == 0
    if not plan.positions and not plan.keep.drop:
        best = sorted((row[3] for row in above.values()), reverse=True)
        assert sorted(draft.score.tolist(), reverse=True) == pytest.approx(
            best[: tree.num_nodes], abs=1e-4
        )


@FAST
@given(
    st.integers(0, 5),
    st.integers(1, 4),
    st.integers(0, 40),
    st.none() | st.integers(1, 8),
    seeds,
)
def test_a_plain_plan_gets_all_it_asks_for(steps, topk, nodes, width, seed):
    rng = random.Random(seed)
    plan = TreePlan(steps, topk, nodes, keep=Keep(width=width))
    growth = Growth(0, plan)
    while not growth.stopped:
        logq = offered(rng, growth.width, topk, sparse=False)
        first = growth.num_candidates + 1
        growth.expand(torch.arange(first, first + logq.numel()).view(logq.shape), logq)
    assert growth.draft().tree.validate().num_nodes == max(1, min(nodes, plan.available))

"""Every rule's claim to be lossless, checked against the law of the tokens it emits.

Nothing here asks a rule what it is: at temperature 0 its tokens are compared with strict's, at
T > 0 the law of its tokens with p_T, exactly over the target's own token and by chi-square over
200,000 draws. A rule that claims to be lossless must never deviate, a lossy one must be seen to.
"""

import math
from itertools import islice

import pytest
import torch
from rule_cases import (
    decode,
    drawn_tree,
    greedy,
    law_of_the_root,
    limited,
    ready,
    rules_of,
    sampled,
    state_for,
    uniforms,
)
from tree_cases import cases_for

from adaptivespec.core.registry import Registry
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.verdict import follow, reached
from adaptivespec.verify import RULES

# Temperature, filters and protected tokens of the cases at T > 0.
SETTINGS = [
    (1.0, {}, ()),
    (0.7, {"top_k": 3}, ()),
    (1.5, {"min_p": 0.2}, (1,)),
    (1.0, {"top_p": 0.8}, (0, 3)),
]
PER_TOKEN = 200  # draws for each value of y
# Laws that agree lie within this many standard errors: each of the 5 would have to be beyond it.
SIGMAS = 4.5
DRAWS, CHUNK = 200_000, 20_000
LEAST = 5_000  # draws that must have come to a node for a test of its law
# Upper 1e-6 points of chi-square by degrees of freedom.
CHI_SQUARE = {1: 23.93, 2: 27.63, 3: 30.66, 4: 33.38, 5: 35.89, 6: 38.26, 7: 40.52}


def deviations(rule):
    """What the rule does that a lossless one would not, the cheapest checks first."""
    yield from greedy_deviations(ready(rule, 5), 5)
    yield from request_deviations(ready(rule, 8), 8)
    if rule.sampling:
        yield from exact_deviations(ready(rule, 5), 5)
        yield from drawn_deviations(ready(rule, 8), 8)


def greedy_deviations(rule, vocab):
    """Temperature 0: what is emitted, token for token."""
    for seed, protected in enumerate([(), (), (0,), (1, 4)]):
        cases = cases_for(type(rule), seed, 240, vocab)
        law = greedy(cases)
        choice = rule.choose(law, cases.tree, state_for(rule, vocab, protected))
        one = follow(cases.tree, limited(choice.tokens, law, rule))
        two = follow(cases.tree, law.target)
        same = (one.path == two.path).all(-1) & (one.bonus == two.bonus)
        if not same.all():
            index = int((~same).nonzero()[0])
            yield (
                f"T = 0, case {index} of seed {seed}: path {one.path[index].tolist()} and then "
                f"{int(one.bonus[index])}, strict {two.path[index].tolist()} and then "
                f"{int(two.bonus[index])}"
            )


def request_deviations(rule, vocab):
    """Temperature 0: whole requests, memory and limits included."""
    for seed in range(3):
        params = SamplingParams(max_tokens=10**6)
        pairs = zip(*decode(rule, seed, params, 60, integers=seed == 1, vocab=vocab), strict=True)
        for step, (done, own) in enumerate(pairs):
            if done.tokens != own.tokens:
                yield f"T = 0, request {seed}, step {step}: {done.tokens}, strict {own.tokens}"


def exact_deviations(rule, vocab):
    """T > 0: total variation between the root's token and p_T, by enumeration over y.

    Each y weighs p(y), so the difference of the laws at x is the weighted mean of
    1[token = x] - 1[y = x]. Where a rule only promotes, from outside of the children to a child,
    its size is the promotion probability and chance has no part in it. Otherwise chance is the
    smaller of two standard errors: of the stratified mean as seen, one unseen event in each stratum
    allowed, and the most that any lossless rule has, sqrt(p(x) max p / draws).
    """
    for seed, settings in enumerate(SETTINGS):
        cases = cases_for(type(rule), 100 + seed, 24, vocab)
        tokens, p, promotes = law_of_the_root(rule, cases, settings, PER_TOKEN, seed)
        hit = torch.nn.functional.one_hot(tokens, vocab).double()  # [B, y, draw, x]
        change = hit - torch.eye(vocab, dtype=torch.float64)[:, None]
        weight = p.unsqueeze(-1)
        difference = (weight * change.mean(2)).sum(1)
        seen = (weight**2 * (change.var(2) + 1 / PER_TOKEN) / PER_TOKEN).sum(1)
        error = torch.minimum(seen, p * p.amax(-1, keepdim=True) / PER_TOKEN).sqrt()
        variation = difference.abs().sum(-1) / 2
        chance = 1e-9 + SIGMAS * error.sum(-1) / 2 * (not promotes)
        for index in (variation > chance).nonzero().flatten().tolist():
            yield (
                f"(T, filters, protected) = {settings}, case {index}: total variation "
                f"{variation[index]:.4f} to p_T, of which chance {chance[index]:.4f}"
            )


def drawn_deviations(rule, vocab):
    """T > 0: chi-square of the root's token, and of the token after each drafted child.

    200,000 draws. Under a lossless rule the token at a followed child has that child's own p_T.
    """
    temperature, filters = 0.7, {"top_p": 0.95}
    cases = cases_for(type(rule), 5, 1, vocab, ("near",), 4, 4)
    size = cases.tree.num_nodes
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(size, vocab, dtype=torch.float64)
    for chunk in range(DRAWS // CHUNK):
        tree = drawn_tree(rule, cases, CHUNK, temperature, generator)
        law = sampled(cases, uniforms(tree, generator), temperature, filters)
        state = state_for(rule, vocab, (), temperature, law.target.shape, chunk)
        tokens = limited(rule.choose(law, tree, state).tokens, law, rule)
        reach = reached(tree, tokens)
        for node in range(size):
            counts[node] += torch.bincount(tokens[..., node][reach[..., node]], minlength=vocab)
    p = law.scaled[0, 0].double().softmax(-1)
    for node in (counts.sum(-1) > LEAST).nonzero().flatten().tolist():
        statistic, freedom = chi_square(counts[node], p[node])
        if freedom and statistic > CHI_SQUARE[freedom]:
            yield (
                f"T = {temperature}, {filters}: chi-square {statistic:.1f} with {freedom} degrees "
                f"of freedom at node {node}"
            )


def chi_square(counts, p):
    """The statistic and its degrees of freedom; 0 of them when one outcome alone is possible."""
    if (counts[p == 0] > 0).any():
        return math.inf, 1
    expected = p[p > 0] * counts.sum()
    if len(expected) == 1:
        return 0.0, 0
    return float(((counts[p > 0] - expected) ** 2 / expected).sum()), len(expected) - 1


def faults(cls):
    """Where a class claims what its tokens do not bear out, over all of its option sets."""
    found, rules = [], rules_of(cls, 5)
    lossless = [rule for rule in rules if rule.lossless]
    lossy = [rule for rule in rules if not rule.lossless]
    for rule in lossless:
        found += [
            f"{rule.label} claims to be lossless: {deviation}"
            for deviation in islice(deviations(rule), 3)
        ]
    if lossy and not any(any(deviations(rule)) for rule in lossy):
        found.append(f"{cls.name} claims to be lossy and was never seen to deviate")
    return found


def test_the_strictest_settings_come_up_by_themselves():
    rules = [rule for name in RULES.names() for rule in rules_of(RULES.load(name), 5)]
    able = {rule.name for rule in rules if rule.lossless}
    assert {"strict", "margin", "rejection", "mars", "regret", "threshold"} <= able


@pytest.mark.parametrize("name", RULES.names())
def test_a_rule_is_as_lossless_as_it_says(name):
    assert faults(RULES.load(name)) == []


# A rule that is wrong about itself -> what finds it.
WRONG = {
    "LooseMargin": "T = 0",
    "HiddenMargin": "T = 0",
    "DeepMargin": "chi-square",
    "NaiveTopOne": "total variation",
    "LenientRejection": "total variation",
    "ModestStrict": "never seen to deviate",
}
WRONG_RULES = Registry("rule", {name: f"wrong_rules:{name}" for name in WRONG})


@pytest.mark.parametrize("name", WRONG_RULES.names())
def test_a_rule_that_is_wrong_about_itself_is_found(name):
    (first, *_) = faults(WRONG_RULES.load(name))
    assert WRONG[name] in first


def test_a_rule_may_owe_its_losslessness_to_its_limits():
    assert faults(Registry("rule", {"limited": "wrong_rules:LimitedMargin"}).load("limited")) == []

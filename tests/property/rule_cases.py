"""Inputs on which every registered rule is held to the same properties, whatever its name.

What a rule needs is read off its class: drafts drawn from a law (``sampled_drafts``), hidden states
(``signals``, ``draft_hidden``), chains only (``tree``), temperature 0 only (``sampling``).
"""

import random
from dataclasses import fields, replace
from functools import cache

import torch
from naive_reference import random_logits
from tree_cases import HIDDEN, drawn

from adaptivespec.core.law import Law, filtered, greedy_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, verdict
from adaptivespec.verify.base import Rule, VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits
from fakes.option_sets import option_sets
from fakes.random_head import with_head

# Option sets that no bound names.
EXTRA = {"margin": [{"kappa": 1.0}, {"kappa": 0.9}, {"kappa": 0.01}]}


# -- rules -----------------------------------------------------------------------------------------


def rules_of(cls, vocab):
    """One rule for each option set of a class; see ``ready``."""
    sets = option_sets(cls.Options, EXTRA.get(cls.name, ()))
    return [ready(cls(options), vocab) for options in sets]


def ready(rule, vocab):
    """The rule, with a random head for this vocabulary where it needs a trained one."""
    return with_head(rule, vocab, HIDDEN)


# -- laws and states -------------------------------------------------------------------------------


def greedy(cases, dtype=torch.float32):
    """The law of the cases at temperature 0."""
    return replace(greedy_law(cases.logits.to(dtype)), hidden=cases.hidden)


def sampled(cases, uniform, temperature, filters=None, target=None):
    """The law at T > 0 with y at ``uniform`` f64[B, N], or with ``target`` i64[B, N] as y.

    [B, R, N] in place of [B, N] repeats each case R times.
    """
    peak = cases.logits.amax(-1)
    scaled = (cases.logits - peak.unsqueeze(-1)) / temperature
    scaled, weight = filtered(scaled, **(filters or {}))
    shape = (uniform if target is None else target).shape

    def repeat(rows, *last):
        rows = rows.unsqueeze(1) if len(shape) == 3 else rows
        return rows.expand(*shape, *last)

    if target is None:
        edges = repeat(weight.double().cumsum(-1), cases.vocab)
        point = uniform.unsqueeze(-1) * edges[..., -1:]
        target = (edges <= point).sum(-1).clamp_max(cases.vocab - 1)
    return Law(
        repeat(cases.logits, cases.vocab),
        repeat(peak),
        target,
        repeat(scaled, cases.vocab),
        repeat(cases.hidden, HIDDEN),
    )


def repeated(tree, times):
    """A batch of trees [B, N] as [B, times, N]."""
    names = ("token", "parent", "depth", "logq")
    arrays = [getattr(tree, name).unsqueeze(1).expand(-1, times, -1) for name in names]
    rows = [
        None if x is None else x.unsqueeze(1).expand(-1, times, -1, -1)
        for x in (tree.q, tree.hidden)
    ]
    return DraftTree(*arrays, tree.max_depth, *rows)


class Noise(Sampler):
    """A sampler that gives every tree of a batch promotion noise of its own.

    Args:
        shape: of the batch of trees, [..., N]. Asked for N numbers it gives so many to each tree;
            other amounts come flat.
    """

    def __init__(self, params, vocab, shape=(), seed=0):
        super().__init__(params, vocab, frozenset(), [0])
        self.shape, self.generator = shape, torch.Generator().manual_seed(seed)

    def promotion_noise(self, n, device=None):
        shape = self.shape if self.shape and n == self.shape[-1] else (n,)
        return torch.rand(shape, generator=self.generator).to(device)


class Table(Noise):
    """A promotion stream that reads a table: [calls, B, N] for a batch, or the part of one tree."""

    def __init__(self, table, vocab):
        super().__init__(SamplingParams(temperature=1.0, seed=0), vocab, table.shape[1:])
        self.table, self.used = table, 0

    def promotion_noise(self, n, device=None):
        """The next numbers: one for each node, or several, the nodes of the batch running fast."""
        if n == self.shape[-1]:
            rows = self.table[self.used]
            self.used += 1
            return rows
        times = n // self.table[0].numel()
        rows = self.table[self.used : self.used + times]
        self.used += times
        return rows.reshape(n)


def rows_of(thing, at):
    """A law or tree with its arrays cut to ``at``: (tree of the batch, slice of nodes), say."""
    arrays = {
        item.name: value[at]
        for item in fields(thing)
        if isinstance(value := getattr(thing, item.name), torch.Tensor)
    }
    return type(thing)(**arrays)


def mask(ids, vocab):
    """bool[V]."""
    out = torch.zeros(vocab, dtype=torch.bool)
    out[list(ids)] = True
    return out


def state_for(rule, vocab, protected=(), temperature=0.0, shape=(), seed=0, memory=None):
    """A request far into its output and inside a thinking section, its memory filled."""
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=10**6)
    ledger = Ledger.start(rule.limits, think_ids=(vocab - 2, vocab - 1))
    ledger.outputs, ledger.in_think = 10_000, True
    sampler = Noise(params, vocab, shape, seed)
    memory = memory_of(rule, vocab) if memory is None else memory
    return VerifyState(mask(protected, vocab), sampler, ledger, mask([1], vocab), memory)


def drawn_tree(rule, cases, times, temperature, generator):
    """[B, times, N]: each tree so many times, with drafts of its own where the rule draws them."""
    tree = repeated(cases.tree, times)
    if not rule.sampled_drafts:
        return tree
    rows = (cases.drafter / temperature).unsqueeze(1)
    return drawn(tree, rows.expand(-1, times, -1, -1), generator=generator)


def uniforms(tree, generator):
    """f64[...]: one number for each depth, shared by its nodes, as the sampler draws them."""
    shape = (*tree.token.shape[:-1], tree.max_depth + 1)
    return torch.rand(shape, generator=generator, dtype=torch.float64).gather(-1, tree.depth)


def law_of_the_root(rule, cases, settings, draws, seed):
    """The root's tokens when each y is given so many draws, under (T, filters, protected).

    Returns i64[B, V, draws] tokens, y along the second dimension; f64[B, V], p_T; and whether the
    rule never did more than put a child in the place of a y that is none.
    """
    temperature, filters, protected = settings
    count, vocab = len(cases.trees), cases.vocab
    generator = torch.Generator().manual_seed(seed)
    tree = drawn_tree(rule, cases, vocab * draws, temperature, generator)
    target = sampled(cases, uniforms(tree, generator), temperature, filters).target
    target[..., 0] = torch.arange(vocab).repeat_interleave(draws)
    law = sampled(cases, None, temperature, filters, target)
    state = state_for(rule, vocab, protected, temperature, target.shape, seed)
    tokens = limited(rule.choose(law, tree, state).tokens, law, rule)[..., 0]
    children = torch.where(tree.parent == 0, tree.token, -1)
    drafted = [(children == x.unsqueeze(-1)).any(-1) for x in (target[..., 0], tokens)]
    promotes = (tokens == target[..., 0]) | (~drafted[0] & drafted[1])
    p = law.scaled[:, 0, 0].double().softmax(-1)
    return tokens.view(count, vocab, draws), p, bool(promotes.all())


def limited(tokens, law, rule):
    """``tokens`` less the promotions that the rule's limits forbid whatever came before."""
    limits = rule.limits
    if limits is None:
        return tokens
    keep = torch.full_like(tokens, limits.max_promotions_per_step != 0, dtype=torch.bool)
    if limits.max_regret is not None:
        keep &= law.drop_of(tokens) <= limits.max_regret
    return torch.where(keep, tokens, law.target)


# -- whole requests --------------------------------------------------------------------------------


@cache
def model_of(seed, vocab, integers):
    return Model(seed, vocab, integers)


class Model:
    """A scripted target and its drafter: rows that depend on the last two tokens."""

    def __init__(self, seed, vocab, integers):
        rng = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        self.vocab = vocab
        self.target = random_logits(rng, vocab * vocab, vocab, integers)
        noise = torch.randn(self.target.shape, generator=generator)
        self.drafter = self.target + 0.8 * noise
        self.hidden = torch.randn(vocab * vocab, HIDDEN, generator=generator)

    def draft(self, rng, rule, prefix, sampler):
        """A tree of at most 10 nodes, or a chain of at most 12, and the row of each node."""
        tokens, parents, logq, laws = [prefix[-1]], [-1], [0.0], []
        rows = [prefix[-2] * self.vocab + prefix[-1]]
        chain = not rule.tree or rng.random() < 0.5
        size, kids = (rng.randint(1, 12), 1) if chain else (rng.randint(1, 10), 3)
        for node in range(size):
            if node == len(tokens):
                break
            count = min(rng.randint(1, kids), size - len(tokens))
            if count < 1:
                continue
            logits = self.drafter[rows[node]][None]
            if rule.sampled_drafts:
                index, logs, law = sampler.draw_drafts(logits, count)
                laws.append((node, law[0]))
            else:
                logs, index = logits.log_softmax(-1).topk(count, -1)
            for token, log in zip(index[0].tolist(), logs[0].tolist(), strict=True):
                rows.append(tokens[node] * self.vocab + token)
                tokens.append(token)
                parents.append(node)
                logq.append(log)
        tree = DraftTree.from_parents(tokens, parents, logq)
        if rule.sampled_drafts:
            q = torch.zeros(tree.num_nodes, self.vocab)
            for node, law in laws:
                q[node] = law
            tree = replace(tree, q=q)
        if rule.draft_hidden:
            tree = replace(tree, hidden=self.hidden[rows].flip(-1))
        return tree, rows


def decode(
    rule, seed, params, steps, protected=(), memory=None, integers=False, vocab=8, spoil=None
):
    """Decode with ``rule`` for so many steps; ``memory`` is left filled.

    ``spoil`` is a step and a number that is no logit; the last node's row holds it there.

    Returns the verdicts, and those of strict on the same trees and laws.
    """
    model, rng = model_of(seed, vocab, integers), random.Random(seed)
    prompt, output, verdicts, strict = [1, 2], [], [], []
    sampler = Sampler(params, model.vocab, frozenset(), prompt)
    state = state_for(rule, vocab, protected, memory={} if memory is None else memory)
    state = replace(state, sampler=sampler)
    for step in range(steps):
        tree, rows = model.draft(rng, rule, [*prompt, *output], sampler)
        logits = model.target[rows]
        if spoil is not None and step == spoil[0]:
            logits[-1, 0] = spoil[1]
        law = sampler.law(logits, tree, output, step)
        choice = rule.choose(replace(law, hidden=model.hidden[rows]), tree, state)
        done = apply_limits(verdict(tree, choice), rule.limits, state.ledger)
        state.ledger.record(done)
        rule.observe(tree, choice, done, state)
        output += done.tokens
        verdicts.append(done)
        own = Choice(law.target, law.target, choice.child_drop, law.target_drop)
        strict.append(verdict(tree, own))
    return verdicts, strict


@cache
def _memory(cls, options, vocab):
    memory = {}
    # Greedy decoding of a scripted target soon goes round in a circle.
    params = SamplingParams(temperature=float(cls.sampling), seed=0, max_tokens=10**6)
    decode(cls(options), 3, params, 200, memory=memory, vocab=vocab)
    return memory


def memory_of(rule, vocab):
    """What the rule remembers after a request; empty for rules without a memory."""
    if type(rule).observe is Rule.observe:
        return {}
    return _memory(type(rule), rule.options, vocab)

"""Requests decoded side by side: by the code for one request, and by the code for batches."""

from collections import deque
from dataclasses import replace

import torch

from adaptivespec.core.law import Law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, Verdict, verdict
from adaptivespec.integrations.sglang.ledgers import Ledgers
from adaptivespec.integrations.sglang.margin import MarginRows, TokenClasses, decide
from adaptivespec.integrations.sglang.sampling import SamplingRows, law_of, promotion_uniforms
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits
from adaptivespec.verify.margin import MarginOptions, MarginRule

V = 12
THINK = (10, 11)
SLOTS, DEPTH, MOST = 40, 5, 60  # slots, levels, output tokens


def mask(*ids, vocab=V):
    """bool[vocab]."""
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
        """More requests, each in a slot of its own."""
        before = len(self.requests)
        self.requests += requests
        self.slots += self.free_slots(len(requests))
        self.admit(range(before, len(self.requests)))

    def free_slots(self, count):
        free = [slot for slot in range(SLOTS) if slot not in self.slots]
        return self.rng.sample(free, count)

    def admit(self, rows):
        """Start the slots, from ledgers with or without the newest token."""
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
        """The law and the decision for these requests, whose trees and logits are given."""
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

"""Slow, obvious versions of what the package does with arrays, and strategies to draw inputs."""

import math
import random

import torch
from hypothesis import settings
from hypothesis import strategies as st

from adaptivespec.core.law import greedy_law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import verdict
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits

# The same examples everywhere, so that a red run is red again.
FAST = settings(deadline=None, derandomize=True, max_examples=80)
SLOW = settings(deadline=None, derandomize=True, max_examples=25)

seeds = st.integers(0, 2**32 - 1)


def random_tree(rng, vocab, max_nodes=12):
    """A random tree whose siblings hold distinct tokens."""
    tokens, parents = [rng.randrange(vocab)], [-1]
    taken = {0: set()}
    for _ in range(rng.randrange(max_nodes)):
        parent = rng.randrange(len(tokens))
        free = [t for t in range(vocab) if t not in taken[parent]]
        if not free:
            continue
        taken[parent].add(token := rng.choice(free))
        taken[len(tokens)] = set()
        tokens.append(token)
        parents.append(parent)
    logq = [0.0] + [-3 * rng.random() for _ in tokens[1:]]
    return DraftTree.from_parents(tokens, parents, logq)


def random_logits(rng, rows, vocab, integers=False, masked=0.0):
    """[rows, vocab]; integers give many exact ties, ``masked`` is the share of -inf entries."""
    generator = torch.Generator().manual_seed(rng.randrange(2**32))
    if integers:
        z = torch.randint(-4, 5, (rows, vocab), generator=generator).float()
    else:
        z = torch.randn(rows, vocab, generator=generator) * 2
    mask = torch.rand(rows, vocab, generator=generator) < masked
    mask[:, rng.randrange(vocab)] = False
    return z.masked_fill(mask, -math.inf)


def random_law(rng, rows, vocab, **kwargs):
    """A greedy or a sampled law, by chance."""
    z = random_logits(rng, rows, vocab, **kwargs)
    if rng.random() < 0.5:
        return greedy_law(z)
    uniform = torch.tensor([rng.random() for _ in range(rows)], dtype=torch.float64)
    filters = rng.choice([{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1}])
    return sampled_law(z, uniform, rng.choice([0.3, 1.0, 2.0]), **filters)


def random_mask(rng, vocab, share=0.2):
    """bool[vocab]."""
    return torch.tensor([rng.random() < share for _ in range(vocab)])


def parents_of(tree):
    return tree.parent.tolist()


def children(tree, node):
    return [i for i, parent in enumerate(parents_of(tree)) if i > 0 and parent == node]


def path_to(tree, node):
    """Node ids from the root to ``node``."""
    parents, path = parents_of(tree), [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def walk(tree, tokens):
    """The followed path and the bonus, by hand."""
    token, node, path = tree.token.tolist(), 0, [0]
    while True:
        following = [c for c in children(tree, node) if token[c] == int(tokens[node])]
        if not following:
            return path, int(tokens[node])
        (node,) = following
        path.append(node)


def eligible(law, tree, node, kappa, protected):
    """The eligible children of a node, from the definition of the margin rule."""
    token, out = tree.token.tolist(), []
    limit = math.inf if kappa == 0 else float(torch.tensor(-math.log(kappa), dtype=torch.float32))
    for child in children(tree, node):
        drop = float(law.peak[node] - law.logits[node, token[child]].float())
        legal = law.scaled is None or float(law.scaled[node, token[child]]) > -math.inf
        if drop < limit and legal and not protected[token[child]]:
            out.append(child)
    return out


def margin_tokens(law, tree, kappa, protected, noise=None):
    """What the margin rule rewrites, node by node."""
    token, out = tree.token.tolist(), []
    for node in range(tree.num_nodes):
        y = int(law.target[node])
        exact = any(token[c] == y for c in children(tree, node))
        allowed = eligible(law, tree, node, kappa, protected)
        if exact or protected[y] or not allowed:
            out.append(y)
            continue
        if law.scaled is None:
            best = max(allowed, key=lambda c: (float(law.logits[node, token[c]]), -c))
        else:
            logp = {c: float(law.logp[node, token[c]]) for c in allowed}
            gumbel = {c: -math.log(-math.log(max(float(noise[c]), 2**-25))) for c in allowed}
            best = max(allowed, key=lambda c: logp[c] + gumbel[c])
        out.append(token[best])
    return out


def bare_state(params, vocab, protected=None, prompt=(0,), limits=None):
    """A VerifyState of a new request."""
    if protected is None:
        protected = torch.zeros(vocab, dtype=torch.bool)
    sampler = Sampler(params, vocab, frozenset(), prompt)
    return VerifyState(protected, sampler, Ledger.start(limits))


class Target:
    """A scripted target: logits that depend on the last two tokens, in a fixed random way."""

    def __init__(self, seed, vocab=16, integers=False):
        rng = random.Random(seed)
        self.vocab = vocab
        self.table = random_logits(rng, vocab * vocab, vocab, integers)

    def rows(self, prefix, tree):
        """[N, V]: the logits after prefix + the path of each node (the root ends the prefix)."""
        token, rows = tree.token.tolist(), []
        for node in range(tree.num_nodes):
            context = list(prefix) + [token[i] for i in path_to(tree, node)[1:]]
            rows.append(context[-2] * self.vocab + context[-1])
        return self.table[rows]


def generate(target, rule, params, draft, steps, prompt=(1, 2), protected=None):
    """Decode ``steps`` steps; ``draft(root)`` gives each tree. Returns the verdicts."""
    state = bare_state(params, target.vocab, protected, prompt, rule.limits)
    output, verdicts = [], []
    for step in range(steps):
        prefix = [*prompt, *output]
        tree = draft(prefix[-1])
        law = state.sampler.law(target.rows(prefix, tree), tree, output, step)
        done = verdict(tree, rule.choose(law, tree, state))
        done = apply_limits(done, rule.limits, state.ledger)
        state.ledger.record(done)
        output += done.tokens
        verdicts.append(done)
    return verdicts


def drafter(seed, vocab=16, max_nodes=12):
    """A scripted drafter of random trees."""
    rng = random.Random(seed)

    def draft(root):
        tree = random_tree(rng, vocab, max_nodes)
        tree.token[0] = root
        return tree

    return draft


def plain(root):
    """The drafter of plain decoding."""
    return DraftTree.root_only(root)


def tokens_of(verdicts):
    return [token for done in verdicts for token in done.tokens]


def sampling_of(rng):
    """Greedy or random sampling parameters with a seed."""
    choices = [
        {},
        {"temperature": 0.7},
        {"temperature": 1.5, "top_p": 0.9},
        {"temperature": 1.0, "top_k": 4, "frequency_penalty": 0.5},
        {"repetition_penalty": 1.3, "presence_penalty": 0.4},
    ]
    return SamplingParams(seed=rng.randrange(100), max_tokens=10**6, **rng.choice(choices))

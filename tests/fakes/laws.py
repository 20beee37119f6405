"""Small laws and trees for tests of verification rules; vocabulary 8."""

import random
from dataclasses import replace

import torch

from adaptivespec.core.law import Law, greedy_law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from property.naive_reference import random_logits, random_tree

V = 8


def mask(ids):
    """bool[V]."""
    out = torch.zeros(V, dtype=torch.bool)
    out[list(ids)] = True
    return out


def state(protected=()):
    """The state of a new request."""
    return VerifyState(mask(protected), Sampler(SamplingParams(seed=0), V, frozenset(), [0]))


def star(*children):
    """A root with these children, in draft order."""
    return DraftTree.from_parents([7, *children], [-1] + [0] * len(children))


def rows(tree, *values, fill=-20.0):
    """f32[N, V]: one row for each node, or the same for all, filled up on the right."""
    many = values if isinstance(values[0], list | tuple) else [values] * tree.num_nodes
    return torch.tensor([[*row, *[fill] * (V - len(row))] for row in many])


def probabilities(tree, *values):
    """Logits whose softmax is ``values``, see ``rows``; what is left out is impossible."""
    return rows(tree, *values, fill=0.0).log()


def drawn(z, y, temperature=1.0, **filters):
    """The law at T > 0 with y (one for all nodes, or one for each) as the tokens drawn."""
    law = sampled_law(z, torch.zeros(len(z), dtype=torch.float64), temperature, **filters)
    return replace(law, target=torch.tensor(y).expand(len(z)).clone())


def choose(spec, law, tree, protected=()):
    """i64[N] as a list: what the rule rewrites."""
    return make_rule(spec).choose(law, tree, state(protected)).tokens.tolist()


def random_case(seed, greedy, integers=False, masked=0.0):
    """A random tree, a law of it and a protected set."""
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    z = random_logits(rng, tree.num_nodes, V, integers, masked)
    if greedy:
        law = greedy_law(z)
    else:
        uniform = torch.tensor([rng.random() for _ in range(len(z))], dtype=torch.float64)
        filters = rng.choice([{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1}])
        law = sampled_law(z, uniform, rng.choice([0.5, 1.0, 2.0]), **filters)
    return tree, law, [token for token in range(V) if rng.random() < 0.15]


def stacked(trees, laws):
    """Trees and laws as one batch; rows of padding hold what must not matter."""
    batch = DraftTree.pad_stack(trees)
    size = batch.num_nodes

    def stack(name, fill):
        parts = [getattr(law, name) for law in laws]
        if parts[0] is None:
            return None
        out = torch.full((len(parts), size, *parts[0].shape[1:]), fill, dtype=parts[0].dtype)
        for row, part in enumerate(parts):
            out[row, : len(part)] = part
        return out

    law = Law(stack("logits", 3.0), stack("peak", 3.0), stack("target", 0), stack("scaled", 0.0))
    return batch, law


def batch_equals_singles(spec, seeds, greedy):
    """Whether a rule without random numbers chooses in a batch what it chooses alone."""
    cases = [random_case(seed, greedy, integers=seed % 2 == 0) for seed in seeds]
    batch, law = stacked([case[0] for case in cases], [case[1] for case in cases])
    together = make_rule(spec).choose(law, batch, state(cases[0][2])).tokens
    return all(
        together[row, : tree.num_nodes].tolist() == choose(spec, one, tree, cases[0][2])
        for row, (tree, one, _) in enumerate(cases)
    )

"""What ``Rule.choose`` allocates, and that it never waits for the device: every registered rule.

At temperature 0 a rule reads the raw logits [B, N, V] where they lie. One that reads margins alone
allocates a few numbers for each pair of nodes. One that reads more of a row works through blocks of
rows, so that what it allocates does not grow with the rows.
"""

import random
from dataclasses import replace

import pytest
import torch
from rule_cases import ready, state_for, uniforms
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tree_cases import HIDDEN, cases_for, drawn, small_tree

from adaptivespec.core.law import greedy_law, sampled_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.verify import RULES

aten = torch.ops.aten
NODES, VOCAB = 64, 32768
BATCH = 4  # 256 rows, more than a block of them
LOGITS = BATCH * NODES * VOCAB * 2  # bytes in bfloat16
# Operators whose result the host must read before it can go on.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero")

every_rule = pytest.mark.parametrize("name", RULES.names())


def greedy_case(cls, batch):
    """(law, tree) of a batch of trees of 64 nodes over a vocabulary of 32768."""
    rng = random.Random(0)
    tree = DraftTree.pad_stack([small_tree(rng, VOCAB, NODES, NODES) for _ in range(batch)])
    shape = (batch, NODES)
    if cls.draft_hidden:
        tree = replace(tree, hidden=torch.randn(*shape, HIDDEN))
    generator = torch.Generator().manual_seed(0)
    logits = torch.empty(*shape, VOCAB, dtype=torch.bfloat16).normal_(generator=generator)
    return replace(greedy_law(logits), hidden=torch.randn(*shape, HIDDEN)), tree


def peak_bytes(work):
    """Most bytes that ``work()`` held at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = record.profiler.kineto_results.events()
    held = most = 0
    for _, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        held += size
        most = max(most, held)
    return most


def test_the_peak_is_measured():
    z = torch.zeros(1000, dtype=torch.float32)
    assert peak_bytes(lambda: (z * 2).sum()) in range(4000, 4200)


@every_rule
def test_logits_are_not_copied_at_temperature_zero(name):
    cls = RULES.load(name)
    rule = ready(cls(), VOCAB)
    state = state_for(rule, VOCAB, memory={})
    peaks = []
    for batch in (BATCH, 2 * BATCH):
        law, tree = greedy_case(cls, batch)
        peaks.append(peak_bytes(lambda law=law, tree=tree: rule.choose(law, tree, state)))
    if cls.signals == "margins":
        assert peaks[1] <= 64 * 2 * BATCH * NODES**2
    else:
        assert peaks[1] - peaks[0] <= LOGITS / 20, [peak / LOGITS for peak in peaks]


def test_waiting_is_noticed():
    x = torch.arange(3.0)
    for wait in (lambda: x[x > 1], lambda: x.max().item(), lambda: bool(x.any()), x.nonzero):
        with Operators() as operators:
            wait()
        assert waiting(operators)


def waiting(operators):
    return [x for x in operators.names if any(word in x for word in WAITING)]


class Operators(TorchDispatchMode):
    """Notes the name of every operator that is run, and of an index by a mask."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masks = [x for x in tree_leaves(args[1:2]) if getattr(x, "dtype", None) is torch.bool]
        by_mask = masks and func.overloadpacket in (aten.index, aten.index_put, aten.index_put_)
        self.names.append("nonzero of a mask" if by_mask else str(func))
        return func(*args, **(kwargs or {}))


@every_rule
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_choosing_never_waits_for_the_device(name, temperature):
    cls = RULES.load(name)
    if temperature and not cls.sampling:
        pytest.skip("defined at temperature 0 only")
    cases = cases_for(cls, 31, 12, 8)
    tree, law = cases.tree, greedy_law(cases.logits)
    if temperature:
        generator = torch.Generator().manual_seed(0)
        if cls.sampled_drafts:
            tree = drawn(tree, cases.drafter, generator=generator)
        law = sampled_law(cases.logits, uniforms(tree, generator), temperature)
    law = replace(law, hidden=cases.hidden)
    rule = ready(cls(), 8)
    state = state_for(rule, 8, (), temperature, tree.token.shape)
    rule.choose(law, tree, state)  # what is loaded or moved once
    with Operators() as operators:
        rule.choose(law, tree, state)
    assert waiting(operators) == []

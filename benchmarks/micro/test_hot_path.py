"""Seconds of what a step does besides the models: the law, the rule, the walk, and the plan.

Logits of the largest case take 1.2 GB in bfloat16 and 2.5 GB in float32; there is one buffer, and a
case that does not fit is skipped with a reason. One thread, temperature 0, default options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from adaptivespec import Engine
from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.core.law import Law, greedy_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import follow, verdict
from adaptivespec.draft.growth import Growth
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.policy.base import Signals
from adaptivespec.policy.costs import CostProfile
from adaptivespec.verify import RULES
from adaptivespec.verify.base import Rule, VerifyState
from fakes.random_head import with_head

pytest.importorskip("pytest_benchmark")
torch.set_num_threads(1)

HIDDEN = 576  # of the embedded target
DEPTH = 8
COSTS = CostProfile.parse("bench:verify=[[1,42],[16,52],[64,80]],draft=3,overhead=1")
FAST = ("strict", "margin")
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
CASES = [
    (dtype, vocab, batch, nodes)
    for dtype in DTYPES
    for vocab in (32_000, 151_936)
    for batch in (1, 16, 64)
    for nodes in (8, 64)
]


def timed(group: str) -> pytest.MarkDecorator:
    return pytest.mark.benchmark(group=group, min_rounds=5, max_time=0.25, warmup=False)


class Buffer:
    """One block of memory for all logits, filled with random numbers by copies of a smaller block.

    Equal values repeat; no row shares memory with another.
    """

    def __init__(self) -> None:
        self.rows = torch.empty(0)

    def logits(self, dtype: torch.dtype, *shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        if self.rows.dtype != dtype or self.rows.numel() < size:
            self.rows = torch.empty(0)  # the old block goes first
            need, free = size * dtype.itemsize, available()
            if free < 1.3 * need:
                pytest.skip(f"{need / 1e9:.1f} GB of logits, {free / 1e9:.1f} GB of memory")
            self.rows = torch.empty(size, dtype=dtype)
        block = noise().to(dtype)
        out = self.rows[:size]
        for start in range(0, size, block.numel()):
            part = out[start : start + block.numel()]
            part.copy_(block[: part.numel()])
        return out.view(shape)


@cache
def noise() -> Tensor:
    return torch.randn(2**24, generator=torch.Generator().manual_seed(0))


def available() -> float:
    """Bytes of memory that may be had."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if "MemAvailable" in line)


BUFFER = Buffer()


def tree_of(cls: type[Rule], vocab: int, batch: int, nodes: int) -> DraftTree:
    """Trees of at most 8 levels, each as wide as the others, with tokens from all over."""
    width, trees = -(-(nodes - 1) // DEPTH), []
    for row in range(batch):
        tokens, parents = [0], [-1]
        for node in range(1, nodes):
            level, place = divmod(node - 1, width)
            above = 1 + (level - 1) * width + (5 * place + row) % width
            parents.append(above if level else 0)
            tokens.append((7919 * node + 104729 * row) % (vocab // nodes) * nodes + node)
        trees.append(DraftTree.from_parents(tokens, parents, [0.0] + [-1.0] * (nodes - 1)))
    tree = DraftTree.pad_stack(trees) if batch > 1 else trees[0]
    if cls.draft_hidden:
        tree = replace(tree, hidden=torch.randn(*tree.token.shape, HIDDEN))
    return tree


def case_of(
    cls: type[Rule], dtype: str, vocab: int, batch: int, nodes: int
) -> tuple[DraftTree, Law]:
    """A tree whose first children are the target's choice at two nodes of three, and its law."""
    tree = tree_of(cls, vocab, batch, nodes)
    z = BUFFER.logits(DTYPES[dtype], *tree.token.shape, vocab)
    rows, heads = z.view(-1, nodes, vocab), tree.token.view(-1, nodes)
    for row, parents in enumerate(tree.parent.view(-1, nodes).tolist()):
        for node in range(0, nodes, 3):
            if node in parents:
                rows[row, node, heads[row, parents.index(node)]] = 20.0
    hidden = torch.randn(*tree.token.shape, HIDDEN) if cls.signals == "hidden" else None
    return tree, replace(greedy_law(z), hidden=hidden)


def state_of(vocab: int) -> VerifyState:
    protected = torch.zeros(vocab, dtype=torch.bool)
    protected[:4] = True
    return VerifyState(protected, Sampler(SamplingParams(), vocab, frozenset(), [0]))


def step_of(name: str, dtype: str, vocab: int, batch: int, nodes: int) -> Callable[[], object]:
    """Choose and follow, as a step does it: nothing cached on the tree or the law; the verdict of a
    single tree is brought to the host."""
    cls = RULES.load(name)
    rule, state = with_head(cls(), vocab, HIDDEN), state_of(vocab)
    tree, law = case_of(cls, dtype, vocab, batch, nodes)
    if batch == 1:
        for _ in range(4):  # what the rule remembers
            choice = rule.choose(law, tree, state)
            rule.observe(tree, choice, verdict(tree, choice), state)

    def step() -> object:
        fresh = replace(tree)
        choice = rule.choose(replace(law), fresh, state)
        return verdict(fresh, choice) if batch == 1 else follow(fresh, choice.tokens)

    step()
    return step


@timed("law: argmax of every row")
@pytest.mark.parametrize(("dtype", "vocab", "batch", "nodes"), CASES)
def test_law(benchmark, dtype, vocab, batch, nodes):
    z = BUFFER.logits(DTYPES[dtype], batch, nodes, vocab)
    benchmark(greedy_law, z)


@timed("rule: choose and follow")
@pytest.mark.parametrize(("dtype", "vocab", "batch", "nodes"), CASES)
@pytest.mark.parametrize("name", FAST)
def test_rule(benchmark, name, dtype, vocab, batch, nodes):
    benchmark(step_of(name, dtype, vocab, batch, nodes))


@timed("other rules: choose and follow")
@pytest.mark.parametrize(
    ("dtype", "vocab", "batch", "nodes"), [case for case in CASES if case[2] <= 16]
)
@pytest.mark.parametrize("name", [name for name in RULES.names() if name not in FAST])
def test_other_rule(benchmark, name, dtype, vocab, batch, nodes):
    benchmark(step_of(name, dtype, vocab, batch, nodes))


@timed("policy: plan")
@pytest.mark.parametrize("name", POLICIES.names())
def test_plan(benchmark, name):
    policy = policy_of(name)
    benchmark(policy.plan, SIGNALS)


@timed("policy: plan, and growing what it asks for to 5 levels")
@pytest.mark.parametrize("name", POLICIES.names())
def test_plan_and_growth(benchmark, name):
    policy = policy_of(name)
    logq, tokens = offers()

    def draft() -> object:
        plan = policy.plan(SIGNALS)
        growth = Growth(1, plan)
        while not growth.stopped:
            width, k = growth.width, plan.topk
            growth.expand(tokens[:width, :k], logq[:width, :k])
        return growth.draft()

    benchmark(draft)


@timed("verify pass of the embedded target")
@pytest.mark.parametrize("nodes", [1, 16, 64])
def test_verify_pass(benchmark, nodes):
    """What all of the above is to be small beside."""
    try:
        engine = Engine.from_pretrained(threads=1, local_files_only=True)
    except AdaptiveSpecError as error:
        pytest.skip(f"needs the embedded model: {error}")
    session = engine.session()
    session.begin(engine.tokenizer.encode("A baker sells 24 muffins a day."), False)
    tree = tree_of(RULES.load("strict"), 32_000, 1, nodes)
    with torch.inference_mode():
        benchmark(engine.target.verify, session.cache, tree)


SIGNALS = Signals(0.6, output_len=32, remaining=6, context_len=128)


def policy_of(name: str):
    policy = make_policy(name)
    if policy.needs_costs:
        policy.costs = COSTS
    policy.begin()
    policy.plan(SIGNALS)  # some compute a tree once
    return policy


@cache
def offers() -> tuple[Tensor, Tensor]:
    """log q and tokens of 64 children of 64 nodes, likeliest first."""
    generator = torch.Generator().manual_seed(0)
    logq = (2 * torch.randn(64, 512, generator=generator)).log_softmax(-1)
    top = logq.topk(64)
    return top.values, top.indices

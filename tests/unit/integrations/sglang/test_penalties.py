import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import follow
from adaptivespec.integrations.sglang.penalties import (
    Penalties,
    PenaltyCounts,
    PenaltyRows,
    apply,
    penalties_of,
)

V, SLOTS = 11, 9
FAST = settings(deadline=None, derandomize=True, max_examples=60)
seeds = st.integers(0, 2**32 - 1)

# Multiples of 1/4 sum without rounding, so the reference may add them up one by one.
penalties = st.builds(
    Penalties,
    frequency=st.sampled_from([0.0, 0.5, 1.25, -0.75]),
    presence=st.sampled_from([0.0, 0.5, -1.0]),
    repetition=st.sampled_from([1.0, 1.3, 0.7]),
    min_new_tokens=st.sampled_from([0, 3, 6]),
    stop_ids=st.sampled_from([(), (3,), (0, 5, 7)]),
)
batches = st.lists(st.one_of(st.just(Penalties()), penalties), min_size=1, max_size=4)


def plain(z, output, own):
    """One row of logits [V] as SGLang's plain decoding penalises it, token after token."""
    frequency, presence, scale = torch.zeros(V), torch.zeros(V), torch.ones(V)
    for token in output:
        frequency[token] += own.frequency
        presence[token] = own.presence
        scale[token] = own.repetition
    z = z.clone()
    z += -frequency - presence
    z[:] = torch.where(z < 0, z * scale, z / scale)
    if len(output) < own.min_new_tokens:
        z[list(own.stop_ids)] = -math.inf
    return z


def random_tree(rng, size, start=None):
    """``size`` nodes; the first are the chain ``start``. Few tokens, so that paths repeat them."""
    tokens = list(start or [rng.randrange(V)])
    parents = list(range(-1, len(tokens) - 1))
    while len(tokens) < size:
        parent, token = rng.randrange(len(tokens)), rng.randrange(4)
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    return DraftTree.from_parents(tokens, parents)


def path_tokens(tree, node):
    """Tokens from the root to ``node``."""
    token, parent, path = tree.token.tolist(), tree.parent.tolist(), []
    while node >= 0:
        path.insert(0, token[node])
        node = parent[node]
    return path


def stack(trees):
    fields = ("token", "parent", "depth", "logq")
    arrays = [torch.stack([getattr(tree, field) for tree in trees]) for field in fields]
    return DraftTree(*arrays, max_depth=max(tree.max_depth for tree in trees))


class Batch:
    """Requests in slots with some output before the root, each with its own tree."""

    def __init__(self, rng, penalties, nodes=6, dtype=torch.float32):
        self.penalties = penalties
        self.size = len(penalties)
        self.outputs = [[rng.randrange(V) for _ in range(rng.randrange(7))] for _ in penalties]
        self.trees = [random_tree(rng, nodes) for _ in penalties]
        self.slots = rng.sample(range(1, SLOTS), self.size)
        generator = torch.Generator().manual_seed(rng.randrange(2**32))
        self.logits = (3 * torch.randn(self.size, nodes, V, generator=generator)).to(dtype)

    def counts(self):
        counts = PenaltyCounts(SLOTS, V, "cpu")
        for slot, own, output in zip(self.slots, self.penalties, self.outputs, strict=True):
            counts.admit(slot, own, output)
        return counts

    def arguments(self, counts=None):
        """Everything that ``apply`` takes; the logits are a fresh copy."""
        return (
            self.logits.flatten(0, 1).clone(),
            stack(self.trees),
            PenaltyRows.of(self.penalties, V, "cpu"),
            counts or self.counts(),
            torch.tensor(self.slots),
            torch.tensor([len(output) + 1 for output in self.outputs]),
        )

    def applied(self):
        logits, *rest = self.arguments()
        apply(logits, *rest)
        return logits.view_as(self.logits)

    def expected(self):
        """[B, N, V], node by node."""
        return torch.stack(
            [
                torch.stack(
                    [
                        plain(row, output + path_tokens(tree, node), own)
                        for node, row in enumerate(logits)
                    ]
                )
                for logits, output, tree, own in zip(
                    self.logits, self.outputs, self.trees, self.penalties, strict=True
                )
            ]
        )


@FAST
@given(seeds, batches, st.sampled_from([torch.float32, torch.bfloat16]))
def test_every_node_is_penalised_by_its_own_path(seed, own, dtype):
    batch = Batch(random.Random(seed), own, dtype=dtype)
    assert torch.equal(batch.applied(), batch.expected())


@FAST
@given(seeds, batches)
def test_a_batch_equals_its_requests_alone(seed, own):
    batch = Batch(random.Random(seed), own)
    for row, got in enumerate(batch.applied()):
        alone = Batch(random.Random(seed), own)
        for name in ("penalties", "outputs", "trees", "slots"):
            setattr(alone, name, getattr(batch, name)[row : row + 1])
        alone.logits = batch.logits[row : row + 1]
        assert torch.equal(alone.applied()[0], got)


@FAST
@given(
    seeds,
    st.sampled_from(
        [
            {"frequency_penalty": 0.7, "presence_penalty": -0.3, "min_tokens": 5},
            {"repetition_penalty": 1.3, "min_tokens": 4},
            {"min_tokens": 6},
        ]
    ),
)
def test_agrees_with_our_own_sampler_where_the_meanings_do(seed, options):
    """With an empty prompt, and no repetition penalty beside the others, whose order differs."""
    sampling = SamplingParams(**options, stop_token_ids=(2, 8))
    own = Penalties(
        sampling.frequency_penalty,
        sampling.presence_penalty,
        sampling.repetition_penalty,
        sampling.min_tokens,
        sampling.stop_token_ids,
    )
    batch = Batch(random.Random(seed), [own])
    sampler = Sampler(sampling, V, frozenset(), prompt_ids=[])
    root = batch.trees[0].token[:1].tolist()
    want = sampler.law(batch.logits[0], batch.trees[0], batch.outputs[0] + root, 0).logits
    assert torch.allclose(batch.applied()[0], want, rtol=1e-6, atol=1e-6)


def test_repetition_leaves_the_prompt_alone_and_comes_last():
    logits, counts = torch.tensor([[1.0, 1.0, -1.0]]), PenaltyCounts(2, 3, "cpu")
    own = Penalties(frequency=0.5, repetition=2.0)
    counts.admit(1, own, [0])
    rows, slots = PenaltyRows.of([own], 3, "cpu"), torch.tensor([1])
    apply(logits, stack([DraftTree.root_only(2)]), rows, counts, slots, torch.tensor([2]))
    assert logits.tolist() == [[0.25, 1.0, -3.0]]


def test_penalised_requests_leave_their_neighbours_bitwise_alone():
    batch = Batch(random.Random(1), [Penalties(), Penalties(1.0, repetition=1.3), Penalties()])
    batch.logits[0, 0, 0] = math.nan
    batch.logits[2, 1, 4] = -0.0
    applied = batch.applied()
    for row in (0, 2):
        assert torch.equal(applied[row].view(torch.int32), batch.logits[row].view(torch.int32))
    assert not torch.equal(applied[1], batch.logits[1])


def test_masked_logits_stay_masked():
    own = Penalties(frequency=-2.0, presence=-1.0, repetition=0.5)
    batch = Batch(random.Random(2), [own])
    batch.logits[:] = -math.inf
    assert torch.equal(batch.applied(), batch.logits)


def test_no_stop_before_min_new_tokens():
    own = Penalties(min_new_tokens=4, stop_ids=(1, 7, V + 3))
    tree = stack([DraftTree.chain([0, 2, 2, 2])])
    logits, slots = torch.ones(4, V), torch.tensor([3])
    rows = PenaltyRows.of([own], V, "cpu")
    # Positions 2, 3, 4, 5: with 2, 3, 4 and 5 tokens before them.
    apply(logits, tree, rows, PenaltyCounts(SLOTS, V, "cpu"), slots, torch.tensor([2]))
    assert logits[:, 1].tolist() == [-math.inf, -math.inf, 1.0, 1.0]
    assert logits[:, 7].tolist() == [-math.inf, -math.inf, 1.0, 1.0]
    assert bool((logits[:, [0, 2, 3, 4, 5, 6, 8, 9, 10]] == 1).all())


def test_nothing_is_done_without_penalties():
    batch = Batch(random.Random(3), [Penalties(), Penalties(min_new_tokens=9)])
    logits, tree, rows, counts, *rest = batch.arguments()
    assert not rows.any
    apply(logits, tree, rows, counts, *rest)
    assert torch.equal(logits, batch.logits.flatten(0, 1))
    assert counts._counts.shape == (1, V)


def test_logits_of_another_width_are_refused():
    batch = Batch(random.Random(4), [Penalties(1.0)])
    logits, *rest = batch.arguments()
    with pytest.raises(ValueError, match=r"shape \(6, 11\), got \(6, 10\)"):
        apply(logits[:, 1:], *rest)


# Several rounds in a row.


def says(seed, context):
    """f32[V]: what a toy target says; it likes to repeat itself."""
    generator = torch.Generator().manual_seed(hash((seed, *context[-2:])) % 2**63)
    z = torch.randn(V, generator=generator)
    z[context[-3:]] += 1.5
    return z


class Request:
    """One request of a toy server, with its slot as in SGLang's pool."""

    def __init__(self, seed, own, slot):
        self.seed, self.own, self.slot = seed, own, slot
        self.output, self.plain = [], []

    def next_token(self, output):
        """What plain decoding says after ``output``."""
        return int(plain(says(self.seed, output), output, self.own).argmax())

    def plain_decoding(self, count):
        while len(self.plain) < count:
            self.plain.append(self.next_token(self.plain))
        return self.plain[:count]

    def prefill(self, counts):
        counts.admit(self.slot, self.own, self.output)
        self.output.append(self.next_token(self.output))

    def tree(self, rng, size):
        """Some of what plain decoding says next, among other drafts."""
        known = self.plain_decoding(len(self.output) + rng.randrange(size))
        return random_tree(rng, size, [self.output[-1], *known[len(self.output) :]])

    def logits(self, tree):
        before = self.output[:-1]
        paths = [before + path_tokens(tree, node) for node in range(tree.num_nodes)]
        return torch.stack([says(self.seed, path) for path in paths])


def verify_round(rng, requests, counts):
    """Draft, penalise, walk and record, as the worker does; returns the followed drafts."""
    trees = [request.tree(rng, 5) for request in requests]
    logits = torch.cat(
        [request.logits(tree) for request, tree in zip(requests, trees, strict=True)]
    )
    tree = stack(trees)
    slots = torch.tensor([request.slot for request in requests])
    position = torch.tensor([len(request.output) for request in requests])
    rows = PenaltyRows.of([request.own for request in requests], V, "cpu")
    apply(logits, tree, rows, counts, slots, position)
    followed = follow(tree, logits.argmax(-1).view(tree.token.shape))
    tokens = tree.token.gather(-1, followed.path.clamp_min(0)).where(followed.path >= 0, -1)
    counts.record(slots, tokens)
    for request, drafts, bonus in zip(
        requests, tokens.tolist(), followed.bonus.tolist(), strict=True
    ):
        request.output += [token for token in drafts[1:] if token >= 0] + [bonus]
    return int(followed.length.sum()) - len(requests)


def check(requests):
    for request in requests:
        assert request.output == request.plain_decoding(len(request.output))


@FAST
@given(seeds, batches)
def test_strict_verification_equals_plain_decoding(seed, own):
    rng, counts = random.Random(seed), PenaltyCounts(SLOTS, V, "cpu")
    requests = [Request(seed % 1000 + i, one, slot=i + 1) for i, one in enumerate(own)]
    for request in requests:
        request.prefill(counts)
    accepted = sum(verify_round(rng, requests, counts) for _ in range(5))
    check(requests)
    assert accepted > 0


@settings(FAST, max_examples=25)
@given(seeds, batches)
def test_requests_come_and_go_and_come_back(seed, own):
    rng, counts = random.Random(seed), PenaltyCounts(SLOTS, V, "cpu")
    waiting = [Request(seed % 1000 + i, one, slot=0) for i, one in enumerate(own * 3)]
    free, running, everyone = list(range(1, 6)), [], list(waiting)
    for _ in range(8):
        while waiting and free:
            request = waiting.pop(0)
            request.slot = free.pop(rng.randrange(len(free)))
            request.prefill(counts)
            running.append(request)
        verify_round(rng, running, counts)
        leaving = running.pop(rng.randrange(len(running)))
        free.append(leaving.slot)
        if rng.random() < 0.5:  # or else the slot's next request takes the row over
            counts.release(leaving.slot)
        if rng.random() < 0.5 or not (running or waiting):  # retracted
            waiting.append(leaving)
    check(everyone)


def test_a_round_that_was_launched_before_its_request_ended_does_no_harm():
    counts, own = PenaltyCounts(SLOTS, V, "cpu"), Penalties(1.0)
    counts.admit(1, own, [])
    counts.release(1)
    counts.admit(2, own, [4, 4])
    counts.record(torch.tensor([1, 2]), torch.tensor([[3, 3], [5, -1]]))
    assert counts.of(torch.tensor([1, 2])).tolist() == [
        [0] * V,
        [0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0],
    ]


def test_rows_are_made_on_demand_and_reused():
    counts, own = PenaltyCounts(100, V, "cpu"), Penalties(presence=1.0)
    counts.admit(7, Penalties(min_new_tokens=3, stop_ids=(1,)), [2])
    counts.record(torch.tensor([7]), torch.tensor([[1]]))
    assert counts._counts.shape[0] == 1
    for slot in range(100):
        counts.admit(slot, own, [slot % V])
    assert counts._counts.shape[0] == 101
    counts.release(50)
    counts.release(50)
    counts.admit(50, own, [])
    assert counts._counts.shape[0] == 101
    expected = torch.nn.functional.one_hot(torch.arange(100) % V, V)
    expected[50] = 0
    assert torch.equal(counts.of(torch.arange(100)).long(), expected)


# What a round must not do.


class NoSync(TorchDispatchMode):
    """Fails where the host waits for the device, or sends it something."""

    BANNED = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert not any(name.startswith(banned) for banned in self.BANNED), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("others", [0, 2])
def test_a_round_never_waits_for_the_device(others):
    own = Penalties(1.0, 0.5, 1.3, min_new_tokens=9, stop_ids=(1, 2))
    batch = Batch(random.Random(5), [own, *[Penalties()] * others])
    arguments = batch.arguments()
    _, tree, _, counts, slots, _ = arguments
    with NoSync():
        apply(*arguments)
        counts.record(slots, tree.token)


class Allocations(TorchDispatchMode):
    """Counts the new arrays with at least ``size`` entries."""

    def __init__(self, size):
        super().__init__()
        self.size, self.seen, self.made = size, set(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if _is_array(leaf)}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if _is_array(leaf) and leaf.untyped_storage().data_ptr() not in known:
                self.made += leaf.numel() >= self.size
        return out


def _is_array(leaf):
    return isinstance(leaf, torch.Tensor)


@pytest.mark.parametrize(("own", "most"), [(Penalties(1.0, 0.5), 0), (Penalties(1.0, 0.5, 1.3), 1)])
def test_no_copies_of_the_logits(own, most):
    own = replace(own, min_new_tokens=9, stop_ids=(1, 2))
    batch = Batch(random.Random(6), [own] * 3)
    arguments = batch.arguments()
    with Allocations(size=batch.logits.numel()) as allocations:
        apply(*arguments)
    assert allocations.made <= most


# The host's request.


def request_of(stop=None, eos=None, tokenizer=None, **params):
    named = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
    named |= {"min_new_tokens": 0, "stop_token_ids": stop, **params}
    return SimpleNamespace(
        sampling_params=SimpleNamespace(**named), eos_token_ids=eos, tokenizer=tokenizer
    )


def test_a_request_names_its_penalties():
    tokenizer = SimpleNamespace(additional_stop_token_ids={9}, eos_token_id=2)
    got = penalties_of(request_of({7}, {2, 3}, tokenizer, frequency_penalty=0.5, min_new_tokens=4))
    assert got == Penalties(0.5, 0.0, 1.0, 4, (2, 3, 7, 9))
    assert got.any
    assert got.counted


def test_a_request_without_penalties_or_tokenizer():
    tokenizer = SimpleNamespace(additional_stop_token_ids=None, eos_token_id=None)
    for request in (request_of(), request_of(tokenizer=tokenizer)):
        assert penalties_of(request) == Penalties()
        assert not penalties_of(request).any

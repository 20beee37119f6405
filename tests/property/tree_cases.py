"""Random padded batches of small trees, with the logits and hidden states at their nodes."""

import math
import random
from dataclasses import dataclass, replace
from functools import cache

import torch
from naive_reference import random_logits

from adaptivespec.core.tree import DraftTree

HIDDEN = 8  # width of the hidden states


def small_tree(rng, vocab, least, most, chain=False):
    """``least`` to ``most`` nodes with 1 to 3 children each; siblings stand by falling q."""
    size = rng.randint(least, most)
    tokens, parents, logq, frontier = [rng.randrange(vocab)], [-1], [0.0], [0]
    while frontier and len(tokens) < size:
        node = frontier.pop(rng.randrange(len(frontier)))
        kids = 1 if chain else rng.randint(1, 3)
        share = sorted((rng.expovariate(1) for _ in range(kids + 1)), reverse=True)
        for token, part in zip(rng.sample(range(vocab), kids), share, strict=False):
            if len(tokens) < size:
                frontier.append(len(tokens))
                tokens.append(token)
                parents.append(node)
                logq.append(math.log(part / sum(share)))
    return DraftTree.from_parents(tokens, parents, logq)


KINDS = ("integers", "floats", "near", "ratio", "ties", "matching")


def logits_of(rng, tree, vocab, kind):
    """f32[N, vocab] for a tree.

    "near" puts the children just under a peak that is no child where it can; "ratio" does so far
    above zero; "matching" makes most nodes' first child their argmax, and the rest "near".
    """
    size = tree.num_nodes
    if kind in ("integers", "ties"):
        z = random_logits(rng, size, vocab, integers=True)
        return z.clamp(0, 1) if kind == "ties" else z
    z = random_logits(rng, size, vocab)
    if kind == "floats":
        return z
    z = z / 4
    for node in range(size):
        kids = tree.token[tree.parent == node].tolist()
        free = [token for token in range(vocab) if token not in kids]
        if kind == "matching" and kids and rng.random() < 0.85:
            z[node, kids[0]] += 8.0
        elif free:
            z[node, kids] = z[node].max() - 0.3 * torch.rand(len(kids))
            z[node, rng.choice(free)] = z[node].max() + 0.2 * rng.random() + 0.01
    return z + 20.0 if kind == "ratio" else z


@dataclass(frozen=True, eq=False)
class Cases:
    """A padded batch of trees and what the target says at their nodes.

    Attributes:
        trees: the trees as they came, unpadded.
        tree: [B, N].
        logits: f32[B, N, V]; padding rows hold 0.
        hidden: f32[B, N, H] of the target.
        drafter: f32[B, N, V], the drafter's logits, for drafts that are drawn.
    """

    trees: list[DraftTree]
    tree: DraftTree
    logits: torch.Tensor
    hidden: torch.Tensor
    drafter: torch.Tensor

    @property
    def vocab(self):
        return self.logits.shape[-1]

    def one(self, index):
        """The unpadded case alone."""
        size = self.trees[index].num_nodes
        rows = (self.logits[index, :size], self.hidden[index, :size], self.drafter[index, :size])
        tree = DraftTree(
            self.tree.token[index, :size],
            self.tree.parent[index, :size],
            self.tree.depth[index, :size],
            self.tree.logq[index, :size],
            q=None if self.tree.q is None else self.tree.q[index, :size],
            hidden=None if self.tree.hidden is None else self.tree.hidden[index, :size],
        )
        return Cases([tree], tree, *rows)


@cache
def cases_for(cls, seed, count, vocab=5, kinds=KINDS, least=1, most=6, chain=False):
    """Random cases that the rule is defined on: trees of ``most`` nodes at most, chains of 12."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    # Only windows need length, and drawing drafts for long chains is slow.
    long = [kinds[i % len(kinds)] == "matching" and not cls.sampled_drafts for i in range(count)]
    trees = [
        small_tree(rng, vocab, 8, 12, True)
        if deep
        else small_tree(rng, vocab, least, most, chain or not cls.tree)
        for deep in long
    ]
    batch = DraftTree.pad_stack(trees)
    shape = (count, batch.num_nodes)
    logits = torch.zeros(*shape, vocab)
    for row, tree in enumerate(trees):
        logits[row, : tree.num_nodes] = logits_of(rng, tree, vocab, kinds[row % len(kinds)])
    hidden = torch.randn(*shape, HIDDEN)
    drafter = logits + torch.randn_like(logits)
    if cls.draft_hidden:
        batch = replace(batch, hidden=torch.randn(*shape, HIDDEN))
    if cls.sampled_drafts:
        batch = drawn(batch, drafter, greedy=True)
    return Cases(trees, batch, logits, hidden, drafter)


def drawn(tree, drafter, greedy=False, generator=None):
    """The same shape with tokens drawn from softmax(drafter [..., N, V]), and that law as ``q``.

    As ``Sampler.draw_drafts`` does it: without replacement, in the order drawn, one-hot at the
    argmax when greedy.
    """
    if greedy:
        order = drafter.sort(-1, descending=True).indices
        q = torch.zeros_like(drafter).scatter_(-1, order[..., :1], 1.0)
    else:
        q = drafter.softmax(-1)
        noise = torch.rand(q.shape, generator=generator).clamp_min(2.0**-25)
        order = (q.log() - noise.log().neg().log()).sort(-1, descending=True).indices
    same = tree.parent.unsqueeze(-1) == tree.parent.unsqueeze(-2)
    rank = (same & (tree.index > tree.index.unsqueeze(-1)).mT).sum(-1)  # earlier siblings
    size, vocab = drafter.shape[-2:]
    place = tree.parent_index * vocab + rank.clamp_max(vocab - 1)
    token = order.flatten(-2).gather(-1, place)
    token = torch.where(tree.is_child, token, tree.token)
    logq = q.flatten(-2).gather(-1, tree.parent_index * vocab + token.clamp_min(0)).log()
    inner = (tree.parent.unsqueeze(-2) == tree.index.unsqueeze(-1)).any(-1, keepdim=True)
    return replace(
        tree,
        token=token,
        logq=torch.where(tree.is_child, logq, 0.0),
        q=torch.where(inner, q, 0.0).reshape(*tree.token.shape[:-1], size, vocab),
    )

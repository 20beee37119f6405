"""Draft trees as flat arrays, with or without leading batch dimensions.

Node 0 is the root: the last committed token, whose logits predict the next one. Every other node
holds one drafted token. The layout follows SpecInfer (arXiv 2305.09781) and EAGLE-2 (2406.16858).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from adaptivespec.core.errors import TreeError


@dataclass(frozen=True, eq=False)
class DraftTree:
    """One tree of N nodes, or a batch of trees padded to N nodes. Its arrays are never changed.

    Attributes:
        token: i64[..., N], token ids; padding nodes hold -1.
        parent: i64[..., N]; -1 at the root (index 0) and in padding, else parent[i] < i.
        depth: i64[..., N]; 0 at the root and in padding.
        logq: f32[..., N], log of the drafter's probability of the node given its parent, in nats;
            0 at the root and in padding.
        max_depth: the largest depth, a host integer; read from ``depth`` when not given.
        q: f32[..., N, V], the law that the children of each node were drawn from; None when drafts
            are the likeliest tokens, which is the usual case.
        hidden: [..., N, H], the drafter's feature that proposed each node; None unless asked for.
    """

    token: Tensor
    parent: Tensor
    depth: Tensor
    logq: Tensor
    max_depth: int = -1
    q: Tensor | None = None
    hidden: Tensor | None = None

    def __post_init__(self) -> None:
        if self.max_depth < 0:
            deepest = int(self.depth.max()) if self.depth.numel() else 0
            object.__setattr__(self, "max_depth", deepest)

    @property
    def num_nodes(self) -> int:
        """N, the root and any padding included."""
        return self.token.shape[-1]

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.token.device

    @cached_property
    def index(self) -> Tensor:
        """i64[N]: 0 to N - 1."""
        return torch.arange(self.num_nodes, device=self.device)

    @cached_property
    def is_child(self) -> Tensor:
        """bool[..., N]: drafted nodes, neither root nor padding."""
        return self.parent >= 0

    @cached_property
    def parent_index(self) -> Tensor:
        """i64[..., N]: ``parent`` with 0 in place of -1, so that it can index."""
        return self.parent.clamp_min(0)

    @cached_property
    def token_index(self) -> Tensor:
        """i64[..., N]: ``token`` with 0 in place of padding's -1, so that it can index."""
        return self.token.clamp_min(0)

    def ancestor_mask(self) -> Tensor:
        """bool[..., N, N]: (i, j) is True when j is i or an ancestor of i.

        A padding node sees itself only.
        """
        up = torch.where(self.is_child, self.parent, self.index)  # root and padding stay there
        current = self.index.expand_as(self.parent)
        shape = (*self.parent.shape, self.num_nodes)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        for _ in range(self.max_depth + 1):
            mask.scatter_(-1, current.unsqueeze(-1), True)
            current = up.gather(-1, current)
        return mask

    def positions(self, start: int | Tensor) -> Tensor:
        """i64[..., N]: the sequence position of every node when the root stands at ``start``.

        ``start`` is an integer, or i64[...] with one entry for each tree of the batch.
        """
        if isinstance(start, Tensor) and start.dim() > 0:
            start = start.unsqueeze(-1)
        return self.depth + start

    def validate(self) -> DraftTree:
        """Check every invariant and return self; TreeError names the first offending node."""
        for name, want in (("token", torch.int64), ("parent", torch.int64), ("depth", torch.int64)):
            self._check_array(name, want)
        self._check_array("logq", torch.float32)
        if self.num_nodes == 0:
            raise TreeError("the root is missing: a tree has at least one node", field="tree")
        root, padding = self.index == 0, (self.index > 0) & (self.token == -1)
        expected = self.depth.gather(-1, self.parent_index.clamp_max(self.num_nodes - 1)) + 1
        expected = torch.where(self.is_child, expected, 0)
        self._refuse(root & (self.parent != -1), "the root's parent must be -1")
        self._refuse(root & (self.token < 0), "the root must hold a token id >= 0")
        self._refuse(self.token < -1, "a token id must be >= 0, or -1 in padding")
        self._refuse(padding & (self.parent != -1), "a padding node's parent must be -1")
        self._refuse(
            ~root & ~padding & ((self.parent < 0) | (self.parent >= self.index)),
            "parent must be >= 0 and come before its child",
        )
        self._refuse(self.depth != expected, "depth must be its parent's plus 1 (root, padding: 0)")
        self._refuse(~(self.logq <= 0), "logq must be <= 0 and not NaN")
        self._check_siblings()
        deepest = int(self.depth.max())
        if self.max_depth != deepest:
            raise TreeError(f"max_depth is {self.max_depth}, the deepest node's is {deepest}")
        return self

    @classmethod
    def root_only(cls, token: int, device: torch.device | str | None = None) -> DraftTree:
        """The tree of plain decoding: the root alone."""
        parent, depth, logq = _lone_root(device)
        return cls(torch.tensor([token], device=device), parent, depth, logq, max_depth=0)

    @classmethod
    def chain(
        cls,
        tokens: Sequence[int],
        logq: Sequence[float] | None = None,
        device: torch.device | str | None = None,
    ) -> DraftTree:
        """One child per level. ``tokens[0]`` is the root; ``logq`` (nats) has its length."""
        if not tokens:
            raise TreeError("the root is missing: a chain has at least one token", field="tokens")
        return cls.from_parents(tokens, range(-1, len(tokens) - 1), logq, device)

    @classmethod
    def from_parents(
        cls,
        tokens: Sequence[int],
        parents: Sequence[int],
        logq: Sequence[float] | None = None,
        device: torch.device | str | None = None,
    ) -> DraftTree:
        """Build from host lists of equal length; depths follow from the parents.

        Raises TreeError on lengths that differ, on a wrong root and on a parent out of order.
        Use ``validate`` for the rest.
        """
        if logq is None:
            logq = [0.0] * len(tokens)
        if not len(tokens) == len(parents) == len(logq):
            raise TreeError(
                f"tokens, parents and logq have lengths {len(tokens)}, {len(parents)}, {len(logq)}"
            )
        depth: list[int] = []
        for node, parent in enumerate(parents):
            if (parent != -1) if node == 0 else not 0 <= parent < node:
                raise TreeError(f"node {node} has parent {parent}", field="parents")
            depth.append(0 if node == 0 else depth[parent] + 1)
        return cls(
            token=torch.tensor(list(tokens), dtype=torch.int64, device=device),
            parent=torch.tensor(list(parents), dtype=torch.int64, device=device),
            depth=torch.tensor(depth, dtype=torch.int64, device=device),
            logq=torch.tensor(list(logq), dtype=torch.float32, device=device),
            max_depth=max(depth, default=0),
        )

    @classmethod
    def pad_stack(cls, trees: Sequence[DraftTree]) -> DraftTree:
        """Stack unbatched trees into one batch [B, N], N being the largest of their sizes."""
        if not trees:
            raise TreeError("there is no tree to stack", field="trees")
        size = max(tree.num_nodes for tree in trees)

        def stack(name: str, fill: int | float) -> Tensor:
            rows = [getattr(tree, name) for tree in trees]
            pads = [(0, size - row.shape[-1]) for row in rows]
            return torch.stack(
                [
                    torch.nn.functional.pad(row, pad, value=fill)
                    for row, pad in zip(rows, pads, strict=True)
                ]
            )

        deepest = max(tree.max_depth for tree in trees)
        return cls(
            stack("token", -1), stack("parent", -1), stack("depth", 0), stack("logq", 0.0), deepest
        )

    def _check_array(self, name: str, dtype: torch.dtype) -> None:
        array: Tensor = getattr(self, name)
        if array.dtype != dtype:
            raise TreeError(f"must be {dtype}, got {array.dtype}", field=name)
        if array.dim() == 0 or array.shape != self.token.shape:
            want = list(self.token.shape)
            raise TreeError(f"must have shape {want}, got {list(array.shape)}", field=name)

    def _refuse(self, bad: Tensor, message: str) -> None:
        """Raise naming the first node where ``bad`` [..., N] holds."""
        if bool(bad.any()):
            *batch, node = (int(i) for i in bad.nonzero()[0])
            where = f"tree {batch[0] if len(batch) == 1 else batch}, " if batch else ""
            values = ", ".join(
                f"{name} {getattr(self, name)[(*batch, node)].item():g}"
                for name in ("token", "parent", "depth", "logq")
            )
            raise TreeError(f"{message} ({values})", field=f"{where}node {node}")

    def _check_siblings(self) -> None:
        """Siblings hold distinct tokens, so that at most one child matches a token."""
        key = self.parent * (self.token.max() + 1) + self.token
        lone = self.index - self.num_nodes - 1  # keys that nothing equals
        ordered, order = torch.where(self.is_child, key, lone).sort(dim=-1, stable=True)
        twin = torch.zeros_like(self.is_child)
        twin.scatter_(-1, order[..., 1:], ordered[..., 1:] == ordered[..., :-1])
        self._refuse(twin, "a sibling holds the same token")


@cache
def _lone_root(device: torch.device | str | None) -> tuple[Tensor, Tensor, Tensor]:
    """Parent, depth and logq of a root, which all trees without children share."""
    with torch.inference_mode(False):  # they outlive whatever mode the first caller is in
        return (
            torch.tensor([-1], device=device),
            torch.tensor([0], device=device),
            torch.tensor([0.0], device=device),
        )

"""What the probabilities of a draft head are worth: `head.py confidence`.

A node is judged when its parent was followed: was it followed too? The raw prediction is q, the
head's probability of the node given its parent. The calibrated one is c of `Calibration`: counts in
bins of depth, rank and logit q with q as the prior, siblings scaled down to a sum of 1 at most.
Counts come from the prompts of the other half, even or odd numbers, so c never saw what it is
judged by. Its lift, which is for whole paths, and its shift within a request are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from grid_rows import table
from head_report import about, kind_of, names

from adaptivespec.core.trace import StepTrace
from adaptivespec.policy.acceptance import Calibration, bins

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Title and the values from the first to the last one, both included.
DEPTHS = (("1", 1, 1), ("2", 2, 2), ("3-4", 3, 4), ("5+", 5, 10**6))
RANKS = (("1", 0, 0), ("2", 1, 1), ("3+", 2, 10**6))
TENTHS = 10

NOTE = """\
Drafted nodes whose parent was followed: the share that was followed, and the mean of what was
predicted, by q, the head's probability of the node given its parent, and by c, the same calibrated
on other prompts. ECE is the expected calibration error by tenths of the prediction; `by chance` is
what a perfect predictor would show on as many nodes."""


@dataclass(frozen=True)
class Nodes:
    """Judged nodes, one entry each.

    Attributes:
        task: of the prompt.
        half: 0 or 1, the parity of the prompt's number.
        depth: from 1.
        rank: among its siblings, from 0.
        logq: log q in nats.
        followed: whether it was.
        family: equal for siblings, and for them alone.
    """

    task: npt.NDArray[np.str_]
    half: Ints
    depth: Ints
    rank: Ints
    logq: Floats
    followed: Bools
    family: Ints

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Nodes:
        """The nodes of rows that hold what `judged_nodes` gives."""
        sizes = [len(row["depth"]) for row in rows]
        # A family's number is that of its tree and parent within the prompt: rows set them apart.
        families = [max(row["family"], default=-1) + 1 for row in rows]
        starts = np.concatenate([[0], np.cumsum(families)])[:-1]

        def column(name: str, kind: type) -> Any:
            return np.concatenate([np.empty(0, kind), *(np.array(row[name], kind) for row in rows)])

        return cls(
            task=np.repeat([row["task"] for row in rows], sizes),
            half=np.repeat([row["index"] % 2 for row in rows], sizes),
            depth=column("depth", np.int64),
            rank=column("rank", np.int64),
            logq=column("logq", np.float64),
            followed=column("followed", np.bool_),
            family=column("family", np.int64) + np.repeat(starts, sizes).astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.depth)

    def where(self, kept: Bools) -> Nodes:
        """The entries that are kept."""
        return Nodes(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Tenth:
    """The nodes whose prediction lies in one tenth of [0, 1]."""

    count: int
    predicted: float
    followed: float


def judged_nodes(steps: Sequence[StepTrace]) -> dict[str, list[Any]]:
    """Depth, rank, logq, followed and family of every node whose parent was followed.

    A family is one followed parent, numbered from 0. The last node of a step that the text's end
    cut short has no known successor and judges nothing.
    """
    columns: dict[str, list[Any]] = {
        name: [] for name in ("depth", "rank", "logq", "followed", "family")
    }
    families = 0
    for step in steps:
        nodes, path = step.nodes or {}, set(step.path)
        judges = step.path[:-1] if step.committed < len(step.path) else step.path
        family = {parent: families + place for place, parent in enumerate(judges)}
        families += len(judges)
        for node, parent in enumerate(nodes.get("parent", [])):
            if parent in family and nodes["logq"][node] is not None:
                columns["depth"].append(nodes["depth"][node])
                columns["rank"].append(nodes["rank"][node])
                columns["logq"].append(round(nodes["logq"][node], 6))
                columns["followed"].append(int(node in path))
                columns["family"].append(family[parent])
    return columns


def calibrated(nodes: Nodes) -> Floats:
    """c of every node, counted on the nodes of the other half."""
    c = np.zeros(len(nodes))
    for half in (0, 1):
        mine = nodes.half == half
        c[mine] = _apply(_count(nodes.where(~mine)), nodes.where(mine))
    return c


def _count(nodes: Nodes) -> Calibration:
    calibration = Calibration()
    columns = (torch.from_numpy(x) for x in (nodes.logq, nodes.depth, nodes.rank))
    logq, depth, rank = columns
    index = bins(logq.float(), depth, rank)
    label = torch.from_numpy(nodes.followed).float()
    calibration.follows.index_add_(0, index, label)
    calibration.labels.index_add_(0, index, torch.ones_like(label))
    return calibration


def _apply(calibration: Calibration, nodes: Nodes) -> Floats:
    acceptance, c = calibration.acceptance(), np.zeros(len(nodes))
    for depth in np.unique(nodes.depth):
        here = nodes.depth == depth
        families, row = np.unique(nodes.family[here], return_inverse=True)
        rank = nodes.rank[here]
        logq = torch.full((len(families), int(rank.max()) + 1), -math.inf)
        logq[row, rank] = torch.from_numpy(nodes.logq[here]).float()
        c[here] = acceptance.log_of(logq, int(depth)).exp()[row, rank].double().numpy()
    return c


def tenths(predicted: Floats, followed: Bools) -> list[Tenth]:
    """The tenths of [0, 1] that hold any prediction, from the lowest."""
    place = np.minimum((predicted * TENTHS).astype(np.int64), TENTHS - 1)
    found = []
    for tenth in np.unique(place):
        here = place == tenth
        shares = float(predicted[here].mean()), float(followed[here].mean())
        found.append(Tenth(int(here.sum()), *shares))
    return found


def calibration_error(predicted: Floats, followed: Bools) -> float:
    """Mean of |followed - predicted| over tenths of the prediction, by their nodes; 0 of none."""
    found = tenths(predicted, followed)
    total = sum(tenth.count for tenth in found)
    off = sum(tenth.count * abs(tenth.followed - tenth.predicted) for tenth in found)
    return off / total if total else 0.0


def error_by_chance(predicted: Floats) -> float:
    """The calibration error to expect of predictions that are exactly right.

    A tenth of n nodes is off by a normal deviate of standard deviation sqrt(sum p (1 - p)) / n,
    whose mean size is sqrt(2 / pi) of that.
    """
    if not len(predicted):
        return 0.0
    place = np.minimum((predicted * TENTHS).astype(np.int64), TENTHS - 1)
    variance = np.bincount(place, predicted * (1 - predicted))
    return float(np.sqrt(2 / math.pi) * np.sqrt(variance).sum() / len(predicted))


def within(values: Ints, first: int, last: int) -> Bools:
    """Which values lie from first to last, both included."""
    return (values >= first) & (values <= last)


def tables(rows: Sequence[Row]) -> str:
    """By head: depth by rank, with sums by depth, and by kind of prompt."""
    parts = [about(rows), NOTE]
    heads = names(rows, "head")
    for head in heads:
        mine = [row for row in rows if row["head"] == head]
        nodes = Nodes.of(mine)
        c = calibrated(nodes)
        title = ["kind", "depth", "rank", "nodes", "followed", "mean q", "ECE of q"]
        title += ["mean c", "ECE of c", "by chance"]
        body = []
        tasks = names(mine, "task")
        for task in tasks if tasks[1:] else []:
            line = _line(nodes, c, nodes.task == task)
            body.append([kind_of(task), "all", "all", *line])
        everywhere = np.ones(len(nodes), np.bool_)
        body.append(["all", "all", "all", *_line(nodes, c, everywhere)])
        for name, low, high in DEPTHS:
            deep = within(nodes.depth, low, high)
            if deep.any():
                body.append(["all", name, "all", *_line(nodes, c, deep)])
        for name, low, high in RANKS:
            ranked = within(nodes.rank, low, high)
            if ranked.any():
                body.append(["all", "all", name, *_line(nodes, c, ranked)])
        for depth, low, high in DEPTHS:
            for rank, first, last in RANKS:
                kept = within(nodes.depth, low, high) & within(nodes.rank, first, last)
                if kept.any():
                    body.append(["all", depth, rank, *_line(nodes, c, kept)])
        what = f"{mine[0]['rule']}, {mine[0]['policy']}"
        parts += [f"### {head}: {what}" if heads[1:] else what, table(title, body)]
    return "\n\n".join(parts)


def _line(nodes: Nodes, c: Floats, kept: Bools) -> list[str]:
    q, followed = np.exp(nodes.logq[kept]), nodes.followed[kept]
    shares = [followed.mean(), q.mean(), calibration_error(q, followed)]
    shares += [c[kept].mean(), calibration_error(c[kept], followed), error_by_chance(c[kept])]
    return [str(len(q)), *(f"{share:.3f}" for share in shares)]

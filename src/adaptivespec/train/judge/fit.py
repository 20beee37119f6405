"""Fitting a judge to mined flips, and saying what it is worth beside the margin."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.train.judge.flips import Flip
from adaptivespec.verify.probe import normalised

#: Strengths of the L2 penalty that are tried, per mean log loss of standardised features.
L2_GRID = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
FOLDS = 5
RESAMPLES = 1000
SPLITS = 20
PRECISION = 0.9


@dataclass(frozen=True)
class FitOptions:
    """How a judge is fitted: the share of prompts held out, and the seed of all draws."""

    held_out: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ConfigError(f"must lie in (0, 1), got {self.held_out}", field="held_out")


def fit_logistic(x: Tensor, y: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """Weights f64[F] and bias f64[1] of the logistic regression of y (0 or 1) on x f64[n, F].

    Minimises the mean log loss plus l2 / 2 times the squared norm of the weights of standardised
    features (mean 0, deviation 1 over x); the weights returned are those of x itself.
    """
    mean, deviation = x.mean(0), x.std(0, correction=0).clamp_min(1e-9)
    z = (x - mean) / deviation
    weight = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(1, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.binary_cross_entropy_with_logits(z @ weight + bias, y)
        value = value + 0.5 * l2 * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    own = weight.detach() / deviation
    return own, bias.detach() - mean @ own


def auc(score: Tensor, label: Tensor) -> float:
    """Chance that a random positive scores above a random negative; ties count half. NaN if none.

    (The area under the ROC curve, as the Mann-Whitney statistic.)
    """
    positive, negative = score[label], score[~label]
    order = negative.sort().values
    below = torch.searchsorted(order, positive) + torch.searchsorted(order, positive, right=True)
    pairs = positive.numel() * negative.numel()
    return float(below.sum()) / (2 * pairs) if pairs else math.nan


def at_precision(score: Tensor, label: Tensor, precision: float) -> dict[str, Any]:
    """The most harmless drafts (label) that one threshold accepts at this precision or better.

    Returns `accepted`, `harmless` among them, their `share` of all harmless ones, and `threshold`
    (the lowest accepted score; None where no threshold reaches the precision).
    """
    ordered, order = score.sort(descending=True)
    hits = label[order].cumsum(0)
    counts = torch.arange(1, score.numel() + 1)
    last_of_ties = torch.cat((ordered[:-1] > ordered[1:], torch.ones(1, dtype=torch.bool)))
    fit = (last_of_ties & (hits >= precision * counts)).nonzero()
    if fit.numel() == 0:
        return {"accepted": 0, "harmless": 0, "share": 0.0, "threshold": None}
    at = int(fit[-1])
    found, total = int(hits[at]), int(label.sum())
    return {
        "accepted": at + 1,
        "harmless": found,
        "share": found / total,
        "threshold": float(ordered[at]),
    }


def bootstrap(
    score: Tensor, other: Tensor, label: Tensor, group: Tensor, seed: int
) -> dict[str, list[float]]:
    """95 % intervals of `auc(score)`, of `auc(other)` and of their difference.

    Whole groups (prompts) are drawn with replacement: flips of one prompt are not independent.
    """
    members = [(group == g).nonzero()[:, 0] for g in group.unique()]
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(RESAMPLES):
        drawn = torch.randint(len(members), (len(members),), generator=generator).tolist()
        at = torch.cat([members[i] for i in drawn])
        pair = auc(score[at], label[at]), auc(other[at], label[at])
        if not math.isnan(pair[0]):
            rows.append((*pair, pair[0] - pair[1]))
    if not rows:
        return {}
    table = torch.tensor(rows, dtype=torch.float64)
    low, high = torch.quantile(table, torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
    names = ("auc", "margin_auc", "difference")
    return {
        name: [round(float(low[i]), 4), round(float(high[i]), 4)] for i, name in enumerate(names)
    }


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted judge: weights, bias, and the report on how good it is."""

    weight: Tensor  # f32[F]
    bias: Tensor  # f32[1]
    report: Mapping[str, Any]


def fit_flips(
    flips: Sequence[Flip], texts: Sequence[str], kind: str, options: FitOptions | None = None
) -> Fit:
    """Fit a judge of `kind` ("judge" or "semantic") to flips of the prompts `texts`.

    A share of the prompts is held out, picked by hash. On the others the L2 penalty is chosen by
    cross-validation (log loss, whole prompts to a fold). The report is on the held-out ones, beside
    two scores that need no training: the margin, and the position of the flip. A small held-out
    part may flatter or slander, so it also says what becomes of other random splits.

    Raises ConfigError: harmless or harmful flips are lacking among either, or prompts are.
    """
    options = options or FitOptions()
    x = torch.stack([_features(flip, kind) for flip in flips]).double()
    label = torch.tensor([flip.harmless for flip in flips])
    margin = torch.tensor([flip.margin for flip in flips], dtype=torch.float64)
    position = torch.tensor([flip.position for flip in flips], dtype=torch.float64)
    used = sorted(
        {texts[flip.prompt] for flip in flips}, key=lambda text: _hash(options.seed, text)
    )
    rank = {text: number for number, text in enumerate(used)}
    group = torch.tensor([rank[texts[flip.prompt]] for flip in flips])
    size = max(round(options.held_out * len(used)), 1)
    held_out = group < size
    train = ~held_out
    counts = {
        name: _counts(label, group, part)
        for name, part in (("train", train), ("held_out", held_out))
    }
    for name, count in counts.items():
        if not 0 < count["harmless"] < count["flips"] or counts["train"]["prompts"] < 2:
            raise ConfigError(
                f"of {count['flips']} {name} flips of {count['prompts']} prompts "
                f"{count['harmless']} are harmless; some of either are needed",
                field="flips",
                remedy="Mine more flips, or give other prompts",
            )
    losses = _cross_validated(x[train], label[train].double(), group[train] % FOLDS)
    l2 = min(losses, key=lambda l2: (losses[l2], -l2))
    weight, bias = fit_logistic(x[train], label[train].double(), l2)
    score = torch.sigmoid(x[held_out] @ weight + bias)
    truth, margins = label[held_out], margin[held_out]
    accepted = score > 0.5
    report: dict[str, Any] = {
        "l2": l2,
        "cross_validated_log_loss": {f"{l2:g}": round(loss, 4) for l2, loss in losses.items()},
        "train": counts["train"],
        "held_out": counts["held_out"]
        | {
            "auc": round(auc(score, truth), 4),
            "margin_auc": round(auc(margins, truth), 4),
            "position_auc": round(auc(position[held_out], truth), 4),
            "interval_95": bootstrap(score, margins, truth, group[held_out], options.seed),
            "accuracy": round(_mean(accepted == truth), 4),
            "majority_accuracy": round(max(_mean(truth), 1 - _mean(truth)), 4),
            "accepted_at_half": int(accepted.sum()),
            "harmless_at_half": int((accepted & truth).sum()),
            "at_90_precision": at_precision(score, truth, PRECISION),
            "margin_at_90_precision": at_precision(margins, truth, PRECISION),
        },
    }
    generator = torch.Generator().manual_seed(options.seed)
    rows = []
    for _ in range(SPLITS):
        drawn = torch.isin(group, torch.randperm(len(used), generator=generator)[:size])
        own, offset = fit_logistic(x[~drawn], label[~drawn].double(), l2)
        scores = (x[drawn] @ own + offset, margin[drawn], position[drawn])
        rows.append([auc(each, label[drawn]) for each in scores])
    report["random_splits"] = _summary(rows)
    return Fit(weight.float(), bias.float(), report)


def _cross_validated(x: Tensor, y: Tensor, fold: Tensor) -> dict[float, float]:
    """Mean log loss outside of the training folds, for each strength of the penalty."""
    losses = {}
    for l2 in L2_GRID:
        logit = torch.zeros_like(y)
        for number in fold.unique():
            out = fold == number
            weight, bias = fit_logistic(x[~out], y[~out], l2)
            logit[out] = x[out] @ weight + bias
        losses[l2] = float(F.binary_cross_entropy_with_logits(logit, y))
    return losses


def _summary(rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Mean AUCs over random splits, and the range of the first; splits without both classes out."""
    table = torch.tensor(rows, dtype=torch.float64)
    table = table[~table.isnan().any(1)]
    if not table.numel():
        return {"splits": 0}
    judge, margin, position = table.mean(0).tolist()
    return {
        "splits": table.shape[0],
        "auc": round(judge, 4),
        "auc_range": [round(float(table[:, 0].min()), 4), round(float(table[:, 0].max()), 4)],
        "margin_auc": round(margin, 4),
        "position_auc": round(position, 4),
    }


def _features(flip: Flip, kind: str) -> Tensor:
    parts = (flip.hidden,) if kind == "judge" else (flip.hidden, flip.draft_hidden)
    return torch.cat([normalised(part) for part in parts])


def _hash(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed}-{text}".encode()).hexdigest()


def _mean(label: Tensor) -> float:
    return float(label.double().mean())


def _counts(label: Tensor, group: Tensor, part: Tensor) -> dict[str, Any]:
    return {
        "prompts": group[part].unique().numel(),
        "flips": int(part.sum()),
        "harmless": int(label[part].sum()),
        "base_rate": round(_mean(label[part]), 4),
    }

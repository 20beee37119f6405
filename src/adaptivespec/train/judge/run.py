"""From a file of prompts to a judge on disk: what the command `train-judge` does."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from adaptivespec import __version__
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.progress import Progress, StageEvent
from adaptivespec.engine.engine import Engine
from adaptivespec.train.judge.fit import Fit, FitOptions, fit_flips
from adaptivespec.train.judge.flips import FlipMiner, FlipOptions
from adaptivespec.train.judge.prompts import Extract, read_prompts
from adaptivespec.verify.probe import KINDS, Probe

CARD_FILE = "README.md"


@dataclass
class JudgeRun:
    """One run of `train-judge`: mine, fit, write.

    Args:
        engine: target and drafter.
        data: prompts, see `read_prompts`.
        output: gets `flips.jsonl`, the head (config.json, model.safetensors) and a card.
        kind: "judge" or "semantic".
        max_minutes: mine no longer than that in this run; what there is is fitted.
        extract: the final answer of a text; None for what `mining.answer_regex` says.
    """

    engine: Engine
    data: Path
    output: Path
    kind: str = "judge"
    mining: FlipOptions = field(default_factory=FlipOptions)
    fitting: FitOptions = field(default_factory=FitOptions)
    max_minutes: float | None = None
    extract: Extract | None = None
    progress: Progress = lambda event: None

    def run(self) -> Probe:
        """Mine what is missing, fit, and write the head; returns it.

        Raises:
            ConfigError: prompts or options cannot be used, or the flips teach nothing.
            CheckpointError: `output` holds the flips of another run.
        """
        if self.kind not in KINDS:
            raise ConfigError(
                f"unknown kind {self.kind!r}", field="kind", remedy=f"Use {' or '.join(KINDS)}"
            )
        texts = read_prompts(self.data)
        miner = FlipMiner(self.engine, texts, self.output, self.mining, self.extract)
        miner.resume()
        start = time.monotonic()
        while not miner.done:
            miner.mine_next()
            harmless = sum(flip.harmless for flip in miner.flips)
            values = {"harmless": harmless, "prompts": miner.seen}
            total = max(self.mining.flips, len(miner.flips))
            self.progress(StageEvent("flips", len(miner.flips), total, values))
            if self.max_minutes and time.monotonic() - start > self.max_minutes * 60:
                break
        if not miner.flips:
            raise ConfigError(
                f"{miner.seen} prompts gave no flip: {miner.skipped}",
                field="data",
                remedy="Give other prompts, a larger --max-tokens or another --answer-regex",
            )
        fit = fit_flips(miner.flips, texts, self.kind, self.fitting)
        limits = self.engine.target.limits
        width = miner.flips[0].draft_hidden.numel() if self.kind == "semantic" else 0
        probe = Probe(
            kind=self.kind,
            target=self.engine.model_name,
            vocab_size=limits.vocab_size,
            hidden_size=limits.hidden_size,
            draft_hidden_size=width,
            weight=fit.weight,
            bias=fit.bias,
            provenance=self._provenance(miner, fit),
        )
        probe.save(self.output)
        (self.output / CARD_FILE).write_text(card(probe), encoding="utf-8")
        return probe

    def _provenance(self, miner: FlipMiner, fit: Fit) -> dict[str, Any]:
        return {
            "drafter": self.engine.head_name,
            "dtype": self.engine.dtype,
            "data": self.data.name,
            "data_sha256": hashlib.sha256(self.data.read_bytes()).hexdigest(),
            "flips_sha256": hashlib.sha256(miner.path.read_bytes()).hexdigest(),
            "prompts": {"read": miner.seen, "skipped": miner.skipped},
            "mining": asdict(self.mining),
            "fitting": asdict(self.fitting),
            "report": fit.report,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "versions": {"adaptivespec": __version__, "torch": torch.__version__},
        }


def card(probe: Probe) -> str:
    """The card of a head, from its provenance alone."""
    made = probe.provenance
    mining, report = made["mining"], made["report"]
    train, held = report["train"], report["held_out"]
    interval = held["interval_95"]
    best, margin = held["at_90_precision"], held["margin_at_90_precision"]
    skipped = ", ".join(f"{count} {why}" for why, count in made["prompts"]["skipped"].items())
    low, high = interval.get("auc", (0.0, 1.0))
    alone = (
        "tells harmless flips from others better than chance"
        if low > 0.5
        else "is not shown to tell harmless flips from others"
    )
    low, high = interval.get("difference", (-1.0, 1.0))
    beside = (
        "beats the margin p / max p"
        if low > 0
        else "loses to the margin p / max p"
        if high < 0
        else "is not told apart from the margin p / max p"
    )
    return f"""# A {probe.kind} head for {probe.target}

Logistic regression on {probe.hidden_size + probe.draft_hidden_size} numbers: which drafts that
{probe.target} would not have chosen leave its final answer as it was. For `--rule {probe.kind}`;
lossy. **On held-out prompts it {alone}
(AUC {held["auc"]:.3f}, chance 0.5) and {beside}
(AUC {held["margin_auc"]:.3f}).** How late in the answer a flip comes, which needs no training, has
an AUC of {held["position_auc"]:.3f} on the same flips.

## Labels

Prompts of `{made["data"]}` answered greedily by {probe.target} ({made["dtype"]}), up to
{mining["max_tokens"]} tokens. In each finished answer up to {mining["flips_per_prompt"]} tokens
were replaced, one at a time, by a draft ({mining["policy"]}) with p / max p above
{mining["min_margin"]}; the target went on from there, greedily. Harmless: the same final answer,
which is the last match of `{mining["answer_regex"]}`. The target's own answer is the reference,
right or wrong. {made["prompts"]["read"]} prompts read; skipped: {skipped or "none"}.

| | prompts | flips | harmless | base rate |
|---|---|---|---|---|
| training | {_row(train)} |
| held out | {_row(held)} |

## Held-out prompts

| | this head | margin p / max p | position in the answer |
|---|---|---|---|
| AUC | {held["auc"]:.3f} {_span(interval, "auc")} | {held["margin_auc"]:.3f} \
{_span(interval, "margin_auc")} | {held["position_auc"]:.3f} |
{_splits(report["random_splits"])}| harmless accepted at 90 % precision | {_accepted(best, held)} \
| {_accepted(margin, held)} | |

Intervals: 95 %, bootstrap over prompts; difference of the AUCs {_span(interval, "difference")}.
Accuracy at 0.5: {held["accuracy"]:.3f}; always saying the commoner class: \
{held["majority_accuracy"]:.3f}. At 0.5 it
accepts {held["accepted_at_half"]} of {held["flips"]} flips, {held["harmless_at_half"]} of them
harmless. Threshold of the 90 % row, chosen on these very flips: {_number(best["threshold"])}.

L2 penalty {report["l2"]:g}, chosen by cross-validation on the training prompts.
Made with adaptivespec {made["versions"]["adaptivespec"]} on {made["date"]}.
"""


def _row(part: Mapping[str, Any]) -> str:
    counts = " | ".join(str(part[name]) for name in ("prompts", "flips", "harmless"))
    return f"{counts} | {part['base_rate']:.3f}"


def _splits(report: Mapping[str, Any]) -> str:
    if not report["splits"]:
        return ""
    judge = "{:.3f} (each {:.3f} to {:.3f})".format(report["auc"], *report["auc_range"])
    plain = f"{report['margin_auc']:.3f} | {report['position_auc']:.3f}"
    return f"| mean AUC over {report['splits']} random splits | {judge} | {plain} |\n"


def _span(interval: Mapping[str, Sequence[float]], name: str) -> str:
    return "({:.3f} to {:.3f})".format(*interval[name]) if name in interval else ""


def _accepted(best: Mapping[str, Any], held: Mapping[str, Any]) -> str:
    return f"{best['share']:.3f} ({best['harmless']} of {held['harmless']})"


def _number(value: float | None) -> str:
    return "none reaches it" if value is None else f"{value:.3f}"

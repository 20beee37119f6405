"""`adaptivespec train-judge`: a head that tells harmless drafts from important ones."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from adaptivespec.cli import display
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import CommonOptions, ModelOptions, option

__all__ = ["EPILOG", "train_judge"]

DATA, MINING = "Data", "Mining"

EPILOG = """\
[bold]Examples[/bold]

adaptivespec train-judge --data questions.jsonl --output my-judge

adaptivespec train-judge ./my-llama --draft-model my-head --data questions.jsonl --output my-judge

adaptivespec generate ./my-llama --draft-model my-head -p "Hello" --rule judge
--rule-option head=my-judge

A line of the data is {"question": text} or {"prompt": text}. Run the same command again to go on
after a stop.
"""


@dataclass(frozen=True, kw_only=True)
class JudgeDataOptions:
    """What is asked, and where the head goes."""

    data: Annotated[Path, option("--data", panel=DATA, help="Prompts: .jsonl.")]
    output: Annotated[Path, option("--output", "-o", panel=DATA, help="Directory of the new head.")]
    kind: Annotated[
        str,
        option(
            "--kind",
            panel=DATA,
            help="judge reads the target's hidden states, semantic the drafter's as well.",
        ),
    ] = "judge"
    held_out: Annotated[
        float, option("--held-out", panel=DATA, help="Share of the prompts kept for the report.")
    ] = 0.2


@dataclass(frozen=True, kw_only=True)
class MiningOptions:
    """How labels are made."""

    flips: Annotated[int, option("--flips", panel=MINING, help="Labels to stop at.")] = 600
    flips_per_prompt: Annotated[
        int, option("--flips-per-prompt", panel=MINING, help="Most labels from one answer.")
    ] = 8
    max_tokens: Annotated[
        int,
        option("--max-tokens", "-n", panel=MINING, help="Longest answer; longer ones are skipped."),
    ] = 160
    min_margin: Annotated[
        float,
        option("--min-margin", panel=MINING, help="Flip only to drafts with p / max p above this."),
    ] = 0.02
    draft_policy: Annotated[
        str, option("--policy", panel=MINING, help="Which drafts there are to flip to.")
    ] = "static:5,4,16"
    answer_regex: Annotated[
        str | None,
        option(
            "--answer-regex",
            panel=MINING,
            help="Its last match is the final answer. Missing: the last number.",
        ),
    ] = None
    seed: Annotated[
        int, option("--seed", panel=MINING, help="Of the positions and the held-out prompts.")
    ] = 0
    max_minutes: Annotated[
        float | None,
        option("--max-minutes", panel=MINING, help="Mine no longer; run again to go on."),
    ] = None


@guarded
@grouped
def train_judge(
    model: ModelOptions, data: JudgeDataOptions, mining: MiningOptions, common: CommonOptions
) -> None:
    """Train the head that the rules judge and semantic need.

    The target answers every prompt; single tokens of its answers are flipped to drafts, and a flip
    is harmless when the final answer stays the same. Writes config.json, model.safetensors and a
    card that says how well the head does on held-out prompts, and how well the margin does.
    """
    from adaptivespec.train.judge.fit import FitOptions
    from adaptivespec.train.judge.flips import FlipOptions
    from adaptivespec.train.judge.prompts import NUMBER
    from adaptivespec.train.judge.run import JudgeRun

    options = FlipOptions(
        flips=mining.flips,
        flips_per_prompt=mining.flips_per_prompt,
        max_tokens=mining.max_tokens,
        min_margin=mining.min_margin,
        policy=mining.draft_policy,
        answer_regex=NUMBER if mining.answer_regex is None else mining.answer_regex,
        seed=mining.seed,
    )
    fitting = FitOptions(held_out=data.held_out, seed=mining.seed)
    with display.progress(common.quiet) as progress:
        engine = model.load(progress)
    # A run in the background is ended by SIGTERM; like Ctrl-C, it keeps its flips.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with display.stages(common.quiet) as on_event:
        head = JudgeRun(
            engine=engine,
            data=data.data,
            output=data.output,
            kind=data.kind,
            mining=options,
            fitting=fitting,
            max_minutes=mining.max_minutes,
            progress=on_event,
        ).run()
    if not common.quiet:
        held = head.provenance["report"]["held_out"]
        display.note(
            f"{held['flips']} held-out flips, {held['harmless']} harmless: AUC {held['auc']:.3f}, "
            f"that of the margin {held['margin_auc']:.3f}; more in {data.output / 'README.md'}",
            style="dim",
        )
        display.note(
            f"use it with --rule {data.kind} --rule-option head={data.output}", style="dim"
        )

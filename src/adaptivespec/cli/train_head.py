"""`adaptivespec train-head`: an EAGLE-3 head for a target, on the target's own answers."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from adaptivespec.cli import display
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import CommonOptions, ModelOptions, option
from adaptivespec.core.errors import ConfigError

__all__ = ["EPILOG", "train_head"]

DATA, TRAINING = "Data", "Training"

EPILOG = """\
[bold]Examples[/bold]

adaptivespec train-head ./my-llama --make-data 1000000 --output my-head --from-scratch

adaptivespec train-head --data corpus.jsonl.gz --data questions.jsonl --output my-head

adaptivespec generate ./my-llama --draft-model my-head -p "Hello"

A line of the data is {"prompt": text, "response": text}, {"p": ids, "o": ids}, or a question that
the target answers first: {"prompt": text}, {"question": text} or {"turns": [text, ...]}.
Run the same command again to go on after a stop.
"""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What is trained on, and where the head goes."""

    data: Annotated[
        list[Path] | None,
        option(
            "--data", panel=DATA, help="Answers and questions: .jsonl or .jsonl.gz; repeatable."
        ),
    ] = None
    make_data: Annotated[
        int | None,
        option(
            "--make-data",
            panel=DATA,
            metavar="TOKENS",
            help="Let the target answer until it has said so many tokens: built-in questions on "
            "maths, code, chat, JSON and lists, and in turn with them those of the data.",
        ),
    ] = None
    output: Annotated[Path, option("--output", "-o", panel=DATA, help="Directory of the new head.")]
    made: Annotated[
        Path | None,
        option(
            "--corpus",
            panel=DATA,
            help="Where answers that are made are kept. Missing: OUTPUT/corpus.",
        ),
    ] = None
    features: Annotated[
        Path | None,
        option(
            "--features",
            panel=DATA,
            help="Where hidden states are kept (some kB per token). Missing: OUTPUT/features.",
        ),
    ] = None
    from_scratch: Annotated[
        bool,
        option(
            "--from-scratch",
            panel=DATA,
            help="Start from the target's last layer, not from --draft-model or the shipped head.",
        ),
    ] = False
    draft_vocab_size: Annotated[
        int | None,
        option(
            "--draft-vocab-size",
            panel=DATA,
            help="Ids the head can draft, the most frequent ones. Missing: as it is, new: 8192.",
        ),
    ] = None
    intermediate_size: Annotated[
        int | None,
        option(
            "--intermediate-size",
            panel=DATA,
            help="Width of the head's MLP. Missing: as it is, new: the target's.",
        ),
    ] = None
    data_only: Annotated[
        bool, option("--data-only", panel=DATA, help="Stop when answers and features are there.")
    ] = False
    max_len: Annotated[
        int, option("--max-len", panel=DATA, help="Longest text in tokens; the rest is cut.")
    ] = 640
    held_out: Annotated[
        int, option("--held-out", panel=DATA, help="Prompts kept aside for the checks.")
    ] = 64
    train_tokens: Annotated[
        int | None,
        option("--train-tokens", panel=DATA, help="Train on about so many response tokens only."),
    ] = None
    check_prompts: Annotated[
        int, option("--check-prompts", panel=DATA, help="Held-out prompts for the accept length.")
    ] = 8


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How it is trained."""

    epochs: Annotated[int, option("--epochs", panel=TRAINING, help="Passes over the corpus.")] = 3
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            panel=TRAINING,
            help="Optimiser steps after which the schedule ends, though epochs are left.",
        ),
    ] = None
    batch_size: Annotated[
        int, option("--batch-size", panel=TRAINING, help="Texts per optimiser step.")
    ] = 4
    learning_rate: Annotated[
        float, option("--learning-rate", panel=TRAINING, help="Peak; a cosine follows.")
    ] = 1e-3
    unroll_steps: Annotated[
        int, option("--unroll-steps", panel=TRAINING, help="Depth of the training-time test.")
    ] = 3
    step_weight: Annotated[
        float, option("--step-weight", panel=TRAINING, help="The loss of step k counts this ** k.")
    ] = 0.8
    final_rate: Annotated[
        float,
        option(
            "--final-rate", panel=TRAINING, help="Where the cosine ends, as a share of the peak."
        ),
    ] = 0.03
    average: Annotated[
        float,
        option(
            "--average",
            panel=TRAINING,
            help="Decay of a moving average of the weights, which is what is written. 0 = off.",
        ),
    ] = 0.0
    tie_output: Annotated[
        bool,
        option("--tie-output", panel=TRAINING, help="Keep lm_head at the target's output rows."),
    ] = False
    loss_rows: Annotated[
        float,
        option(
            "--loss-rows",
            panel=TRAINING,
            help="Share of the rows whose loss is taken at the later unroll steps.",
        ),
    ] = 1.0
    seed: Annotated[int, option("--seed", panel=TRAINING, help="Of questions and order.")] = 0
    max_minutes: Annotated[
        float | None,
        option("--max-minutes", panel=TRAINING, help="Stop after so long; run again to go on."),
    ] = None
    checkpoint_minutes: Annotated[
        float, option("--checkpoint-minutes", panel=TRAINING, help="Time between checks.")
    ] = 5.0


@guarded
@grouped
def train_head(
    model: ModelOptions, data: DataOptions, training: TrainingOptions, common: CommonOptions
) -> None:
    """Train an EAGLE-3 head that drafts for a target.

    Writes config.json and model.safetensors in the format that SGLang and vLLM read, a card, and
    a log. Every checkpoint measures how often the head agrees with the target on held-out texts,
    and the accept length it reaches.
    """
    from adaptivespec.draft.choice import DrafterChoice
    from adaptivespec.engine.loading import load_head
    from adaptivespec.engine.weights import resolve_model
    from adaptivespec.train.head.options import TrainOptions
    from adaptivespec.train.head.run import CorpusOptions, HeadRun

    if not data.data and data.make_data is None:
        raise ConfigError(
            "nothing to train on",
            field="data",
            remedy="Give --data FILE, or --make-data TOKENS to let the target make its own",
        )
    corpus = CorpusOptions(
        make_data=data.make_data,
        max_len=data.max_len,
        train_tokens=data.train_tokens,
        seed=training.seed,
        held_out=data.held_out,
        draft_vocab_size=data.draft_vocab_size,
        intermediate_size=data.intermediate_size,
        check_prompts=data.check_prompts,
    )
    options = TrainOptions(**asdict(training))
    with display.progress(common.quiet) as progress:
        engine = model.load(progress)
    hub: dict[str, Any] = {
        "cache_dir": model.cache_dir,
        "local_files_only": True,  # the engine has fetched them
        "token": model.hub_token,
    }
    files = resolve_model(model.model_argument or model.model, revision=model.revision, **hub)
    if DrafterChoice.parse(model.draft_model).ngram:
        raise ConfigError(
            "n-grams are not trained",
            field="draft_model",
            remedy="Name a head to go on from, or leave it out",
        )
    start = None if data.from_scratch else load_head(model.draft_model, engine.model_name, hub)
    # A run in the background is ended by SIGTERM; like Ctrl-C, it keeps its steps.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with display.stages(common.quiet) as on_event:
        run = HeadRun(
            engine=engine,
            model_path=files.path,
            data=data.data or [],
            output=data.output,
            start=start,
            made=data.made,
            features=data.features,
            corpus=corpus,
            training=options,
            progress=on_event,
        )
        if data.data_only:
            run.prepare()
            return
        run.run()
    if not common.quiet:
        display.note(
            f"the head is in {data.output}; use it with --draft-model {data.output}", style="dim"
        )

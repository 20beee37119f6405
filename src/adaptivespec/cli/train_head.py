"""`adaptivespec train-head`: an EAGLE-3 head for a target, on the target's own answers."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from adaptivespec.cli import display
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import Backend, CommonOptions, ModelOptions, option

__all__ = ["EPILOG", "train_head"]

DATA, TRAINING = "Data", "Training"

EPILOG = """\
[bold]Examples[/bold]

adaptivespec train-head --data corpus.jsonl.gz --output my-head

adaptivespec train-head ./my-llama --data prompts.jsonl --output my-head --from-scratch

adaptivespec generate ./my-llama --draft-model my-head -p "Hello"

A line of the corpus is {"prompt": text, "response": text}, {"prompt": text} (the target answers it
first) or {"p": ids, "o": ids}. Run the same command again to go on after a stop.
"""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What is trained on, and where the head goes."""

    data: Annotated[Path, option("--data", panel=DATA, help="Corpus: .jsonl or .jsonl.gz.")]
    output: Annotated[Path, option("--output", "-o", panel=DATA, help="Directory of the new head.")]
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
        int, option("--draft-vocab-size", panel=DATA, help="Ids a new head can draft.")
    ] = 8192
    max_len: Annotated[
        int, option("--max-len", panel=DATA, help="Longest text in tokens; the rest is cut.")
    ] = 640
    held_out: Annotated[
        int, option("--held-out", panel=DATA, help="Prompts kept aside for the checks.")
    ] = 64
    check_prompts: Annotated[
        int, option("--check-prompts", panel=DATA, help="Held-out prompts for the accept length.")
    ] = 8


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How it is trained."""

    epochs: Annotated[int, option("--epochs", panel=TRAINING, help="Passes over the corpus.")] = 3
    batch_size: Annotated[
        int, option("--batch-size", panel=TRAINING, help="Texts per optimiser step.")
    ] = 4
    learning_rate: Annotated[
        float, option("--learning-rate", panel=TRAINING, help="Peak; a cosine follows.")
    ] = 1e-3
    unroll_steps: Annotated[
        int, option("--unroll-steps", panel=TRAINING, help="Depth of the training-time test.")
    ] = 3
    seed: Annotated[int, option("--seed", panel=TRAINING, help="Order of the texts.")] = 0
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
    from adaptivespec.draft.eagle3 import Eagle3Drafter
    from adaptivespec.engine.weights import resolve_model
    from adaptivespec.train.head import TrainOptions
    from adaptivespec.train.run import CorpusOptions, HeadRun

    corpus = CorpusOptions(
        max_len=data.max_len,
        held_out=data.held_out,
        draft_vocab_size=data.draft_vocab_size,
        check_prompts=data.check_prompts,
    )
    options = TrainOptions(**asdict(training))
    with display.progress(common.quiet) as progress:
        engine = model.load(progress, auto=Backend.torch)  # what gradients run on
    files = resolve_model(
        model.model_argument or model.model,
        revision=model.revision,
        cache_dir=model.cache_dir,
        local_files_only=True,
        token=model.hub_token,
    )
    drafter = engine.drafter
    start = drafter.checkpoint if isinstance(drafter, Eagle3Drafter) else None
    if data.from_scratch:
        start = None
    # A run in the background is ended by SIGTERM; like Ctrl-C, it keeps its steps.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with display.training(common.quiet) as on_event:
        HeadRun(
            engine=engine,
            model_path=files.path,
            data=data.data,
            output=data.output,
            start=start,
            features=data.features,
            corpus=corpus,
            training=options,
            progress=on_event,
        ).run()
    if not common.quiet:
        display.note(
            f"the head is in {data.output}; use it with --draft-model {data.output}", style="dim"
        )

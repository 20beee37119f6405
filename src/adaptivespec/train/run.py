"""From a corpus file to a head on disk: what the command `train-head` does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint, Eagle3Config
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.train.answers import answer
from adaptivespec.train.corpus import Item, clean, read_corpus, split
from adaptivespec.train.head import HeadTrainer, Progress, TrainEvent, TrainOptions
from adaptivespec.train.model import initial_checkpoint

CARD_FILE = "README.md"
CHECK_POLICY = "chain:5"


@dataclass(frozen=True)
class CorpusOptions:
    """How the corpus becomes training texts.  Lengths in tokens.

    Attributes:
        max_len: longest prompt + response; the rest is cut.
        held_out: prompts kept aside for the checks.
        answer_tokens: longest answer made for a prompt that has none.
        draft_vocab_size: ids the head can draft, the most frequent ones; for a new head only.
        check_prompts, check_tokens: size of the accept length check; 0 prompts turn it off.
    """

    max_len: int = 640
    held_out: int = 64
    answer_tokens: int = 256
    draft_vocab_size: int = 8192
    check_prompts: int = 8
    check_tokens: int = 64

    def __post_init__(self) -> None:
        for name, low in (("max_len", 32), ("held_out", 1), ("draft_vocab_size", 16)):
            if getattr(self, name) < low:
                raise ConfigError(f"must be at least {low}, got {getattr(self, name)}", field=name)


@dataclass
class HeadRun:
    """One training run.

    Args:
        engine: the target, in bfloat16 or float32.
        model_path: its directory or GGUF file.
        data: corpus, see `read_corpus`.
        output: where the head goes.
        start: head to go on from; None starts from the target's last layer.
        features: where hidden states are kept between runs.
    """

    engine: Engine
    model_path: Path
    data: Path
    output: Path
    start: Eagle3Checkpoint | None = None
    features: Path | None = None
    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    training: TrainOptions = field(default_factory=TrainOptions)
    progress: Progress = lambda event: None

    def run(self) -> Eagle3Checkpoint:
        """Train and write the head, its log and its card to `output`; returns the head.

        Raises:
            ConfigError: the corpus cannot be used, or an option is out of bounds.
            CheckpointError: `output` holds the state of another run.
        """
        target = self.engine.target
        if not isinstance(target, TorchTarget):
            raise ConfigError("must be a model that torch runs here", field="model")
        network, config = target.model, ModelConfig.from_dir(self.model_path)
        self.output.mkdir(parents=True, exist_ok=True)
        train, held_out = self._texts(config)
        start = self.start or self._new_head(config, train)
        trainer = HeadTrainer(
            network,
            start,
            train,
            held_out,
            self.output,
            self.features or self.output / "features",
            self.training,
            self.progress,
            self._check(target, held_out),
        )
        head = trainer.run()
        self._write_card(head, train, held_out)
        return head

    def _texts(self, config: ModelConfig) -> tuple[list[Item], list[Item]]:
        tokenizer, options = self.engine.tokenizer, self.corpus

        def prompt_ids(text: str) -> list[int]:
            if not tokenizer.has_chat_template:
                return tokenizer.encode(text)
            return tokenizer.apply_chat_template([{"role": "user", "content": text}])

        items = read_corpus(self.data, prompt_ids, tokenizer.encode)
        wrong = [i for item in items for i in item.tokens if not 0 <= i < config.vocab_size]
        if wrong:
            raise ConfigError(
                f"{self.data} holds token id {wrong[0]}, the target's lie in "
                f"[0, {config.vocab_size})",
                field="data",
                remedy="Use a corpus made with this target, or give text instead of ids",
            )
        if any(not item.response for item in items):
            path = self.output / "answers.jsonl"
            items = answer(self.engine, items, path, options.answer_tokens, self._stage("answers"))
        train, held_out = split(clean(items, options.max_len), options.held_out)
        if not train or not held_out:
            raise ConfigError(
                f"{self.data} leaves {len(train)} training and {len(held_out)} held-out texts "
                "after cleaning",
                field="data",
                remedy="Give more texts, or fewer --held-out",
            )
        return train, held_out

    def _stage(self, stage: str) -> Callable[[int, int], None]:
        return lambda done, total: self.progress(TrainEvent(stage, done, total))

    def _new_head(self, config: ModelConfig, train: Sequence[Item]) -> Eagle3Checkpoint:
        counts = Counter(token for item in train for token in item.response)
        size = min(self.corpus.draft_vocab_size, config.vocab_size)
        # Ids never seen fill up from the low end, where byte-pair vocabularies keep common pieces.
        frequent = sorted(range(config.vocab_size), key=lambda i: (-counts[i], i))[:size]
        head_config = Eagle3Config(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            vocab_size=config.vocab_size,
            draft_vocab_size=size,
            rope_theta=config.rope_theta,
            rms_norm_eps=config.rms_norm_eps,
            rope_scaling=config.rope_scaling,
            max_position_embeddings=config.max_position_embeddings,
        )
        head_config = replace(head_config, tap_layers=head_config.taps_for(config.num_layers))
        weights = load_weights(self.model_path, config)
        ids = torch.tensor(sorted(frequent))
        return initial_checkpoint(head_config, weights, config.num_layers, ids)

    def _check(
        self, target: TorchTarget, held_out: Sequence[Item]
    ) -> Callable[[Eagle3Checkpoint], dict[str, float]] | None:
        """Accept length on held-out prompts, greedy, strict, with the head as it is served."""
        options = self.corpus
        prompts = [item.prompt for item in held_out[:: max(len(held_out) // 8, 1)]]
        prompts = prompts[: options.check_prompts]
        if not prompts:
            return None

        def check(head: Eagle3Checkpoint) -> dict[str, float]:
            drafter = Eagle3Drafter(
                head,
                target.model.embedding,
                target.limits.num_layers,
                target.limits.max_model_len,
                target.dtype,
            )
            engine = Engine(target, self.engine.tokenizer, drafter, self.engine.model_name)
            tokens = steps = 0
            for prompt in prompts:
                stats = engine.generate(
                    list(prompt), policy=CHECK_POLICY, max_tokens=options.check_tokens
                ).stats
                tokens += stats.num_committed_tokens
                steps += stats.num_spec_steps
            return {"accept_length": round(tokens / max(steps, 1), 4)}

        return check

    def _write_card(
        self, head: Eagle3Checkpoint, train: Sequence[Item], held_out: Sequence[Item]
    ) -> None:
        """A model card from what was measured in this run."""
        rows = [
            json.loads(line)
            for line in (self.output / "log.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        last: dict[str, Any] = rows[-1]
        kinds = Counter(item.kind or "other" for item in train)
        tokens = sum(len(item.response) for item in train)
        accuracy = "\n".join(
            f"| {kind} | " + " | ".join(f"{value:.3f}" for value in values) + " |"
            for kind, values in last["accuracy"].items()
        )
        steps = range(1, len(last["accuracy"]["all"]) + 1)
        header = "| kind | " + " | ".join(f"step {k}" for k in steps) + " |"
        rule = "|---|" + "---|" * len(steps)
        accept = last.get("accept_length")
        text = f"""# EAGLE-3 head for {self.engine.model_name}

One decoder layer that drafts for {self.engine.model_name}; hidden size {head.config.hidden_size},
draft vocabulary {head.config.draft_vocab_size} of {head.config.vocab_size}, bfloat16.

* Data: {len(train)} answers of the target, {tokens} response tokens ({dict(kinds)});
  {len(held_out)} texts held out.
* Steps: {last["step"]} in {last["minutes"]} minutes. Options: `{json.dumps(asdict(self.training))}`
* Accept length on held-out prompts (greedy, strict, {CHECK_POLICY}): {accept}

Share of held-out positions whose next token is the head's first choice, by unroll step:

{header}
{rule}
{accuracy}
"""
        (self.output / CARD_FILE).write_text(text, encoding="utf-8")

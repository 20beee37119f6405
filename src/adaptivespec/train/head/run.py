"""From a corpus file to a head on disk: what the command `train-head` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.progress import Progress, StageEvent
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint, Eagle3Config
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.loading import drafter_for
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.train.data.corpus import Item, clean, read_corpus, some, split
from adaptivespec.train.data.features import FeatureShards, FeatureStore, fingerprint
from adaptivespec.train.data.make import CorpusMaker
from adaptivespec.train.data.plan import MakeOptions
from adaptivespec.train.data.questions import Question
from adaptivespec.train.head.card import CHECK_POLICY, write_card
from adaptivespec.train.head.grow import grow
from adaptivespec.train.head.model import initial_checkpoint
from adaptivespec.train.head.options import TrainOptions
from adaptivespec.train.head.teacher import Teacher
from adaptivespec.train.head.trainer import HeadTrainer

#: Of a new head where nothing else is asked for.
DRAFT_VOCAB_SIZE = 8192


@dataclass(frozen=True)
class CorpusOptions:
    """How the corpus becomes training texts.  Lengths in tokens.

    Attributes:
        make_data: response tokens to make, from the built-in questions and those of the data.
        max_len: longest prompt + response; the rest is cut.
        held_out: prompts kept aside for the checks.
        train_tokens: response tokens to train on, a random part of the corpus; None for all.
        answer_tokens: longest answer made for a question.
        draft_vocab_size: ids the head can draft, the most frequent ones; None keeps those of the
            head to start from, and is 8192 for a new one.
        intermediate_size: of the head's MLP; None keeps it, and is the target's for a new head.
        check_prompts, check_tokens: size of the accept length check; 0 prompts turn it off.
        seed: of the questions and of the answers that are made.
    """

    make_data: int | None = None
    max_len: int = 640
    held_out: int = 64
    train_tokens: int | None = None
    answer_tokens: int = 256
    draft_vocab_size: int | None = None
    intermediate_size: int | None = None
    check_prompts: int = 8
    check_tokens: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (
            ("max_len", 32),
            ("held_out", 1),
            ("draft_vocab_size", 16),
            ("intermediate_size", 16),
            ("train_tokens", 1),
            ("make_data", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"must be at least {low}, got {value}", field=name)


@dataclass
class HeadRun:
    """One training run.

    Args:
        engine: the target.
        model_path: its directory or GGUF file.
        data: corpora, see `read_corpus`.
        output: where the head goes.
        start: head to go on from; None starts from the target's last layer.
        made: where the answers that are made are kept between runs.
        features: where hidden states are kept between runs.
    """

    engine: Engine
    model_path: Path
    data: Sequence[Path]
    output: Path
    start: Eagle3Checkpoint | None = None
    made: Path | None = None
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
        shards, train, held_out = self.prepare()
        workers = torch.get_num_threads()
        config = ModelConfig.from_dir(self.model_path)
        weights = load_weights(self.model_path, config)
        teacher = _teacher(weights, config)
        start = self._start(config, weights, teacher, train)
        del weights
        trainer = HeadTrainer(
            teacher,
            start,
            FeatureStore(shards, train),
            FeatureStore(shards, held_out),
            self.output,
            self.training,
            self.progress,
            self._check(held_out),
            workers,
        )
        head = trainer.run()
        write_card(self.output, self.engine.model_name, head, self.training, train, held_out)
        return head

    def prepare(self) -> tuple[FeatureShards, list[Item], list[Item]]:
        """The features of all texts, the texts to train on and those held out.

        Raises:
            ConfigError: the corpus cannot be used.
            CheckpointError: answers or features that are there belong to other options.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        config = ModelConfig.from_dir(self.model_path)
        head = self.start.config if self.start else _head_config(config, DRAFT_VOCAB_SIZE)
        shards = FeatureShards(
            (self.features or self.output / "features") / fingerprint(self.model_path),
            self.engine.target,
            head.taps_for(config.num_layers),
        )
        train, held_out = self._texts(config, shards)
        workers = torch.get_num_threads()
        shards.build([*held_out, *train], workers, self._stage("features"))
        return shards, train, held_out

    def _texts(self, config: ModelConfig, shards: FeatureShards) -> tuple[list[Item], list[Item]]:
        tokenizer, options = self.engine.tokenizer, self.corpus

        def prompt_ids(text: str) -> list[int]:
            if not tokenizer.has_chat_template:
                return tokenizer.encode(text)
            return tokenizer.apply_chat_template([{"role": "user", "content": text}])

        items: list[Item] = []
        asked: list[Question] = []
        for path in self.data:
            corpus = read_corpus(path, prompt_ids, tokenizer.encode)
            items += corpus.items
            asked += corpus.questions
        wrong = [i for item in items for i in item.tokens if not 0 <= i < config.vocab_size]
        if wrong:
            raise ConfigError(
                f"the corpus holds token id {wrong[0]}, the target's lie in "
                f"[0, {config.vocab_size})",
                field="data",
                remedy="Use a corpus made with this target, or give text instead of ids",
            )
        if asked or options.make_data:
            made = MakeOptions(
                options.make_data, options.answer_tokens, options.max_len, options.seed
            )
            maker = CorpusMaker(
                self.engine.target,
                tokenizer,
                self.made or self.output / "corpus",
                asked,
                made,
                shards,
                fingerprint(self.model_path),
            )
            items += maker.run(torch.get_num_threads(), self._stage("answers"))
        train, held_out = split(clean(items, options.max_len), options.held_out)
        if not train or not held_out:
            raise ConfigError(
                f"the corpus leaves {len(train)} training and {len(held_out)} held-out texts "
                "after cleaning",
                field="data",
                remedy="Give more texts, let --make-data make some, or give fewer --held-out",
            )
        return some(train, options.train_tokens), held_out

    def _stage(self, stage: str) -> Callable[[int, int], None]:
        return lambda done, total: self.progress(StageEvent(stage, done, total))

    def _start(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        teacher: Teacher,
        train: Sequence[Item],
    ) -> Eagle3Checkpoint:
        """The head to go on from, grown where other sizes are asked for, or a new one."""
        vocab, width = self.corpus.draft_vocab_size, self.corpus.intermediate_size
        if self.start is not None:
            ids = None if vocab is None else _frequent(train, vocab, config.vocab_size)
            return grow(self.start, intermediate_size=width, target_ids=ids, teacher=teacher)
        ids = _frequent(train, vocab or DRAFT_VOCAB_SIZE, config.vocab_size)
        head = _head_config(config, len(ids))
        new = initial_checkpoint(head, weights, config.num_layers, ids)
        return grow(new, intermediate_size=width, teacher=teacher)

    def _check(
        self, held_out: Sequence[Item]
    ) -> Callable[[Eagle3Checkpoint], dict[str, float]] | None:
        """Accept length on held-out prompts, greedy, strict, with the head as it is served."""
        options, target = self.corpus, self.engine.target
        prompts = [item.prompt for item in held_out[:: max(len(held_out) // 8, 1)]]
        prompts = prompts[: options.check_prompts]
        if not prompts:
            return None

        def check(head: Eagle3Checkpoint) -> dict[str, float]:
            drafter = drafter_for(target, head)
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


def _frequent(train: Sequence[Item], count: int, vocab_size: int) -> Tensor:
    """The `count` ids that answers hold most often, ascending."""
    counts = Counter(token for item in train for token in item.response)
    # Ids never seen fill up from the low end, where byte-pair vocabularies keep common pieces.
    ids = sorted(range(vocab_size), key=lambda i: (-counts[i], i))[:count]
    return torch.tensor(sorted(ids))


def _head_config(config: ModelConfig, draft_vocab_size: int) -> Eagle3Config:
    """A head of the target's own sizes."""
    head = Eagle3Config(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        draft_vocab_size=draft_vocab_size,
        rope_theta=config.rope_theta,
        rms_norm_eps=config.rms_norm_eps,
        rope_scaling=config.rope_scaling,
        max_position_embeddings=config.max_position_embeddings,
    )
    return replace(head, tap_layers=head.taps_for(config.num_layers))


def _teacher(weights: Mapping[str, Tensor], config: ModelConfig) -> Teacher:
    embedding = weights["model.embed_tokens.weight"]
    output = weights.get("lm_head.weight", embedding).float() * weights["model.norm.weight"].float()
    eos = config.eos_token_ids
    return Teacher(embedding.bfloat16(), output.bfloat16(), config.rms_norm_eps, eos)

"""Train an EAGLE-3 head: features, unrolled steps, checkpoints that resume, held-out checks."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.engine.model.llama import Llama
from adaptivespec.train.corpus import Item
from adaptivespec.train.features import FeatureStore, Sequence_
from adaptivespec.train.model import Eagle3Module, SoftCrossEntropy

STATE_FILE = "training-state.pt"
LOG_FILE = "log.jsonl"
LENGTH_STEP, ROWS_STEP = 64, 256


@dataclass(frozen=True)
class TrainOptions:
    """How to train.  Lengths in tokens, rates per optimiser step."""

    epochs: int = 3
    batch_size: int = 4
    learning_rate: float = 1e-3
    warmup_steps: int = 40
    final_rate: float = 0.03  # of the peak, where the cosine ends
    unroll_steps: int = 3
    step_weight: float = 0.8  # loss of unroll step k counts step_weight ** k
    checkpoint_minutes: float = 5.0
    max_minutes: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "unroll_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"must be at least 1, got {getattr(self, name)}", field=name)
        if not 0 < self.learning_rate < 1:
            raise ConfigError(
                f"must lie in (0, 1), got {self.learning_rate}", field="learning_rate"
            )


@dataclass
class TrainEvent:
    """What a progress display shows: `stage` is features, train or check."""

    stage: str
    done: int
    total: int
    values: dict[str, Any] = field(default_factory=dict)


Progress = Callable[[TrainEvent], None]


class HeadTrainer:
    """Trains `start` on `train` items, checks on `held_out`, writes to `output`.

    `output` gets the newest head (config.json, model.safetensors), `training-state.pt` with the
    optimiser, and `log.jsonl`.  A second run with the same output and options goes on where the
    first one stopped, on another machine too.

    Args:
        check: optional; called with the current head at every checkpoint, its numbers are logged.
    """

    def __init__(
        self,
        model: Llama,
        start: Eagle3Checkpoint,
        train: Sequence[Item],
        held_out: Sequence[Item],
        output: Path,
        features: Path,
        options: TrainOptions,
        progress: Progress | None = None,
        check: Callable[[Eagle3Checkpoint], dict[str, float]] | None = None,
    ) -> None:
        self.target, self.options, self.output = model, options, output
        self.progress = progress or (lambda event: None)
        self.check = check
        taps = start.config.taps_for(model.config.num_layers)
        self.train_set = FeatureStore(features / "train", train, model, taps)
        self.held_out_set = FeatureStore(features / "held-out", held_out, model, taps)
        longest = max(len(i.tokens) for i in (*train, *held_out))
        positions = _rounded(longest, LENGTH_STEP) + options.unroll_steps
        self.module = Eagle3Module(start, model.embedding, positions)
        self.target_ids = start.target_ids
        in_vocabulary = torch.zeros(start.config.vocab_size, dtype=torch.bool)
        in_vocabulary[self.target_ids] = True
        self.in_vocabulary = in_vocabulary
        self.optimiser = torch.optim.AdamW(
            self.module.parameters(),
            lr=options.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=True,
        )
        self.step, self.seconds = 0, 0.0
        batches = math.ceil(len(train) / options.batch_size)
        self.total_steps = batches * options.epochs

    def run(self) -> Eagle3Checkpoint:
        """Train to the end of the schedule, or until `max_minutes`; returns the head."""
        self.output.mkdir(parents=True, exist_ok=True)
        for store in (self.held_out_set, self.train_set):
            store.build(lambda done, total: self.progress(TrainEvent("features", done, total)))
        self._resume()
        if self.step == 0:
            self._save(self.evaluate())
        try:
            self._train()
        except KeyboardInterrupt:
            self._save_state()
            raise
        self._save(self.evaluate())
        return self.module.checkpoint()

    def _train(self) -> None:
        """Optimiser steps until the schedule or the allowed time ends."""
        options = self.options
        per_epoch = self.total_steps // options.epochs
        saved = last = time.monotonic()
        while self.step < self.total_steps:
            epoch = self.step // per_epoch
            for batch in self._batches(epoch)[self.step - epoch * per_epoch :]:
                loss, accuracy = self._train_step(batch)
                self.step += 1
                now = time.monotonic()
                self.seconds += now - last
                last = now
                values = {"epoch": epoch, "loss": loss, "accuracy": accuracy}
                self.progress(TrainEvent("train", self.step, self.total_steps, values))
                if now - saved > options.checkpoint_minutes * 60:
                    self._save(self.evaluate())
                    saved = last = time.monotonic()
                if options.max_minutes and self.seconds > options.max_minutes * 60:
                    return

    @torch.no_grad()
    def evaluate(self) -> dict[str, Any]:
        """Top-1 accuracy per unroll step on the held-out texts, in all and by kind."""
        hits: dict[str, Tensor] = {}
        steps = self.options.unroll_steps
        for i, item in enumerate(self.held_out_set.items):
            sequence = self.held_out_set[i]
            row = torch.zeros(2, steps)
            for k, (logits, target) in enumerate(self._outputs([sequence])):
                best = self.target_ids[logits[: target.greedy.numel()].argmax(-1)]
                row[0, k] = (best == target.greedy).sum()
                row[1, k] = target.greedy.numel()
            for name in ("all", item.kind or "other"):
                hits[name] = hits.get(name, torch.zeros(2, steps)) + row
        accuracy = {
            name: [round(float(v), 4) for v in h[0] / h[1].clamp(min=1)] for name, h in hits.items()
        }
        return {
            "accuracy": accuracy,
            **(self.check(self.module.checkpoint()) if self.check else {}),
        }

    def _train_step(self, batch: Sequence[int]) -> tuple[list[float], list[float]]:
        options = self.options
        progress = self.step / self.total_steps
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        rate = options.learning_rate * min(1.0, (self.step + 1) / options.warmup_steps)
        rate *= options.final_rate + (1 - options.final_rate) * cosine
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        losses, accuracy = [], []
        total = torch.zeros(())
        for k, (logits, target) in enumerate(self._outputs([self.train_set[i] for i in batch])):
            loss, hits = SoftCrossEntropy.apply(logits, target.logits, target.index, target.best)
            total = total + loss * options.step_weight**k
            losses.append(float(loss.detach()))
            accuracy.append(float(hits))
        self.optimiser.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimiser.step()
        return losses, accuracy

    def _outputs(self, sequences: Sequence[Sequence_]) -> Any:
        """Yield per unroll step the draft logits at the rows that count, and their targets.

        Lengths and numbers of rows are rounded up, so that the matrix kernels, which are compiled
        for a shape, meet few shapes; logits beyond the target's rows belong to nothing.
        """
        steps = self.options.unroll_steps
        rows = _rounded(max(s.tokens.shape[0] for s in sequences), LENGTH_STEP)
        count, width = len(sequences), rows + steps + 2
        tokens = torch.zeros(count, width, dtype=torch.long)
        greedy = torch.zeros(count, width, dtype=torch.long)
        useful = torch.zeros(count, width, dtype=torch.bool)
        taps = torch.zeros(count, rows, sequences[0].taps.shape[1], dtype=torch.bfloat16)
        final = torch.zeros(count, width, sequences[0].final.shape[1], dtype=torch.bfloat16)
        eos = torch.tensor(self.target.config.eos_token_ids)
        for b, s in enumerate(sequences):
            n = s.tokens.shape[0]
            tokens[b, :n], greedy[b, :n] = s.tokens, s.greedy
            taps[b, :n], final[b, :n] = s.taps, s.final
            # Row p counts when the target's choice after token p is draftable and the answer
            # has not ended before it.
            ends = torch.isin(s.tokens, eos)
            useful[b, s.prompt_len : n] = (self.in_vocabulary[s.greedy] & ~ends)[s.prompt_len :]
        first = torch.tensor([s.prompt_len - 1 for s in sequences])[:, None]
        after_prompt = torch.arange(rows)[None] >= first
        flat = useful.reshape(-1).nonzero()[:, 0]
        place = torch.full((count * width,), -1)
        place[flat] = torch.arange(flat.shape[0])
        with torch.no_grad():
            padded = F.pad(flat, (0, _rounded(flat.shape[0], ROWS_STEP) - flat.shape[0]))
            normed = self.target.norm(final.reshape(-1, final.shape[-1])[padded])
            target_logits = F.linear(normed, self._target_head())
            best = target_logits.argmax(-1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for k, normed in enumerate(self.module.unroll(taps, tokens, steps)):
                mask = useful[:, k + 1 : k + 1 + rows] & after_prompt
                row, t = mask.nonzero(as_tuple=True)
                said = (row, t + k + 1)  # where the target speaks of the same token
                at = place.view(count, width)[said]
                target = _Target(greedy[said], target_logits, best, at)
                extra = (0, _rounded(t.shape[0], ROWS_STEP) - t.shape[0])
                chosen = normed[F.pad(row, extra), F.pad(t, extra)]
                yield self.module.logits(chosen), target

    def _target_head(self) -> Tensor:
        """The target's output rows for the draft vocabulary, norm gain folded in, bf16."""
        if not hasattr(self, "_head_rows"):
            self._head_rows = self.target.output_rows(self.target_ids).bfloat16()
        return self._head_rows

    def _batches(self, epoch: int) -> list[list[int]]:
        """Batches of like length in a random order; the same for a given seed and epoch."""
        rng = random.Random(f"{self.options.seed}-{epoch}")  # noqa: S311  not for secrets
        size = self.options.batch_size
        order = list(range(len(self.train_set.items)))
        rng.shuffle(order)
        batches = []
        for start in range(0, len(order), 64 * size):
            part = sorted(
                order[start : start + 64 * size], key=lambda i: len(self.train_set.items[i].tokens)
            )
            batches += [part[i : i + size] for i in range(0, len(part), size)]
        rng.shuffle(batches)
        return batches

    def _save(self, values: dict[str, Any]) -> None:
        """Write the head, the state to go on from, and a line of the log."""
        self.module.checkpoint().save(self.output)
        self._save_state()
        row = {"step": self.step, "minutes": round(self.seconds / 60, 2), **values}
        with (self.output / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        self.progress(TrainEvent("check", self.step, self.total_steps, row))

    def _save_state(self) -> None:
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "options": asdict(self.options),
            "weights": self.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        partial = self.output / (STATE_FILE + ".partial")
        torch.save(state, partial)
        partial.replace(self.output / STATE_FILE)

    def _resume(self) -> None:
        path = self.output / STATE_FILE
        if not path.exists():
            return
        remedy = "Give another --output, or remove the file to start again"
        try:
            state = torch.load(path, weights_only=True)
            made_with = state["options"]
        except Exception as error:  # a damaged pickle raises whatever its bytes lead to
            raise CheckpointError(
                f"{path} cannot be resumed: {error!r}", field="output", remedy=remedy
            ) from error
        same = ("epochs", "batch_size", "unroll_steps", "seed", "learning_rate")
        differ = [name for name in same if made_with[name] != getattr(self.options, name)]
        if differ:
            raise CheckpointError(
                f"{path} was made with other values of {', '.join(differ)}",
                field="output",
                remedy=f"Give the same options to go on. {remedy}",
            )
        try:
            self.module.load_state_dict(state["weights"])
            self.optimiser.load_state_dict(state["optimiser"])
        except (RuntimeError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"{path} is of another head: {error}", field="output", remedy=remedy
            ) from error
        self.step, self.seconds = state["step"], state["seconds"]


def _rounded(number: int, step: int) -> int:
    """`number` rounded up to a multiple of `step`, at least one step."""
    return max(-(-number // step), 1) * step


@dataclass
class _Target:
    """What the target said at the rows that count."""

    greedy: Tensor  # i64[n], its choice
    logits: Tensor  # bf16[m, draft vocab], its logits over the draft vocabulary
    best: Tensor  # i64[m], their argmax
    index: Tensor  # i64[n], the row of `logits` for each row

"""Train an EAGLE-3 head: unrolled steps, checkpoints that resume, held-out checks."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, NumericalError
from adaptivespec.core.progress import Progress, StageEvent
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.train.head.batch import TextFeatures, batches
from adaptivespec.train.head.grow import tied
from adaptivespec.train.head.lane import Lane
from adaptivespec.train.head.model import Eagle3Module
from adaptivespec.train.head.options import TrainOptions
from adaptivespec.train.head.pack import LENGTH_STEP, rounded
from adaptivespec.train.head.state import REMEDY, STATE_FILE, load_state, save_state
from adaptivespec.train.head.teacher import Teacher

LOG_FILE = "log.jsonl"
#: Unroll steps of the held-out checks, however many are trained.
CHECK_STEPS = 5
#: Texts that a held-out check computes together.
CHECK_TEXTS = 8
#: Optimiser steps that the reported speed is a mean of.
SPEED_STEPS = 20
#: Optimiser steps between two updates of the moving average, whose decay is taken to this power.
AVERAGE_STEPS = 4


class HeadTrainer:
    """Trains `start` on `train`, checks on `held_out`, writes to `output`.

    `output` gets the newest head (config.json, model.safetensors), `training-state.pt` with the
    optimiser, and `log.jsonl`.  A second run with the same output and options goes on where the
    first one stopped, on another machine too.

    Args:
        teacher: the target's frozen parts.
        start: the head to train; its config says how many taps the features hold.
        train, held_out: texts with features that exist already.
        check: optional; called with the current head at every checkpoint, its numbers are logged.
        workers: threads that share a batch. Their number changes how sums are rounded.
    """

    #: Of activations and of the weights' copies that compute; parameters are float32.
    dtype = torch.bfloat16

    def __init__(
        self,
        teacher: Teacher,
        start: Eagle3Checkpoint,
        train: TextFeatures,
        held_out: TextFeatures,
        output: Path,
        options: TrainOptions,
        progress: Progress | None = None,
        check: Callable[[Eagle3Checkpoint], dict[str, float]] | None = None,
        workers: int = 1,
    ) -> None:
        start.check_target(teacher.vocab_size, teacher.hidden_size)
        self.train_set, self.held_out_set = train, held_out
        self.options, self.output, self.check = options, output, check
        self.progress = progress or (lambda event: None)
        longest = max(len(i.tokens) for store in (train, held_out) for i in store.items)
        most_steps = max(options.unroll_steps, CHECK_STEPS)
        positions = rounded(longest + most_steps, LENGTH_STEP) + most_steps
        frozen = frozenset({"lm_head.weight"} if options.tie_output else ())
        start = tied(start, teacher) if options.tie_output else start
        self.module = Eagle3Module(start, teacher.embedding, positions, self.dtype, frozen)
        siblings = [self.module.sibling() for _ in range(min(workers, options.batch_size) - 1)]
        self.lanes = [
            Lane(module, teacher, options, options.unroll_steps)
            for module in (self.module, *siblings)
        ]
        self.checks = Lane(self.module, teacher, options, CHECK_STEPS)
        self.optimiser = torch.optim.AdamW(
            self.module.learning(),
            lr=options.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=True,
        )
        self.average = (
            {name: p.detach().clone() for name, p in self.module.weights.items()}
            if options.average
            else None
        )
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self._map: Callable[..., Iterator[Any]] = map
        self.per_epoch = math.ceil(len(train.items) / options.batch_size)
        self.total_steps = self.per_epoch * options.epochs
        if options.max_steps is not None:
            self.total_steps = min(self.total_steps, options.max_steps)

    def run(self) -> Eagle3Checkpoint:
        """Train to the end of the schedule, or until `max_minutes`; returns the head.

        Raises:
            CheckpointError: `output` holds the state of another run.
            NumericalError: the loss or a gradient is not finite; what was saved before is intact.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        self._resume()
        if self.step == 0:
            self._save(self.evaluate())
        try:
            with self._threads():
                self._train()
        except KeyboardInterrupt:
            self._save_state()
            raise
        self._save(self.evaluate())
        return self.checkpoint()

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Threads of the lanes, if there are several; each computes with one torch thread."""
        if len(self.lanes) == 1:
            yield
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(len(self.lanes), initializer=_one_thread) as pool:
                self._map = pool.map
                yield
        finally:
            self._map = map
            torch.set_num_threads(threads)

    def checkpoint(self) -> Eagle3Checkpoint:
        """A copy of the head as it is written: the average where there is one."""
        return self.module.checkpoint(self.average)

    def _train(self) -> None:
        """Optimiser steps until the schedule or the allowed time ends."""
        options, items = self.options, self.train_set.items
        recent: deque[tuple[int, float]] = deque(maxlen=SPEED_STEPS)
        saved = last = time.monotonic()
        while self.step < self.total_steps:
            epoch = self.step // self.per_epoch
            order = batches(items, options.batch_size, f"{options.seed}-{epoch}")
            first = epoch * self.per_epoch
            for batch in order[self.step - first : self.total_steps - first]:
                loss, accuracy = self._train_step(batch)
                now = time.monotonic()
                tokens = sum(len(items[i].response) for i in batch)
                recent.append((tokens, now - last))
                self.step, self.tokens = self.step + 1, self.tokens + tokens
                self.seconds += now - last
                last = now
                speed = sum(t for t, _ in recent) / max(sum(s for _, s in recent), 1e-9)
                values = {
                    "epoch": epoch,
                    "loss": loss,
                    "accuracy": accuracy,
                    "tokens_per_s": round(speed, 1),
                }
                self.progress(StageEvent("train", self.step, self.total_steps, values))
                if now - saved > options.checkpoint_minutes * 60:
                    self._save(self.evaluate())
                    saved = last = time.monotonic()
                if options.max_minutes and self.seconds > options.max_minutes * 60:
                    return

    def _train_step(self, texts: Sequence[int]) -> tuple[list[float], list[float]]:
        """One optimiser step; the mean loss and accuracy per unroll step."""
        rate = self._rate()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        losses, accuracy = self._gradients(texts)
        norm = torch.nn.utils.clip_grad_norm_(self.module.learning(), 1.0)
        self._require_finite("gradient's norm", float(norm))
        self.optimiser.step()
        self._update_average()
        return losses, accuracy

    def _gradients(self, texts: Sequence[int]) -> tuple[list[float], list[float]]:
        """Give every learning parameter its gradient; see `_train_step`."""
        self.module.refresh()
        lanes = self.lanes[: len(texts)]
        for lane in lanes[1:]:
            lane.module.follow(self.module)
        # A batch is of like length in rising order, so every lane gets about as much.
        shares = [[self.train_set[i] for i in texts[n :: len(lanes)]] for n in range(len(lanes))]
        names = [f"{self.step}-{n}" for n in range(len(lanes))]
        parts = list(self._map(Lane.part, lanes, shares, names))
        counts = [sum(each) for each in zip(*(part.counts for part in parts), strict=True)]
        learned = list(self._map(Lane.learn, lanes, parts, [counts] * len(lanes)))
        losses = _means([part.losses for part in learned], counts)
        accuracy = _means([part.hits for part in learned], counts)
        self._require_finite("loss", sum(losses))
        for name, p in self.module.weights.items():
            found = [part.gradients[name] for part in learned if name in part.gradients]
            if found:
                p.grad = found[0].float() if p.grad is None else p.grad.copy_(found[0])
                for other in found[1:]:
                    p.grad.add_(other)
        return losses, accuracy

    def _rate(self) -> float:
        """Linear rise to the peak, then a cosine to `final_rate` of it."""
        options = self.options
        cosine = 0.5 * (1 + math.cos(math.pi * self.step / self.total_steps))
        rise = min(1.0, (self.step + 1) / max(options.warmup_steps, 1))
        return (
            options.learning_rate * rise * (options.final_rate + (1 - options.final_rate) * cosine)
        )

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.average is None or (self.step + 1) % AVERAGE_STEPS:
            return
        # The first weights are forgotten sooner than the decay alone would.
        updates = (self.step + 1) // AVERAGE_STEPS
        decay = min(self.options.average**AVERAGE_STEPS, updates / (updates + 9))
        now = [self.module.weights[name] for name in self.average]
        torch._foreach_lerp_(list(self.average.values()), now, 1 - decay)

    @torch.no_grad()
    def evaluate(self) -> dict[str, Any]:
        """Top-1 accuracy per unroll step on the held-out texts, in all and by kind; mean loss."""
        steps, items = CHECK_STEPS, self.held_out_set.items
        hits: dict[str, Tensor] = {}
        losses = torch.zeros(steps)
        order = sorted(range(len(items)), key=lambda i: len(items[i].tokens))
        with self._averaged():
            self.module.refresh()
            for start in range(0, len(order), CHECK_TEXTS):
                part = order[start : start + CHECK_TEXTS]
                table = torch.zeros(len(part), 2, steps)  # [text, hits or rows, step]
                texts = [self.held_out_set[i] for i in part]
                for k, (text, result) in enumerate(self.checks.judge(texts)):
                    table[:, 0, k].index_add_(0, text, result.hits.float())
                    table[:, 1, k] = torch.bincount(text, minlength=len(part))
                    losses[k] += result.losses.sum()
                for i, row in zip(part, table, strict=True):
                    for name in ("all", items[i].kind or "other"):
                        hits[name] = hits.get(name, torch.zeros(2, steps)) + row
        share = {name: h[0] / h[1].clamp(min=1) for name, h in hits.items()}
        return {
            "accuracy": {name: [round(float(v), 4) for v in row] for name, row in share.items()},
            "loss": [round(float(v), 4) for v in losses / hits["all"][1].clamp(min=1)],
            **(self.check(self.checkpoint()) if self.check else {}),
        }

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The module with the average as its weights, where there is one."""
        if self.average is None:
            yield
            return
        raw = {name: p.data for name, p in self.module.weights.items()}
        try:
            for name, p in self.module.weights.items():
                p.data = self.average[name]
            yield
        finally:
            for name, p in self.module.weights.items():
                p.data = raw[name]

    def _require_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise NumericalError(
                f"the {what} of optimiser step {self.step + 1} is {value}",
                step=self.step,
                field="learning_rate",
                remedy="Lower the learning rate or lengthen the warm-up, and give another output; "
                "the head saved before is intact",
            )

    def _save(self, values: dict[str, Any]) -> None:
        """Write the head, the state to go on from, and a line of the log."""
        head = self.checkpoint()
        for name, tensor in head.tensors.items():
            self._require_finite(f"largest value of {name}", float(tensor.abs().max()))
        head.save(self.output)
        self._save_state()
        row = {
            "step": self.step,
            "minutes": round(self.seconds / 60, 2),
            "tokens": self.tokens,
            **values,
        }
        with (self.output / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        self.progress(StageEvent("check", self.step, self.total_steps, row))

    def _save_state(self) -> None:
        save_state(
            self.output / STATE_FILE,
            {
                "step": self.step,
                "tokens": self.tokens,
                "seconds": self.seconds,
                "options": asdict(self.options),
                "weights": self.module.state_dict(),
                "average": self.average,
                "optimiser": self.optimiser.state_dict(),
            },
        )

    def _resume(self) -> None:
        path = self.output / STATE_FILE
        state = load_state(path, self.options)
        if state is None:
            return
        try:
            self.module.load_state_dict(state["weights"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.average = state["average"]
            self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]
        except (RuntimeError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"{path} is of another head: {error}", field="output", remedy=REMEDY
            ) from error


def _one_thread() -> None:
    torch.set_num_threads(1)


def _means(sums: Sequence[Sequence[float]], counts: Sequence[int]) -> list[float]:
    """Per unroll step the sums of all lanes over the rows that counted."""
    total = (sum(each) for each in zip(*sums, strict=True))
    return [value / max(count, 1) for value, count in zip(total, counts, strict=True)]

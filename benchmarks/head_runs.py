"""The measuring of `head.py`: engines that share a target, prompts in turn, several processes."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from head_confidence import judged_nodes
from tasks import progress, prompts

from adaptivespec import Engine
from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.loading import drafter_for, load_head

SHIPPED = "shipped"

Row = dict[str, Any]


class Setup(NamedTuple):
    """What engines are made of; `heads` are (name, path), the path of the shipped one None."""

    heads: tuple[tuple[str, str | None], ...]
    backend: str
    dtype: str
    threads: int | None


class Job(NamedTuple):
    """A prompt for one head: its task, its number within the task from 0, its text."""

    head: str
    task: str
    number: int
    text: str

    @property
    def place(self) -> Row:
        """What identifies the rows of this job."""
        return {"head": self.head, "task": self.task, "index": self.number}


Measure = Callable[[Engine, Job], list[Row]]


def tau(args: argparse.Namespace) -> Iterator[Row]:
    """Rows of every prompt, head, rule and shape."""
    measure = functools.partial(_tau_rows, tuple(args.rules.split(";")), policies_of(args))
    yield from _over_prompts(functools.partial(measure, args.max_tokens), args)


def confidence(args: argparse.Namespace) -> Iterator[Row]:
    """Rows with the judged nodes of every prompt."""
    measure = functools.partial(_node_rows, args.rules, policies_of(args)[0], args.max_tokens)
    yield from _over_prompts(measure, args)


def speed(args: argparse.Namespace) -> Iterator[Row]:
    """Rows of every run: all arms of a prompt one after the other, shuffled for every repeat."""
    setup = _setup(args)
    engines = load_engines(setup)
    names = [name for name, _ in setup.heads]
    plain = ("", "strict", "none")
    rules, policies = args.rules.split(";"), policies_of(args)
    arms = [plain]
    arms += [(name, rule, policy) for name in names for rule in rules for policy in policies]
    for name in names:  # what happens once in a process belongs to no arm
        for policy in ("none", *policies):
            engines[name].generate("Say hello.", policy=policy, max_tokens=16)
    jobs = _jobs(args, [names[0]])
    with progress(len(jobs), "prompts") as tick:
        for job in jobs:
            # Seeded by the prompt, so that the order does not depend on which tasks are asked for.
            rng = random.Random(f"{args.seed} {job.task} {job.number}")  # noqa: S311
            runs: list[tuple[int, Row]] = []
            for repeat in range(args.repeats):
                for number in rng.sample(range(len(arms)), len(arms)):
                    name, rule, policy = arms[number]
                    engine = engines[name or names[0]]
                    row = _run(engine, job, rule, policy, args.max_tokens)
                    runs.append((number, {**row, "head": name, "repeat": repeat}))
            yield from (row for _, row in sorted(runs, key=itemgetter(0)))  # tables keep the order
            tick(f"{job.task} {job.number}")


def _tau_rows(
    rules: Sequence[str], policies: Sequence[str], max_tokens: int, engine: Engine, job: Job
) -> list[Row]:
    return [_run(engine, job, rule, policy, max_tokens) for rule in rules for policy in policies]


def _node_rows(rule: str, policy: str, max_tokens: int, engine: Engine, job: Job) -> list[Row]:
    result = engine.generate(job.text, rule=rule, policy=policy, max_tokens=max_tokens, trace=True)
    nodes = judged_nodes(result.trace or [])
    settings = {"dtype": engine.dtype, "max_tokens": max_tokens}
    return [{**job.place, "rule": rule, "policy": policy, **settings, **nodes}]


def _run(engine: Engine, job: Job, rule: str, policy: str, max_tokens: int) -> Row:
    """One request: wall seconds, and what it drafted and committed."""
    result = engine.generate(job.text, rule=rule, policy=policy, max_tokens=max_tokens)
    stats = result.stats
    return {
        **job.place,
        "rule": rule,
        "policy": policy,
        "seconds": result.timings["total_s"],
        "tokens": result.completion_tokens,
        "steps": stats.num_spec_steps,
        "step_tokens": stats.num_committed_tokens,
        "verified": stats.num_draft_tokens,
        "promoted": stats.num_promoted_tokens,
        "accepted_per_pos": list(stats.accepted_per_pos),
        "dtype": engine.dtype,
        "max_tokens": max_tokens,
    }


def _over_prompts(measure: Measure, args: argparse.Namespace) -> Iterator[Row]:
    """The rows of `measure` for each prompt and head, from `--workers` processes."""
    setup = _setup(args)
    jobs = _jobs(args, [name for name, _ in setup.heads])
    with progress(len(jobs), "prompts") as tick:
        for job, rows in _each(measure, jobs, setup, args.workers):
            yield from rows
            tick(f"{job.head} {job.task} {job.number}")


def _each(
    measure: Measure, jobs: Sequence[Job], setup: Setup, workers: int
) -> Iterator[tuple[Job, list[Row]]]:
    if workers == 1:
        engines = load_engines(setup)
        for job in jobs:
            yield job, measure(engines[job.head], job)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_leave_ctrl_c) as pool:
        futures = [pool.submit(_in_worker, measure, setup, job) for job in jobs]
        try:
            for job, future in zip(jobs, futures, strict=True):
                yield job, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_ctrl_c() -> None:
    """A worker finishes its prompt; the first process hears Ctrl-C and gives it no other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _in_worker(measure: Measure, setup: Setup, job: Job) -> list[Row]:
    return measure(load_engines(setup)[job.head], job)


@functools.lru_cache(maxsize=1)
def load_engines(setup: Setup) -> dict[str, Engine]:
    """An engine for each head by its name; all use the target of the first one."""
    (name, path), *others = setup.heads
    first = Engine.from_pretrained(
        draft_model=path,
        backend=setup.backend,
        dtype=setup.dtype,
        threads=setup.threads,
    )
    engines = {name: first}
    for name, path in others:
        head = load_head(path, first.model_name, {})
        drafter = None if head is None else drafter_for(first.target, head)
        engines[name] = Engine(first.target, first.tokenizer, drafter, first.model_name, path or "")
    return engines


def head_paths(values: Sequence[str]) -> dict[str, str | None]:
    """Paths of heads by name, in the order given: of "new=runs/7", "runs/7" or "shipped".

    Raises ConfigError where two have the same name.
    """
    heads: dict[str, str | None] = {}
    for value in values or [SHIPPED]:
        name, equals, path = value.partition("=")
        if not equals or "/" in name:  # a path may hold the sign
            name, path = (Path(value).name or value), value
        if name in heads:
            raise ConfigError(
                f"two heads are called {name!r}", field="--draft-model", remedy="Write NAME=PATH"
            )
        heads[name] = None if path == SHIPPED else path
    return heads


def policies_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The static shapes, and after them the other policies that were asked for."""
    shapes = tuple(f"static:{shape}" for shape in args.shapes.split(";"))
    return (*shapes, *filter(None, getattr(args, "policies", "").split(";")))


def _setup(args: argparse.Namespace) -> Setup:
    heads = tuple(head_paths(args.draft_model).items())
    return Setup(heads, args.backend, args.dtype, args.threads)


def _jobs(args: argparse.Namespace, heads: Sequence[str]) -> list[Job]:
    """Every prompt for every head, tasks in turn, so that any first part is balanced."""
    tasks: Mapping[str, list[str]] = {
        task: prompts(args.data, task, args.limit) for task in args.tasks.split(",")
    }
    most = max(map(len, tasks.values()))
    return [
        Job(head, task, index, texts[index])
        for index in range(most)
        for task, texts in tasks.items()
        if index < len(texts)
        for head in heads
    ]

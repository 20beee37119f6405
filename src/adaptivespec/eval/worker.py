"""Targets in processes of their own: a fresh one for every restart, several at once for grading.

A process that dies, or a target that cannot be made, comes back as a typed error; Ctrl-C reaches
the parent alone, whose end the workers see by their closed pipe.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, cast

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.eval.arms import Arm
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.base import Answer, Ask, Target
from adaptivespec.eval.tasks.base import Item

__all__ = ["Job", "Pool", "TargetSpec"]

Job = tuple[Arm, Item, Ask]
_SECONDS_TO_END = 10.0


class TargetSpec(NamedTuple):
    """How a target is made in another process: "module:Class" and its arguments."""

    place: str
    options: Mapping[str, Any] = {}

    def make(self) -> Target:
        """The target, in this process."""
        module, _, name = self.place.partition(":")
        return cast(Target, getattr(import_module(module), name)(**self.options))


class Pool:
    """`workers` processes with a target each. A context manager; all have loaded when it is made.

    Attributes:
        about, identity, arms: of the target, see `Target`.

    Raises:
        AdaptiveSpecError: a target could not be made, as its constructor says it.
        TargetError: a process died.
    """

    def __init__(self, spec: TargetSpec, workers: int = 1) -> None:
        # A forked child would share torch's threads and locks with its parent.
        context = multiprocessing.get_context("spawn")
        self._spec = spec
        self._links: list[Connection] = []
        self._processes: list[Any] = []
        try:
            for _ in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, spec), daemon=True)
                process.start()
                theirs.close()
                self._links.append(ours)
                self._processes.append(process)
            hellos = [self._receive(link) for link in self._links]
        except BaseException:
            self.close()
            raise
        self.about: str = hellos[0]["about"]
        self.identity: Mapping[str, Any] = hellos[0]["identity"]
        self.arms: list[Arm] = hellos[0]["arms"]

    def answers(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Answer]]:
        """(number of the job, its answer), as they finish; jobs are taken when a worker is free.

        With one worker the order is that of the jobs.
        """
        waiting = enumerate(jobs)
        idle, busy = list(self._links), dict[Connection, int]()
        while True:
            while idle and (job := next(waiting, None)) is not None:
                link = idle.pop()
                busy[link] = job[0]
                self._send(link, job[1])
            if not busy:
                return
            for ready in wait(list(busy)):
                link = cast(Connection, ready)
                answer = self._receive(link)
                idle.append(link)
                yield busy.pop(link), answer

    def close(self) -> None:
        """End the processes."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join(_SECONDS_TO_END)
            if process.is_alive():
                process.terminate()
                process.join()
        self._links, self._processes = [], []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _send(self, link: Connection, job: Job) -> None:
        try:
            link.send(job)
        except OSError:
            raise self._died(link) from None

    def _receive(self, link: Connection) -> Any:
        try:
            kind, value = link.recv()
        except (EOFError, ConnectionError):
            raise self._died(link) from None
        if kind == "error":
            raise value
        return value

    def _died(self, link: Connection) -> TargetError:
        process = self._processes[self._links.index(link)]
        process.join(_SECONDS_TO_END)
        code = process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended ({code})"
        return TargetError(
            f"the process of {self._spec.place.rpartition(':')[2]} {how}",
            field="target",
            remedy="A shortage of memory is the usual reason; the same command goes on from here",
        )


def _serve(link: Connection, spec: TargetSpec) -> None:
    """The life of a worker: make the target, say hello, answer until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with suppress(EOFError, ConnectionError):
        try:
            target = spec.make()
            link.send(("hello", _hello(target)))
        except Exception as error:
            link.send(("error", _portable(error)))
            return
        try:
            while True:
                link.send(_answered(target, *link.recv()))
        finally:
            target.close()


def _hello(target: Target) -> dict[str, Any]:
    return {"about": target.about, "identity": dict(target.identity), "arms": list(target.arms)}


def _answered(target: Target, arm: Arm, item: Item, ask: Ask) -> tuple[str, Any]:
    try:
        return "answer", target.answer(arm, item, ask)
    except Exception as error:
        return "error", _portable(error)


def _portable(error: Exception) -> Exception:
    """An error that survives the way to the parent; others become a TargetError."""
    if isinstance(error, AdaptiveSpecError):
        return error
    return TargetError(f"{type(error).__name__}: {error}", field="target")

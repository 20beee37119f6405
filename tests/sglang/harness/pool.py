"""Runs the engines that the selected tests need, each once, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from harness.run import AT_ONCE, Result, Run, RunFailed, end_all, execute


class Pool:
    """Results by name; a run starts when it is announced, or at the latest when it is read.

    Args:
        scenarios: name -> the run, made when it is started.
        folder: each run gets a folder of its name in it, with its log.
    """

    def __init__(self, scenarios: dict[str, Callable[[], Run]], folder: Path) -> None:
        self._scenarios, self._folder = scenarios, folder
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._runs: dict[str, Future[Result]] = {}
        self._told: set[str] = set()

    def announce(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._runs:
                self._runs[name] = self._threads.submit(self._execute, name)

    def __getitem__(self, name: str) -> Result:
        """Waits. Raises RunFailed, the first time with the end of the log."""
        self.announce([name])
        try:
            return self._runs[name].result()
        except RunFailed as error:
            if name in self._told:
                raise RunFailed(f"run '{name}' failed, as was said before") from None
            self._told.add(name)
            raise error

    def close(self) -> None:
        """Start no more, and end the engines that still run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        end_all()

    def _execute(self, name: str) -> Result:
        return execute(self._scenarios[name](), self._folder / name)

"""An event loop in a thread of its own, for clients that are used from ordinary functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Background"]

Result = TypeVar("Result")


class Background:
    """Runs coroutines for callers of any thread, who wait for the result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`; what interrupts the wait for it, Ctrl-C say, cancels it.

        Raises:
            concurrent.futures.CancelledError: `close` was called meanwhile, by another thread.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, object]) -> None:
        """Cancel what runs, await `last`, and end the thread."""
        try:
            self.run(_cancel_others())
            self.run(last)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

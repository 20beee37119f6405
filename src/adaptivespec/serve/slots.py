"""Slots: sessions that requests take turns in, each keeping its rows for who comes next."""

from __future__ import annotations

from collections.abc import Sequence

from adaptivespec.engine.engine import Engine
from adaptivespec.engine.session import Session, common_prefix


class Slots:
    """At most `size` sessions of one engine, made when they are first needed.

    A request gets the idle session that holds most of its prompt: the next turn of a chat finds
    the rows of the turns before it.  A session of which more would be thrown away than is saved is
    left alone, and the one that was idle for longest is taken.
    """

    def __init__(self, engine: Engine, size: int) -> None:
        self.engine, self.size = engine, size
        self._idle: list[Session] = []  # the one that was used last stands last
        self._busy: list[Session] = []

    @property
    def free(self) -> int:
        """Requests that could be taken in now."""
        return self.size - len(self._busy)

    @property
    def tokens(self) -> int:
        """Rows held in all of them."""
        return sum(len(session.tokens) for session in self.sessions())

    def sessions(self) -> list[Session]:
        """All of them, in use or not."""
        return [*self._idle, *self._busy]

    def take(self, prompt: Sequence[int]) -> Session:
        """A session for `prompt`; ValueError when none is free."""
        if not self.free:
            raise ValueError("all slots are taken")
        session = self._nearest(prompt)
        if session is None:
            if len(self._idle) + len(self._busy) < self.size:
                session = self.engine.session()
            else:
                session = self._idle.pop(0)
        else:
            self._idle.remove(session)
        self._busy.append(session)
        return session

    def give(self, session: Session) -> None:
        """Return a session; what it holds stays."""
        self._busy.remove(session)
        self._idle.append(session)

    def _nearest(self, prompt: Sequence[int]) -> Session | None:
        shared = [common_prefix(session.tokens, prompt) for session in self._idle]
        best = max(range(len(shared)), key=shared.__getitem__, default=None)
        if best is None or 2 * shared[best] < len(self._idle[best].tokens) or not shared[best]:
            return None
        return self._idle[best]

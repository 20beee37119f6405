"""Several requests decoding together: one pass of the target per step for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.jobs import Answer, Job
from adaptivespec.engine.load import DraftLoad
from adaptivespec.engine.loop import Decoder
from adaptivespec.engine.result import Chunk
from adaptivespec.engine.session import Session, common_prefix
from adaptivespec.engine.target import Pass, Target

#: Prompt tokens read per step, so that those who decode wait no longer than that for them.
PROMPT_ROWS = 64


@dataclass(eq=False)
class Member:
    """One sequence of a batch: its job, the session it decodes in, and how far it is.

    `begun` once it took a turn at reading.  `error` says what ended it, where that was no finish of
    its own; its session is empty then.
    """

    job: Job
    session: Session
    decoder: Decoder
    answer: Answer
    begun: bool = False
    error: Exception | None = None

    @property
    def reading(self) -> bool:
        """Whether some of its prompt has yet to be read."""
        return self.decoder.unread > 0


class Batch:
    """Sequences that take steps together; each its own rule, policy, law and stop conditions.

    A member's tokens are those of its request alone: the target gives a row the same logits in any
    company, and random numbers belong to requests.  What company may change is how much is drafted,
    and that only where the tokens do not depend on it, unless `load` is told otherwise.

    Args:
        target: of all sessions.
        load: how much is drafted when several share a pass; None leaves it to the policies.
        neighbours: sessions whose rows members may copy, where prompts begin alike; None takes
            those of the members.
    """

    def __init__(
        self,
        target: Target[Any],
        load: DraftLoad | None = None,
        neighbours: Callable[[], Iterable[Session]] | None = None,
    ) -> None:
        self.target, self.load = target, load
        self._neighbours = neighbours or (lambda: [member.session for member in self.members])
        self.members: list[Member] = []
        self.passes = 0
        self._ended: float | None = None  # when the last step ended, if anybody was left then
        self._drafting_s = self._verifying_s = 0.0  # of this step
        self._reading: deque[Member] = deque()

    def add(self, job: Job, session: Session) -> Member:
        """Let `job` take part from the next step on. The session is its alone until it leaves."""
        member = Member(job, session, Decoder(session, job.request), Answer(job))
        self.members.append(member)
        self._reading.append(member)
        return member

    def remove(self, member: Member) -> None:
        """Take a member out between two steps; its session stays usable."""
        self.members.remove(member)
        if member in self._reading:
            self._reading.remove(member)

    def step(self) -> list[tuple[Member, Chunk | None]]:
        """Read on in prompts, and take one decode step with all who have read theirs.

        Returns what each member that moved has to say; None with those that failed.  Members that
        finished or failed have left.
        """
        begin = perf_counter()
        self._drafting_s = self._verifying_s = 0.0
        with self.target.between_passes():
            moved = self._read()
            read = perf_counter()
            decoded = self._decode()
            moved += decoded
        for member, chunk in moved:
            if chunk is None or chunk.result is not None:
                self.members.remove(member)
        end = perf_counter()
        if self.load is not None and decoded:
            # What the caller did since the last step counts, too.
            outside = begin - (self._ended or begin)
            passes = self._drafting_s + self._verifying_s
            self.load.observe_host(outside + end - read - passes, len(decoded))
        self._ended = end if self.members else None
        return moved

    def _read(self) -> list[tuple[Member, Chunk | None]]:
        """At most PROMPT_ROWS tokens of prompts, whoever waited longest for a turn first."""
        moved: list[tuple[Member, Chunk | None]] = []
        room = PROMPT_ROWS
        while room > 0 and self._reading:
            member = next(m for m in self._reading if not self._has_leader(m))
            self._reading.remove(member)
            try:
                if not member.begun:
                    member.begun = True
                    member.decoder.borrow(s for s in self._neighbours() if s is not member.session)
                most = min(room, member.decoder.unread)
                room -= most
                step = member.decoder.read(most)
            except Exception as error:
                moved.append(_failed(member, error))
                continue
            if step is None:
                self._reading.append(member)
            else:
                moved.append((member, member.answer.add(step)))
        return moved

    def _has_leader(self, member: Member) -> bool:
        """Whether it had better wait: another is about to read what its own prompt begins with."""
        if member.begun:
            return False
        request = member.job.request
        drafting = request.policy.needs_draft
        return any(
            common_prefix(other.job.request.prompt, request.prompt)
            > other.session.reusable(drafting) + 1
            for other in self._reading
            if other.begun and (other.job.request.policy.needs_draft or not drafting)
        )

    def _decode(self) -> list[tuple[Member, Chunk | None]]:
        moved: list[tuple[Member, Chunk | None]] = []
        drafted: list[tuple[Member, DraftTree]] = []
        ready = [
            m for m in self.members if not m.reading and not m.decoder.finished and not m.error
        ]
        begin = perf_counter()
        for member in ready:
            try:
                drafted.append((member, member.decoder.draft(self._most_nodes(member, len(ready)))))
            except Exception as error:
                moved.append(_failed(member, error))
        if not drafted:
            return moved
        start = perf_counter()
        self._drafting_s = start - begin
        try:
            passes = self._verify(drafted)
        except Exception as error:  # which of them it was is not known, so none may go on
            return moved + [_failed(member, error) for member, _ in drafted]
        seconds = self._verifying_s = perf_counter() - start
        self.passes += 1
        for (member, _), out in zip(drafted, passes, strict=True):
            try:
                step = member.decoder.settle(out, seconds, len(drafted))
            except Exception as error:
                moved.append(_failed(member, error))
                continue
            if self.load is not None:
                self.load.observe(step)
            moved.append((member, member.answer.add(step)))
        return moved

    def _verify(self, drafted: Sequence[tuple[Member, DraftTree]]) -> list[Pass]:
        """One pass for all: tapped as the drafting ones need, which the others do not read."""
        caches = [member.session.cache for member, _ in drafted]
        taps = next((t for member, _ in drafted if (t := member.session.taps)), ())
        return self.target.verify_many(caches, [tree for _, tree in drafted], taps)

    def _most_nodes(self, member: Member, company: int) -> int | None:
        """How large a tree `member` may draft; None for what its policy wants."""
        if self.load is None or company < 2 or not member.job.follows_load:
            return None
        if not (self.load.every_rule or member.decoder.any_tree_will_do):
            return None
        return self.load.most_nodes(company, member.decoder.context)


def _failed(member: Member, error: Exception) -> tuple[Member, None]:
    member.error = error
    member.session.clear()
    return member, None

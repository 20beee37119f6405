"""What followed the last few tokens before: an index of one sequence's n-grams, and honest odds.

Every n-gram up to a length is a key to its last occurrence, and every occurrence knows the one
before it, so that a token costs the same to add, and to take back, in any context.

The odds are those of prediction by partial matching (Cleary and Witten, 1984): the longest context
that occurred before speaks first, and what it leaves goes to the next shorter one.  How much it may
say is counted: the share of recent tokens that were among what a context of this length offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Tokens of the longest context that is looked up.
LONGEST = 8
#: Occurrences of a context that are read, the latest first.
MOST_READ = 32
#: Tokens over which hits are counted: long enough to count, short enough to see a copy begin.
WINDOW = 256


class NgramIndex:
    """The tokens of one sequence, and where each of their n-grams occurred.

    All it says is a function of `tokens`: taking tokens back takes back what was learnt from them.
    """

    def __init__(self, tokens: Iterable[int] = (), longest: int = LONGEST) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        lengths = longest + 1  # a context and the token after it
        self._last: list[dict[tuple[int, ...], int]] = [{} for _ in range(lengths)]
        self._before: list[list[int]] = [[] for _ in range(lengths)]  # -1 = never
        self._match: list[int] = []  # length of the longest n-gram ending here that is not new
        self._tries = [0] * lengths  # by length of the context
        self._hits = [0] * lengths
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens."""
        known = self.tokens
        for token in tokens:
            known.append(token)
            here, match = len(known) - 1, 0
            for length, (last, before) in enumerate(zip(self._last, self._before, strict=True), 1):
                earlier = -1
                if length <= here + 1:
                    key = tuple(known[-length:])
                    earlier = last.get(key, -1)
                    last[key] = here
                    if earlier >= 0:
                        match = length
                before.append(earlier)
            self._match.append(match)
            self._count(here, 1)
            self._count(here - WINDOW, -1)

    def truncate(self, size: int) -> None:
        """Keep the first `size` tokens."""
        known = self.tokens
        while len(known) > size:
            here = len(known) - 1
            self._count(here, -1)
            self._count(here - WINDOW, 1)
            for length, (last, before) in enumerate(zip(self._last, self._before, strict=True), 1):
                earlier = before.pop()
                if length <= here + 1:
                    key = tuple(known[-length:])
                    if earlier < 0:
                        del last[key]
                    else:
                        last[key] = earlier
            known.pop()
            self._match.pop()

    def copy(self, size: int) -> NgramIndex:
        """An index of the first `size` tokens."""
        if 2 * size < len(self.tokens):
            return NgramIndex(self.tokens[:size], self.longest)
        made = NgramIndex(longest=self.longest)
        made.tokens, made._match = self.tokens.copy(), self._match.copy()
        made._last = [last.copy() for last in self._last]
        made._before = [before.copy() for before in self._before]
        made._tries, made._hits = self._tries.copy(), self._hits.copy()
        made.truncate(size)
        return made

    def offers(self, path: Sequence[int], most: int) -> list[tuple[int, float]]:
        """At most `most` tokens that may follow `tokens` and then `path`, likeliest first.

        With the probability of each, in (0, 1); what they lack to a sum of 1 is that of all tokens
        that never followed here.
        """
        known = self.tokens
        tail = tuple((*known[-self.longest :], *path)[-self.longest :])
        odds: dict[int, float] = {}
        left, end = 1.0, len(known) - 1
        for length in range(len(tail), 0, -1):
            before = self._before[length - 1]
            at = self._last[length - 1].get(tail[-length:], -1)
            if 0 <= at == end:  # what follows the last token is not known
                at = before[at]
            if at < 0:
                continue
            counts: dict[int, int] = {}
            for _ in range(MOST_READ):
                token = known[at + 1]
                if token not in odds:
                    counts[token] = counts.get(token, 0) + 1
                at = before[at]
                if at < 0:
                    break
            rate = (self._hits[length] + 1) / (self._tries[length] + 2)
            if counts:
                share = left * rate / sum(counts.values())
                for token, count in counts.items():
                    odds[token] = share * count
            left *= 1 - rate
            if len(odds) >= most and left <= sorted(odds.values())[-most]:
                break  # none of the rest can be likelier
        return sorted(odds.items(), key=lambda pair: -pair[1])[:most]

    def _count(self, here: int, sign: int) -> None:
        """Count, or with -1 take back, whether the token at `here` was offered.

        Contexts are asked from the longest that was there before down to the first that had seen
        this very token after it.
        """
        if here < 1:
            return
        asked, hit = min(self._match[here - 1], self.longest), self._match[here] - 1
        for length in range(max(hit, 1), asked + 1):
            self._tries[length] += sign
        if hit >= 1:
            self._hits[hit] += sign

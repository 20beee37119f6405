"""One engine of peers.py in a process of its own: JSON lines in, JSON lines out.

    peers_worker.py NAME OPTIONS

It first says {"arms", "about", "lost"} (arms that do not work, and why) or {"skipped": why}, then
answers each {"arm", "ids", "tokens"} with what was measured, or {"error": what}, until its input
ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

WARM_UP = 8
"""Tokens of a request that no one measures, before the first that someone does."""


def main() -> None:
    name, options = sys.argv[1], json.loads(sys.argv[2])
    replies = _own_output()
    if options["cpus"]:
        os.sched_setaffinity(0, options["cpus"])

    import peers_engines as engines  # after the process is pinned: libraries count processors

    def attempt(arm: str, ids: list[int], tokens: int) -> dict[str, Any]:
        try:
            return engines.measure(peer, arm, ids, tokens)
        except Exception as error:  # other arms and engines go on
            return {"error": f"{type(error).__name__}: {error}"}

    try:
        peer = engines.make(name, options)
    except Exception as error:
        _say(replies, {"skipped": f"{type(error).__name__}: {error}"})
        return
    warm = {arm: attempt(arm, options["warm_up"], WARM_UP) for arm in peer.arms}
    lost = {arm: reply["error"] for arm, reply in warm.items() if "error" in reply}
    arms = [arm for arm in warm if arm not in lost]
    _say(replies, {"arms": arms, "about": peer.about, "lost": lost})
    for line in sys.stdin:
        _say(replies, attempt(**json.loads(line)))


def _own_output() -> TextIO:
    """Standard output for replies alone: what libraries print goes to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _say(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()

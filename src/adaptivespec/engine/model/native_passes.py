"""How trees are cut into passes of the native engine, which takes so many rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


def groups(sizes: dict[int, int], most: int) -> list[list[int]]:
    """Group the keys of `sizes`, each at most `most`, so that a group is at most `most` in all.

    First fit, the largest first: few groups, if not always the fewest.
    """
    found: list[list[int]] = []
    room: list[int] = []
    for key in sorted(sizes, key=lambda key: -sizes[key]):
        fitting = next((at for at, left in enumerate(room) if left >= sizes[key]), None)
        if fitting is None:
            fitting = len(found)
            found.append([])
            room.append(most)
        found[fitting].append(key)
        room[fitting] -= sizes[key]
    return found


def parts(parents: Ints, most: int) -> Iterator[tuple[list[int], list[int]]]:
    """Cover a tree by ancestor-closed lists of nodes, ascending, of at most `most` each.

    Yields each list with those of its nodes that no earlier one had. Only a list that is one
    node's lineage may be longer.
    """
    held: set[int] = set()
    new: list[int] = []
    for node in range(len(parents)):
        lineage, up = {node}, int(parents[node])
        while up >= 0:
            lineage.add(up)
            up = int(parents[up])
        if new and len(held | lineage) > most:
            yield sorted(held), new
            held, new = set(), []
        held |= lineage
        new.append(node)
    if new:
        yield sorted(held), new

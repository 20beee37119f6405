"""The queue of a server: first come, first served for each client, clients in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items of several clients; whoever has many waiting does not hold up who has one."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def put(self, client: str, item: Item) -> None:
        """Add to the client's own line."""
        self._lines.setdefault(client, deque()).append(item)

    def pop(self) -> Item:
        """The first of the client whose turn it is; IndexError when there is none."""
        if not self._lines:
            raise IndexError("the queue is empty")
        client, line = next(iter(self._lines.items()))
        item = line.popleft()
        del self._lines[client]
        if line:
            self._lines[client] = line  # to the end: the others come first
        return item

    def remove(self, client: str, item: Item) -> bool:
        """Take an item out; whether it was there."""
        line = self._lines.get(client)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[client]
        return True

    def drain(self) -> list[Item]:
        """Everything, and none is left."""
        items = [item for line in self._lines.values() for item in line]
        self._lines.clear()
        return items

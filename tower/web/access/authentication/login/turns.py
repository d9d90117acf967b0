"""Items of users who take turns, so that a user with many items does not delay the others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """A queue that serves users in turn; it has each item of a user once, in the order of their addition."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()  # by user

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def __bool__(self) -> bool:
        return bool(self._items)

    def has(self, user: str, item: T) -> bool:
        """Return whether an item waits."""
        return item in self._items.get(user, ())

    def count(self, user: str) -> int:
        """Return the number of items of a user."""
        return len(self._items.get(user, ()))

    def add(self, user: str, item: T) -> None:
        """Add an item, if it does not wait already."""
        self._items.setdefault(user, OrderedDict()).setdefault(item)

    def discard(self, user: str, item: T) -> None:
        """Remove an item, if it waits."""
        if self.has(user, item):
            del self._items[user][item]
            if not self._items[user]:
                del self._items[user]

    def pop(self) -> T:
        """Remove and return the item whose turn it is."""
        user, waiting = self._items.popitem(last=False)
        item, _ = waiting.popitem(last=False)
        if waiting:
            self._items[user] = waiting
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()

"""A client of an API server whose answers the test sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FakeAPI:
    """Lists its objects, and answers reviews.

    :ivar paths: of each list.
    :ivar asked: path, user, groups and body of each review.
    :ivar answer: the answer; raised if it is an error.
    """

    def __init__(self, *objects: Any) -> None:
        self.objects = objects
        self.paths: list[str] = []
        self.asked: list[tuple[str, str | None, tuple[str, ...], Any]] = []
        self.answer: Any = {"status": {"allowed": True}}

    async def items(self, path: str) -> list[Any]:
        """Return the objects."""
        self.paths.append(path)
        return list(self.objects)

    async def post(
        self,
        path: str,
        body: Any,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
    ) -> Any:
        """Answer."""
        self.asked.append((path, user, tuple(groups), body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

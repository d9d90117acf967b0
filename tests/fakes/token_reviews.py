"""A program that reviews tokens, in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tower.kube.client import APIError

USER = {"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"k": ["v"]}}


class Reviewer:
    """Answers every review with *status*, or not at all; *waits*: until `answer` is called."""

    def __init__(self) -> None:
        self.status: dict[str, Any] | None = {"authenticated": True, "user": USER}
        self.asked: list[Any] = []
        self.waits = False
        self.waiting: list[Deferred[None]] = []

    async def post(self, body: Any) -> Any:
        """See `ReviewClient`."""
        self.asked.append(body)
        if self.waits:
            self.waiting.append(Deferred())
            await self.waiting[-1]
        if self.status is None:
            raise APIError("POST", "hook:443", 503, "closed")
        return {**body, "status": self.status}

    def answer(self) -> None:
        """Answer the oldest review."""
        self.waiting.pop(0).callback(None)

"""A dialer of WebSockets whose connections the test sets."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred


class FakeDialer:
    """Opens WebSockets in memory.

    :ivar asked: the subprotocol of each call.
    :ivar answers: connection and leftover bytes, or the error, by subprotocol.
    """

    url = "ws://tower.example:8080"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Deferred[Any]] = {}

    async def dial(self, protocol: str = "tower-v2") -> Any:
        """Be a `Dialer`."""
        self.asked.append(protocol)
        return await self.answers[protocol]

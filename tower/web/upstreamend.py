"""The agent's end of the relay: checks and follows what the proxy sends, splices the answers back."""

from __future__ import annotations

from collections.abc import Callable

from tower.pipes import Pipe
from tower.policy import Refusal, Rewritten

Rewrite = Callable[[bytes], "Rewritten | Refusal"]


class AgentEnd:
    """Joins one accepted channel of target ``kubernetes`` with one connection to the API server.

    ``AgentEnd(channel, connection, policy.rewrite).start()``: both pipes paused; the end owns them from then on,
    and closes both.
    """

    def __init__(self, channel: Pipe, upstream: Pipe, rewrite: Rewrite) -> None:
        self._channel = channel
        self._upstream = upstream
        self._rewrite = rewrite

    def start(self) -> None:
        """Become the receiver of both pipes and resume them."""

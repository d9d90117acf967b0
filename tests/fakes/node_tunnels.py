"""Tunnels to nodes that the test opens, answers and closes."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed

from tower.clusters.node import Node
from tower.nodes.tunnels.tunnel import NodeTunnel


class FakeNodeDialer:
    """Records what it dials, and answers at once.

    :ivar answer: result of a dial: a channel, a Deferred of one, or the error.
    :ivar dialed: hosts and ports.
    """

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.dialed: list[tuple[str, int]] = []

    def dial(self, host: str, port: int, timeout: float = 10.0) -> Deferred[Any]:
        """Record the address, and return the answer."""
        self.dialed.append((host, port))
        answer = self.answer_to(host, port)
        if isinstance(answer, Deferred):
            return answer
        return fail(answer) if isinstance(answer, Exception) else succeed(answer)

    def answer_to(self, host: str, port: int) -> Any:
        """Return the answer for one address."""
        return self.answer


class FakeNodeChannel:
    """The channel of a dial."""

    def __init__(self, tunnel: FakeNodeTunnel, host: str, port: int) -> None:
        self.tunnel, self.host, self.port = tunnel, host, port
        self.aborted = False

    def abort(self) -> None:
        """Record it."""
        self.aborted = True


class FakeNodeTunnel:
    """As much of a tunnel to a node as a list needs."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lost: Deferred[Exception] = Deferred()
        self.host_key = ""
        self.round_trip = 0.0
        self.streams = 0
        self.draining = self.is_open = False
        self.opening: Deferred[None] | None = None
        self.cancelled = False
        self.dials: list[tuple[str, int, float, Deferred[Any]]] = []
        self.given_up = 0
        self.calls: list[str] = []

    # Called by the list

    def open(self) -> Deferred[None]:
        """Wait for the test to decide the result."""
        self.calls.append("open")
        self.opening = Deferred(self._cancel)
        return self.opening

    def _cancel(self, _: Deferred[None]) -> None:
        self.cancelled = True

    def dial(self, host: str, port: int, timeout: float = 10.0) -> Deferred[Any]:
        """Wait for the test to answer."""
        opening: Deferred[Any] = Deferred(self._give_up)
        self.dials.append((host, port, timeout, opening))
        return opening

    def _give_up(self, _: Deferred[Any]) -> None:
        self.given_up += 1

    def close(self, reason: str) -> None:
        """Go."""
        self.calls.append("close")
        self.lose(reason)

    def retire(self, grace: float) -> None:
        """Go if no stream is left, else wait for the test."""
        self.calls.append(f"retire {grace:g}")
        self.draining = True
        if not self.streams:
            self.lose("retired")

    # Called by the test

    def let_in(self) -> None:
        """Be open."""
        assert self.opening is not None
        self.is_open = True
        self.host_key = "SHA256:" + self.node.host
        self.opening.callback(None)

    def refuse(self, error: Exception) -> None:
        """Do not open."""
        assert self.opening is not None
        self.opening.errback(error)

    def lose(self, reason: str = "cut") -> None:
        """Close the tunnel."""
        if self.is_open:
            self.is_open = False
            self.lost.callback(ConnectionError(reason))

    def answer(self) -> FakeNodeChannel:
        """Let the first dial through."""
        host, port, _, opening = self.dials.pop(0)
        channel = FakeNodeChannel(self, host, port)
        opening.callback(channel)
        return channel

    def deny(self, error: Exception) -> None:
        """Refuse the first dial."""
        self.dials.pop(0)[3].errback(error)


class FakeFleet:
    """Makes such tunnels and remembers them."""

    def __init__(self) -> None:
        self.made: list[FakeNodeTunnel] = []

    def create(self, node: Node) -> NodeTunnel:
        """Make one."""
        self.made.append(FakeNodeTunnel(node))
        return cast(NodeTunnel, self.made[-1])

    def last(self, host: str) -> FakeNodeTunnel:
        """Return the latest one to a host."""
        return next(tunnel for tunnel in reversed(self.made) if tunnel.node.host == host)

    def let_all_in(self) -> None:
        """Open all tunnels that are being opened, and those that start meanwhile."""
        while waiting := [tunnel for tunnel in self.made if tunnel.opening and not tunnel.opening.called]:
            for tunnel in waiting:
                tunnel.let_in()

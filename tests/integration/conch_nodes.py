"""Many nodes in one process, each at its own address: SSH servers that accept every client.

Every dial through them reaches a kubelet's health page.  Run as ``python -m … PORT COUNT``; it prints
``ready`` when all listen.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import reactor as _reactor

from tests.fakes.ssh_node import FarNode, NodeServer
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.transport.keys import ED25519
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.net.pipes import Receiver
from tower.reactor.poller import Poller
from tower.reactor.process import raise_file_limit, settle_memory
from tower.reactor.timers import Wheel


def address(number: int) -> str:
    """Return a node's address: all of 127.0.0.0/8 is loopback."""
    return f"127.0.{2 + number // 200}.{1 + number % 200}"


class Kubelet:
    """The receiver of a dialed channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._head = b""

    def received(self, data: memoryview) -> None:
        """Answer a request."""
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            self._channel.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            self._channel.close()

    def ended(self) -> None:
        """Disconnect."""
        self._channel.close()

    def drained(self) -> None:
        """No-op."""

    def closed(self, reason: Exception) -> None:
        """No-op."""


class Nodes(FarNode):
    """The nodes."""

    def __init__(self, reactor: Any) -> None:
        super().__init__()
        self.host_key_algorithms = (ED25519,)
        self.decide = self._connect
        self._poller = Poller(reactor)
        self._wheel = Wheel(reactor)

    def listen(self, port: int, count: int) -> None:
        """Begin."""
        for number in range(count):
            listen(self._poller, port, address(number), self._accept)

    def _accept(self, connection: Connection) -> Receiver:
        server = NodeServer(self, self._wheel)  # type: ignore[arg-type]
        server.tunnel = SSHTunnel(self._poller, connection, server, UNFRAMED, UNFRAMED)
        server.tunnel.start()
        return connection.receiver

    def _connect(self, incoming: Incoming) -> None:
        channel = incoming.accept()
        channel.receiver = Kubelet(channel)
        channel.resume()


def main() -> None:
    """Serve until killed."""
    port, count = (int(text) for text in sys.argv[1:3])
    reactor: Any = _reactor
    raise_file_limit()
    Nodes(reactor).listen(port, count)
    settle_memory()
    print("ready", flush=True)
    reactor.run()


if __name__ == "__main__":
    main()

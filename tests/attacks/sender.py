"""A program that sends to every peer for as long as `Connection.send` returns "go on".

``python -m tests.attacks.sender PLAIN|TLS`` writes two ports: peers connect to the first one.  On the second
one it takes lines: ``ping`` is answered with the number of peers, ``go`` has it send to each of them.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import reactor as _reactor

from tests.fakes.receivers import Recorder
from tests.fakes.sockets import server_context
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.net.pipes import Receiver

reactor: Any = _reactor

LOOPBACK = "127.0.0.1"
PIECE = bytes(1000)
PEERS: list[Connection] = []


class Peer(Recorder):
    """Sends in a loop, as many senders do."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(ended=connection.close, closed=lambda: PEERS.remove(connection))
        self.connection = connection
        PEERS.append(connection)

    def drained(self) -> None:
        """Send more."""
        while self.connection.send(PIECE):
            pass


class Control(Recorder):
    """Executes its input."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(ended=connection.close)
        self.connection = connection

    def received(self, data: memoryview) -> None:
        """See the module."""
        self.got += data
        *lines, rest = bytes(self.got).split(b"\n")
        self.got[:] = rest
        for line in lines:
            if line == b"go":
                for peer in PEERS:
                    peer.receiver.drained()
            self.connection.send(b"%d\n" % len(PEERS))


def main(kind: str) -> None:
    """Listen and run."""
    tls = server_context() if kind == "TLS" else None

    def accept(connection: Connection) -> Receiver:
        return Peer(connection)

    ports: list[Any] = [
        listen(reactor, 0, LOOPBACK, accept, tls=tls),
        listen(reactor, 0, LOOPBACK, Control),
    ]
    print(*(port.getHost().port for port in ports), flush=True)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

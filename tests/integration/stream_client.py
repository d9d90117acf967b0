"""A Twisted program that does not know Tower: sends bytes to an endpoint and prints the echo's digest.

``stream_client.py DESCRIPTION COUNT`` sends COUNT bytes, ends its side and reads to the end of the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IHalfCloseableProtocol, IPullProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import react
from twisted.python.failure import Failure
from zope.interface import implementer

PIECE = os.urandom(64 * 1024)


@implementer(IHalfCloseableProtocol, IPullProducer)
class Sender(Protocol):
    """Sends *count* bytes and hashes both directions.

    :ivar done: fires at the end of the stream.
    """

    def __init__(self, count: int) -> None:
        self.done: Deferred[None] = Deferred()
        self.sent, self.received, self.tail = hashlib.sha256(), hashlib.sha256(), b""
        self.left = self.expected = count

    def connectionMade(self) -> None:
        """Begin to send."""
        transport: Any = self.transport
        transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        """Send the next piece, or the end of our side."""
        transport: Any = self.transport
        piece = PIECE[: self.left]
        if not piece:
            transport.unregisterProducer()
            transport.loseWriteConnection()
            return
        self.left -= len(piece)
        self.sent.update(piece)
        transport.write(piece)

    def stopProducing(self) -> None:
        """Send no more."""

    def dataReceived(self, data: bytes) -> None:
        """Hash our own bytes, and keep the rest."""
        own = data[: self.expected]
        self.expected -= len(own)
        self.received.update(own)
        self.tail += data[len(own) :]

    def readConnectionLost(self) -> None:
        """No-op."""
        transport: Any = self.transport
        transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """No-op."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report the end."""
        self.done.callback(None)


async def main(reactor: Any, description: str, count: str) -> None:
    """Print the digests, or the reason for the missing stream, as JSON."""
    try:
        endpoint = clientFromString(reactor, description)
        protocol: Any = await connectProtocol(endpoint, Sender(int(count)))
    except (ConnectError, ValueError) as e:
        print(json.dumps({"error": str(e)}))
        return
    await protocol.done
    digests = {"sent": protocol.sent.hexdigest(), "received": protocol.received.hexdigest()}
    print(json.dumps({**digests, "tail": protocol.tail.decode()}))


if __name__ == "__main__":
    react(lambda reactor, *words: Deferred.fromCoroutine(main(reactor, *words)), sys.argv[1:])

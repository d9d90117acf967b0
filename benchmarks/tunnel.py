"""Tower's tunnel without the rest of the product, for a fair comparison with peers that have a tunnel only.

``python -m benchmarks.tunnel --agents PORT TARGET=PORT ...`` prints a join token for the cluster alpha and
the fingerprint of the host key, listens on each loopback PORT, and joins each connection with a stream to
TARGET.  With ``--cert`` and ``--key``, agents connect by TLS.  Clients are not authenticated, so it must not
listen on other addresses.
"""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.clusters import Clusters
from tower.clusters.join_tokens import JoinTokens
from tower.conch.connection.channel import Channel
from tower.conch.transport.keys import KeyPair
from tower.net.budget import Budget
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.net.pipes import join
from tower.program import install_reactor
from tower.reactor.poller import Poller
from tower.reactor.process import settle_memory
from tower.store import MemoryStore
from tower.tunnels import Tunnels
from tower.v2.acceptor import AgentAcceptor
from tower.websocket.endpoint import AgentEndpoint
from tower.websocket.subprotocols import TOWER_V2

CLUSTER = "alpha"


class _Head:
    """Receiver of an agent's request head; hands the connection to the endpoint."""

    def __init__(self, endpoint: AgentEndpoint, connection: Connection) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._head = b""

    def received(self, data: memoryview) -> None:
        self._head += bytes(data)
        if b"\r\n\r\n" in self._head:
            self._connection.pause()
            self._endpoint.accept(self._connection, self._head)

    def ended(self) -> None:
        self._connection.close()

    def drained(self) -> None:
        """Do nothing: nothing was sent."""

    def closed(self, reason: Exception) -> None:
        """Do nothing: nothing depends on the connection yet."""


class Waiting:
    """A user's connection until its stream is open; it is not read until then.

    :param dial: opens the stream.
    """

    def __init__(self, dial: Callable[[], Deferred[Channel]], connection: Connection) -> None:
        self._connection = connection
        self._gone = False
        dial().addCallbacks(self._opened, self._not_opened)

    def _opened(self, channel: Channel) -> None:
        if self._gone:
            channel.abort()
        else:
            join(self._connection, channel)

    def _not_opened(self, failure: Failure) -> None:
        self._connection.abort()

    def buffer(self) -> None:
        """Return None, which pauses the connection."""

    def received(self, data: memoryview) -> None:
        """Never called: the connection is paused."""
        raise AssertionError("bytes came on a paused connection")

    def ended(self) -> None:
        """Never called: the connection is paused."""

    def drained(self) -> None:
        """Do nothing: nothing was sent."""

    def closed(self, reason: Exception) -> None:
        """Record it for `_opened`."""
        self._gone = True


async def serve(reactor: Any, agents: int, tls: ssl.SSLContext | None, targets: dict[str, int]) -> None:
    """Listen, and print a join token and the host key's fingerprint."""
    sockets = Poller(reactor)
    store = MemoryStore()
    clusters, tokens = Clusters(store, None, reactor), JoinTokens(store, reactor)
    await clusters.add(CLUSTER)
    key = KeyPair.generate()
    tunnels = Tunnels(reactor, reactor.seconds)
    acceptor = AgentAcceptor(
        sockets, tunnels, tokens, [key], Budget(32 << 20), keepalive=10.0, epoch=reactor.seconds
    )
    settle_memory()
    acceptor.startService()  # type: ignore[no-untyped-call]
    endpoint = AgentEndpoint(reactor, {TOWER_V2.encode(): acceptor.opened})
    listen(sockets, agents, "127.0.0.1", partial(_Head, endpoint), tls)

    def dial(target: str) -> Deferred[Channel]:
        (tunnel,) = tunnels
        return tunnel.open(target)

    for target, port in targets.items():
        listen(sockets, port, "127.0.0.1", partial(Waiting, partial(dial, target)))
    print(await tokens.mint(CLUSTER), key.fingerprint, flush=True)


def main() -> None:
    """Serve until the process ends."""
    install_reactor()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tunnel")
    parser.add_argument("--agents", type=int, required=True, metavar="PORT")
    parser.add_argument("--cert", metavar="FILE")
    parser.add_argument("--key", metavar="FILE")
    parser.add_argument("targets", nargs="+", metavar="TARGET=PORT")
    given = parser.parse_args()
    tls = None
    if given.cert:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(given.cert, given.key)
    targets = dict(text.split("=") for text in given.targets)
    ports = {target: int(port) for target, port in targets.items()}
    serving = Deferred.fromCoroutine(serve(reactor, given.agents, tls, ports))
    serving.addErrback(lambda failure: (failure.printTraceback(), reactor.callLater(0, reactor.stop)))
    reactor.run()


if __name__ == "__main__":
    main()

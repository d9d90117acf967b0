"""Tower's tunnel to a node without the rest of the product, for a fair comparison with ``ssh -L``.

``python -m benchmarks.nodetunnel --port P --user U --key F --known-hosts F PORT=TARGET ...`` opens a tunnel
to the sshd at loopback port P, and joins each connection to a loopback PORT with a stream to loopback port
TARGET.  Clients are not authenticated, so it must not listen on other addresses.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from benchmarks.tunnel import Waiting
from tower.clusters.node import Node
from tower.net.budget import Budget
from tower.net.listening import listen
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.known_hosts import KnownHosts
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel
from tower.program import install_reactor
from tower.reactor.poller import Poller
from tower.reactor.process import settle_memory

LOOPBACK = "127.0.0.1"


async def serve(reactor: Any, node: Node, login: NodeLogin, ports: dict[int, int]) -> None:
    """Open the tunnel, then listen."""
    sockets = Poller(reactor)
    tunnel = NodeTunnel(sockets, reactor, node, login, Budget(32 << 20), epoch=reactor.seconds)
    await tunnel.open()
    settle_memory()
    for port, target in ports.items():
        listen(sockets, port, LOOPBACK, partial(Waiting, partial(tunnel.dial, LOOPBACK, target)))


def main() -> None:
    """Serve until the process ends."""
    install_reactor()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodetunnel")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--key", type=Path, required=True, metavar="FILE")
    parser.add_argument("--known-hosts", type=Path, required=True, metavar="FILE")
    parser.add_argument("ports", nargs="+", metavar="PORT=TARGET")
    given = parser.parse_args()
    pairs = dict(text.split("=") for text in given.ports)
    login = NodeLogin(given.user, partial(ClientKey.load, given.key), KnownHosts(given.known_hosts))
    ports = {int(port): int(target) for port, target in pairs.items()}
    serving = Deferred.fromCoroutine(serve(reactor, Node(LOOPBACK, given.port), login, ports))
    serving.addErrback(lambda failure: (failure.printTraceback(), reactor.callLater(0, reactor.stop)))
    reactor.run()


if __name__ == "__main__":
    main()

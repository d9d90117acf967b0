"""All HTTP ports of the proxy together: they are opened, swept and drained alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.application.internet import TCPServer
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.net.listening import ConnectionFactory, ConnectionReactor
from tower.reactor.repeating import periodic
from tower.web.gateway.gateway import Gateway
from tower.web.ports.cluster_proxy import ClusterProxies

#: Interval for checking the deadlines of connections, s.
SWEEP_PERIOD = 1.0

#: Interval for opening cluster ports that could not be opened, s.
RETRY_PERIOD = 30.0


class ServedPorts:
    """The proxy's own ports and those of the clusters.

    :param own: number, gateway and reactor of each own port; number None: it is not opened.
    """

    _log = Logger()

    def __init__(
        self,
        host: str,
        own: Iterable[tuple[int | None, Gateway, ConnectionReactor]],
        clusters: Sequence[ClusterProxies],
    ) -> None:
        self._clusters = clusters
        self._gateways: list[Gateway] = []
        self._servers: list[TCPServer] = []
        for number, gateway, reactor in own:
            self._gateways.append(gateway)
            if number is not None:
                factory = ConnectionFactory(gateway.accept)
                self._servers.append(TCPServer(number, factory, interface=host, reactor=reactor))

    def services(self, clock: IReactorTime) -> list[Service]:
        """Return the services that open the ports, and those that keep them in order."""
        return [
            *self._clusters,
            *self._servers,
            *(periodic(clock, SWEEP_PERIOD, each.sweep) for each in self._gateways),
            *(periodic(clock, SWEEP_PERIOD, each.sweep) for each in self._clusters),
            *(periodic(clock, RETRY_PERIOD, each.retry) for each in self._clusters),
        ]

    def recheck(self, cluster: str) -> None:
        """Open or close the ports of a cluster after a change outside of its record."""
        for each in self._clusters:
            each.recheck(cluster)

    async def drain(self, grace: float, reason: str = "") -> None:
        """Close all ports; return when their connections are closed, after *grace* s at most.

        :param reason: why the proxy stops, for requests that are cut.
        """
        gateways = [*self._gateways, *(gateway for each in self._clusters for gateway in each.gateways)]
        count = sum(1 for gateway in gateways for _ in gateway.current)
        for gateway in gateways:
            gateway.farewell += f": {reason}" if reason else ""
        if count:
            self._log.info(
                "waiting up to {grace:g} s for requests in progress and streams: {count}",
                grace=grace,
                count=count,
            )
        for server in self._servers:
            if server.parent is not None:  # None if the start failed before
                await maybeDeferred(server.disownServiceParent)
        closing: list[Deferred[Any]] = [each.stop(grace) for each in self._gateways]
        await DeferredList([*closing, *(each.drain(grace) for each in self._clusters)])
        cut = sum(gateway.cut for gateway in gateways)
        if cut:
            self._log.warn(
                "requests and streams that did not end within {grace:g} s and were cut: {cut} of {count}",
                grace=grace,
                cut=cut,
                count=count,
            )
        elif count:
            self._log.info("all requests and streams have ended")

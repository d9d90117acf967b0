"""A port of its own for every enabled cluster.

`ClusterProxy` is Twisted's ``TCPServer`` with a `Gateway` behind it whose router knows one cluster only; it
speaks TLS with the front door's certificate and runs the front door's chain.  `ClusterProxies` keeps one for
each cluster that is enabled and has a port.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.internet import TCPServer
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Cluster, Clusters, ConditionStatus
from tower.errors import NotFound
from tower.listening import ConnectionFactory
from tower.web.gateway import Gateway

#: The condition that says whether a cluster's port is open.
PORT_OPEN = "KubernetesAPIServerPortOpen"


class ClusterProxy(TCPServer):
    """The port of one cluster.

    :param reactor: a `tower.listening.ConnectionReactor` with the front door's TLS.
    :ivar number: the port.
    """

    def __init__(self, reactor: Any, number: int, host: str, gateway: Gateway) -> None:
        factory = ConnectionFactory(gateway.accept)
        super().__init__(number, factory, interface=host, reactor=reactor)  # type: ignore[no-untyped-call]
        self.number = number
        self.gateway = gateway

    def stopService(self) -> Deferred[Any]:
        """Close the port, and its connections at once; fires when they are closed."""
        closed = super().stopService()  # type: ignore[no-untyped-call]
        return DeferredList([Deferred.fromCoroutine(_wait(closed)), self.gateway.stop(0)])


async def _wait(closed: Deferred[Any] | None) -> None:
    if closed is not None:
        await closed


class ClusterProxies(MultiService):
    """Opens and closes the clusters' ports as the clusters come, change and go.

    :param reactor: a `tower.listening.ConnectionReactor` with the front door's TLS.
    :param gateway: makes the gateway for a cluster.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        clusters: Clusters,
        host: str,
        gateway: Callable[[str], Gateway],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._reactor = reactor
        self._clusters = clusters
        self._host = host
        self._gateway = gateway
        self._proxies: dict[str, ClusterProxy] = {}
        self._watch: Any = None

    def startService(self) -> None:
        """Open the ports of the clusters that are there, and follow the changes."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watch = self._clusters.watch(
            lambda event, cluster: self._settle(cluster, gone=event == "DELETED")
        )
        self.retry()

    def stopService(self) -> Deferred[Any]:
        """Close all ports."""
        if self._watch is not None:
            self._watch.stop()
        self._proxies.clear()
        stopped: Deferred[Any] = super().stopService()  # type: ignore[no-untyped-call]
        return stopped

    def retry(self) -> None:
        """Try again to open what could not be opened; to be called now and then."""
        for cluster in self._clusters.list():
            self._settle(cluster)

    def sweep(self) -> None:
        """Keep the gateways' deadlines; to be called once a second."""
        for proxy in self._proxies.values():
            proxy.gateway.sweep()

    def _settle(self, cluster: Cluster, *, gone: bool = False) -> None:
        wanted = None if gone else self._clusters.listening_port(cluster)
        proxy = self._proxies.get(cluster.name)
        if proxy is not None:
            if proxy.number == wanted:
                return
            del self._proxies[cluster.name]
            closing = proxy.disownServiceParent()  # type: ignore[no-untyped-call]
            if closing is not None:
                closing.addErrback(self._not_closed, cluster.name)
        if wanted is not None:
            self._open(cluster, wanted)

    def _not_closed(self, failure: Failure, name: str) -> None:
        self._log.failure("cannot close the port of {cluster}", failure, cluster=name)

    def _open(self, cluster: Cluster, port: int) -> None:
        proxy = ClusterProxy(self._reactor, port, self._host, self._gateway(cluster.name))
        try:
            proxy.setServiceParent(self)  # type: ignore[no-untyped-call]
        except CannotListenError as e:
            proxy.parent = None
            self.services.remove(proxy)
            reason = e.socketError.strerror or str(e.socketError)
            self._log.error(
                "cannot open port {port} of {cluster}: {reason}",
                port=port,
                cluster=cluster.name,
                reason=reason,
            )
            self._note(
                cluster, "False", "PortUnavailable", f"Port {port} cannot be opened: {reason}; trying again."
            )
            return
        self._proxies[cluster.name] = proxy
        self._note(cluster, "True", "PortOpen", f"The cluster is served on port {port}.")

    def _note(self, cluster: Cluster, status: ConditionStatus, reason: str, message: str) -> None:
        known = cluster.condition(PORT_OPEN)
        if known is None or (known.status, known.message) != (status, message):
            noting = self._clusters.set_condition(cluster.name, PORT_OPEN, status, reason, message)
            noting.addErrback(self._not_noted, cluster.name)

    def _not_noted(self, failure: Failure, name: str) -> None:
        if not failure.check(NotFound):  # removed in between
            self._log.failure("cannot write the condition of {cluster}", failure, cluster=name)

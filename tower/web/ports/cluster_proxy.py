"""Ports that belong to one cluster each, and follow it.

`ClusterProxy` is Twisted's ``TCPServer`` with a `Gateway` behind it whose router knows one cluster only.
`ClusterProxies` keeps one for each cluster that is to have one, opens and closes it as the cluster comes,
changes and goes, and says so in a condition.  Which port that is, and what is behind it, is for `PortPolicy` to
say: `KubernetesPorts` here, `tower.web.ports.kubesphere_port.KubeSpherePorts` beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from attrs import field, frozen
from twisted.application.internet import TCPServer
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Cluster, Clusters, ConditionStatus
from tower.errors import NotFound
from tower.net.listening import ConnectionFactory
from tower.web.gateway.gateway import Gateway

#: The condition that says whether a cluster's port is open.
PORT_OPEN = "KubernetesAPIServerPortOpen"


@frozen
class PortSpec:
    """A port that is to be open, and how.  One that differs in anything is another one.

    :ivar number: the port.
    :ivar reactor: a `tower.net.listening.ConnectionReactor`.
    :ivar gateway: makes the gateway for a cluster.
    :ivar reason: of the condition, in one word.
    :ivar message: of the condition.
    :ivar warning: what the log has to say when it opens, if anything.
    """

    number: int
    host: str
    reactor: Any = field(repr=False)
    gateway: Callable[[str], Gateway] = field(repr=False)
    reason: str
    message: str
    warning: str = ""


@frozen
class PortClosed:
    """Why no port is to be open.

    :ivar is_news: whether that is worth a condition; else only one that says otherwise is corrected.
    """

    reason: str
    message: str
    is_news: bool = False


class PortPolicy(Protocol):
    """What is needed of a kind of ports.

    :ivar condition: the type of the condition that tells about them.
    """

    condition: str

    def of(self, cluster: Cluster) -> PortSpec | PortClosed:
        """Return which port *cluster* is to have now."""


@frozen
class OpenPorts:
    """``--v1-open-ports``: how ports are open to everybody, as all of KubeSphere Tower's were.

    :ivar applies: says whether a cluster's is; see `ClusterProxies.resettle`.
    :ivar reactor: a `tower.net.listening.ConnectionReactor` whose TLS asks for no client certificate.
    :ivar gateway: makes the gateway for a cluster, with an `tower.web.ports.router.OpenClusterPort`.
    """

    applies: Callable[[str], bool]
    reactor: Any
    gateway: Callable[[str], Gateway]


class KubernetesPorts:
    """The ports for the clusters' API servers.

    :param reactor: a `tower.net.listening.ConnectionReactor` with the front door's TLS.
    :param gateway: makes the gateway for a cluster.
    """

    condition = PORT_OPEN

    def __init__(
        self,
        reactor: Any,
        clusters: Clusters,
        host: str,
        gateway: Callable[[str], Gateway],
        opened: OpenPorts | None = None,
    ) -> None:
        self._reactor = reactor
        self._clusters = clusters
        self._host = host
        self._gateway = gateway
        self._opened = opened

    def of(self, cluster: Cluster) -> PortSpec | PortClosed:
        """See `PortPolicy.of`."""
        port = self._clusters.listening_port(cluster)
        if port is None and not cluster.enabled:
            return PortClosed("ClusterDisabled", "The port is closed, as the cluster is disabled.")
        if port is None:
            return PortClosed("Off", "Clusters have no ports of their own (--cluster-ports none).")
        opened = self._opened
        if opened is None or not opened.applies(cluster.name):
            message = f"The cluster is served on port {port}."
            return PortSpec(port, self._host, self._reactor, self._gateway, "PortOpen", message)
        text = (
            f"port {port} is open to everybody (--v1-open-ports): who shows no token of Tower's there "
            "is asked nothing and acts with the rights of the cluster's agent"
        )
        message = f"{text[0].upper()}{text[1:]}."
        return PortSpec(port, self._host, opened.reactor, opened.gateway, "OpenToEverybody", message, text)


class ClusterProxy(TCPServer):
    """The port of one cluster.

    :ivar door: what it was opened as.
    :ivar closed: fires when nothing listens there any more; there once it was stopped.
    """

    def __init__(self, door: PortSpec, gateway: Gateway) -> None:
        factory = ConnectionFactory(gateway.accept)
        super().__init__(door.number, factory, interface=door.host, reactor=door.reactor)  # type: ignore[no-untyped-call]
        self.door = door
        self.gateway = gateway
        self.closed: Deferred[None] = Deferred()

    def stopService(self) -> Deferred[Any]:
        """Close the port, and its connections at once; fires when they are closed."""
        closing = super().stopService()  # type: ignore[no-untyped-call]
        return DeferredList([Deferred.fromCoroutine(self._wait(closing)), self.gateway.stop(0)])

    async def _wait(self, closing: Deferred[Any] | None) -> None:
        try:
            if closing is not None:
                await closing
        finally:
            self.closed.callback(None)


class ClusterProxies(MultiService):
    """Opens and closes the clusters' ports of one kind as the clusters come, change and go."""

    _log = Logger()

    def __init__(self, clusters: Clusters, doors: PortPolicy) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clusters = clusters
        self._doors = doors
        self._proxies: dict[str, ClusterProxy] = {}
        self._closing: set[str] = set()
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

    def resettle(self, name: str) -> None:
        """Look again which port a cluster is to have, as something beside its record has changed."""
        cluster = self._clusters.get(name)
        if cluster is not None and self.running:
            self._settle(cluster)

    def sweep(self) -> None:
        """Keep the gateways' deadlines; to be called once a second."""
        for proxy in self._proxies.values():
            proxy.gateway.sweep()

    def _settle(self, cluster: Cluster, *, gone: bool = False) -> None:
        wanted = None if gone else self._doors.of(cluster)
        proxy = self._proxies.get(cluster.name)
        if proxy is not None and proxy.door != wanted:
            self._close(proxy, cluster.name)
        if isinstance(wanted, PortClosed):
            if wanted.is_news or cluster.condition(self._doors.condition) is not None:
                self._note(cluster, "False", wanted.reason, wanted.message)
        elif wanted is not None and cluster.name not in self._proxies and cluster.name not in self._closing:
            self._open(cluster, wanted)

    def _close(self, proxy: ClusterProxy, name: str) -> None:
        del self._proxies[name]
        self._closing.add(name)
        closing = proxy.disownServiceParent()  # type: ignore[no-untyped-call]
        if closing is not None:
            closing.addErrback(self._not_closed, name)
        proxy.closed.addCallback(self._closed, name)

    def _closed(self, _result: None, name: str) -> None:
        """Open what was to be opened in the meantime: only now is the port free."""
        self._closing.discard(name)
        self.resettle(name)

    def _not_closed(self, failure: Failure, name: str) -> None:
        self._log.failure("cannot close the port of {cluster}", failure, cluster=name)

    def _open(self, cluster: Cluster, door: PortSpec) -> None:
        proxy = ClusterProxy(door, door.gateway(cluster.name))
        try:
            proxy.setServiceParent(self)  # type: ignore[no-untyped-call]
        except CannotListenError as e:
            proxy.parent = None
            self.services.remove(proxy)
            reason = e.socketError.strerror or str(e.socketError)
            self._log.error(
                "cannot open port {port} of {cluster}: {reason}",
                port=door.number,
                cluster=cluster.name,
                reason=reason,
            )
            self._note(
                cluster,
                "False",
                "PortUnavailable",
                f"Port {door.number} cannot be opened: {reason}; trying again.",
            )
            return
        self._proxies[cluster.name] = proxy
        if door.warning:
            self._log.warn("cluster {cluster}: {text}", cluster=cluster.name, text=door.warning)
        self._note(cluster, "True", door.reason, door.message)

    def _note(self, cluster: Cluster, status: ConditionStatus, reason: str, message: str) -> None:
        kind = self._doors.condition
        known = cluster.condition(kind)
        if known is None or (known.status, known.message) != (status, message):
            noting = self._clusters.set_condition(cluster.name, kind, status, reason, message)
            noting.addErrback(self._not_noted, cluster.name)

    def _not_noted(self, failure: Failure, name: str) -> None:
        if not failure.check(NotFound):  # removed in between
            self._log.failure("cannot write the condition of {cluster}", failure, cluster=name)

"""One port per cluster, opened and closed as clusters are added, changed and removed.

`ClusterProxy` is a Twisted ``TCPServer`` whose `Gateway` serves one cluster.  `ClusterProxies` keeps one per
cluster and reports its state in a condition of the cluster.  A `PortPolicy` decides number and kind of the
port: `KubernetesPorts` here, and `tower.web.ports.kubesphere_port.KubeSpherePorts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

from attrs import define, field, frozen
from twisted.application.internet import TCPServer
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Cluster, Clusters, ConditionStatus
from tower.errors import NotFound
from tower.net.listening import ConnectionFactory, ConnectionReactor
from tower.store.records import StoreFailed, Watch
from tower.web.gateway.gateway import Gateway

#: The condition that reports whether a cluster's port is open.
PORT_OPEN = "KubernetesAPIServerPortOpen"

#: How long after a drain the port's connections are cut, s: the drain's end cuts them with the reason.
_DRAIN_END = 1.0


@frozen
class PortSpec:
    """A port to open.  A cluster's port is reopened when any of these changes.

    :ivar reactor: listens, with or without TLS; not compared.
    :ivar gateway: makes the gateway for a cluster.
    :ivar reason: of the condition, one word.
    :ivar message: of the condition.
    :ivar warning: logged when the port opens, if not empty.
    """

    number: int
    host: str
    reactor: ConnectionReactor = field(repr=False, eq=False)
    gateway: Callable[[str], Gateway] = field(repr=False)
    reason: str
    message: str
    warning: str = ""


@frozen
class PortClosed:
    """The reason why a cluster has no port.

    :ivar always_report: set the condition; otherwise only a condition that exists already is updated.
    :ivar grace: how long requests may continue after the port is closed, s.
    """

    reason: str
    message: str
    always_report: bool = False
    grace: float = 0.0

    @classmethod
    def of_disabled(cls, cluster: Cluster) -> Self:
        """Return the reason of a disabled cluster, whose drain ends first."""
        grace = cluster.drain + _DRAIN_END if cluster.drain else 0.0
        message = "The port is closed because the cluster is disabled."
        return cls("ClusterDisabled", message, grace=grace)


class PortPolicy(Protocol):
    """Decides the ports of one kind; `condition` is the type of the condition that reports them."""

    condition: str

    def port_of(self, cluster: Cluster) -> PortSpec | PortClosed:
        """Return the current port of *cluster*."""


@frozen
class OpenPorts:
    """Ports without required authentication (``--v1-open-ports``), as all of KubeSphere Tower's were.

    :ivar applies: returns whether a cluster's port is one; after a change call `ClusterProxies.recheck`.
    :ivar reactor: makes the reactor for a cluster, whose TLS does not request client certificates.
    :ivar gateway: makes the gateway for a cluster, with a `tower.web.ports.cluster_ports.OpenClusterPort`.
    """

    applies: Callable[[str], bool]
    reactor: Callable[[str], ConnectionReactor]
    gateway: Callable[[str], Gateway]


@define(eq=False, repr=False)
class KubernetesPorts:
    """The ports of the clusters' API servers; a `PortPolicy`.

    :param reactor: makes the reactor for a cluster, with TLS.
    :param opened: ports without authentication; None: all ports authenticate.
    :param by_token: makes the gateway for a cluster that authenticates its own accounts; see
        `tower.web.ports.cluster_ports.TokenClusterPort`.
    """

    condition = PORT_OPEN

    _reactor: Callable[[str], ConnectionReactor]
    _clusters: Clusters
    _host: str
    _gateway: Callable[[str], Gateway]
    _opened: OpenPorts | None = None
    _by_token: Callable[[str], Gateway] | None = None

    def port_of(self, cluster: Cluster) -> PortSpec | PortClosed:
        """See `PortPolicy.port_of`."""
        port = self._clusters.ports.listening(cluster)
        if port is None and not cluster.enabled:
            return PortClosed.of_disabled(cluster)
        if port is None and self._clusters.ports.range is not None:
            return PortClosed("NoPort", "The cluster has no port yet.")
        if port is None:
            return PortClosed("Off", "Cluster ports are off (--cluster-ports none).")
        opened = self._opened
        if opened is None or not opened.applies(cluster.name):
            if cluster.allows_lone_tokens and self._by_token is not None:
                return self._accepting_tokens(cluster, port, self._by_token)
            message = f"The cluster is served on port {port}."
            return PortSpec(port, self._host, self._reactor(cluster.name), self._gateway, "PortOpen", message)
        text = (
            f"port {port} does not require authentication (--v1-open-ports): requests without a token "
            "from Tower act with the rights of the cluster's agent"
        )
        message = f"{text[0].upper()}{text[1:]}."
        return PortSpec(
            port, self._host, opened.reactor(cluster.name), opened.gateway, "OpenToEverybody", message, text
        )

    def _accepting_tokens(self, cluster: Cluster, port: int, gateway: Callable[[str], Gateway]) -> PortSpec:
        text = (
            f"port {port} also accepts tokens of the cluster's own service accounts, which only its API "
            "server authenticates (--member-tokens allow-alone)"
        )
        reactor, message = self._reactor(cluster.name), f"{text[0].upper()}{text[1:]}."
        return PortSpec(port, self._host, reactor, gateway, "AcceptsMemberTokens", message, text)


class ClusterProxy(TCPServer):
    """The port of one cluster.

    :ivar grace: how long requests may continue after the port is closed, s.
    :ivar closed: fires when the port is free again.
    """

    def __init__(self, spec: PortSpec, gateway: Gateway) -> None:
        factory = ConnectionFactory(gateway.accept)
        super().__init__(spec.number, factory, interface=spec.host, reactor=spec.reactor)  # type: ignore[no-untyped-call]
        self.spec = spec
        self.gateway = gateway
        self.grace = 0.0
        self.closed: Deferred[None] = Deferred()

    def stopService(self) -> Deferred[Any]:
        """Close the port, and its connections within `grace`; fires when they are closed."""
        closing = super().stopService()  # type: ignore[no-untyped-call]
        return DeferredList([Deferred.fromCoroutine(self._wait(closing)), self.gateway.stop(self.grace)])

    async def _wait(self, closing: Deferred[Any] | None) -> None:
        try:
            if closing is not None:
                await closing
        finally:
            self.closed.callback(None)


class ClusterProxies(MultiService):
    """The clusters' ports of one kind."""

    _log = Logger()

    def __init__(self, clusters: Clusters, policy: PortPolicy) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clusters = clusters
        self._policy = policy
        self._proxies: dict[str, ClusterProxy] = {}
        self._closing: set[str] = set()
        self._watch: Watch | None = None
        self._draining = False

    def startService(self) -> None:
        """Open the ports of all clusters, and follow changes of the clusters."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watch = self._clusters.watch(
            lambda event, cluster: self._reconcile(cluster, removed=event == "DELETED")
        )
        self.retry()

    def stopService(self) -> Deferred[Any]:
        """Close all ports and their connections."""
        if self._watch is not None:
            self._watch.stop()
        self._proxies.clear()
        stopped: Deferred[Any] = super().stopService()  # type: ignore[no-untyped-call]
        return stopped

    @property
    def gateways(self) -> list[Gateway]:
        """The gateways of the ports that are open or drain."""
        return [proxy.gateway for proxy in self._proxies.values()]

    def drain(self, grace: float) -> Deferred[Any]:
        """Close all ports for good; requests in progress may finish within *grace* s.

        The result fires when all connections are closed.  Keep calling `sweep` until then.
        """
        self._draining = True
        closing = []
        for proxy in self._proxies.values():
            proxy.grace = grace
            closing.append(maybeDeferred(proxy.disownServiceParent))
        return DeferredList(closing)

    def retry(self) -> None:
        """Open the ports that could not be opened before; to be called periodically."""
        for cluster in self._clusters.list():
            self._reconcile(cluster)

    def recheck(self, name: str) -> None:
        """Ask the policy again, after a change outside of the cluster's record."""
        cluster = self._clusters.get(name)
        if cluster is not None and self.running:
            self._reconcile(cluster)

    def sweep(self) -> None:
        """Enforce the gateways' deadlines; to be called once a second."""
        for proxy in self._proxies.values():
            proxy.gateway.sweep()

    def _reconcile(self, cluster: Cluster, *, removed: bool = False) -> None:
        if self._draining:
            return
        wanted = None if removed else self._policy.port_of(cluster)
        proxy = self._proxies.get(cluster.name)
        if proxy is not None and proxy.spec != wanted:
            proxy.gateway.farewell = f"the port of cluster {cluster.name} is being closed"
            proxy.grace = wanted.grace if isinstance(wanted, PortClosed) else 0.0
            self._close(proxy, cluster.name)
        if isinstance(wanted, PortClosed):
            if wanted.always_report or cluster.condition(self._policy.condition) is not None:
                self._report(cluster, "False", wanted.reason, wanted.message)
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
        """Open the cluster's next port, which had to wait until this one was free."""
        self._closing.discard(name)
        self.recheck(name)

    def _not_closed(self, failure: Failure, name: str) -> None:
        self._log.failure("cannot close the port of cluster {cluster}", failure, cluster=name)

    def _open(self, cluster: Cluster, spec: PortSpec) -> None:
        proxy = ClusterProxy(spec, spec.gateway(cluster.name))
        try:
            proxy.setServiceParent(self)  # type: ignore[no-untyped-call]
        except CannotListenError as e:
            proxy.parent = None
            self.services.remove(proxy)
            reason = e.socketError.strerror or str(e.socketError)
            self._log.error(
                "cannot open port {port} of cluster {cluster}: {reason}",
                port=spec.number,
                cluster=cluster.name,
                reason=reason,
            )
            message = f"Port {spec.number} cannot be opened: {reason}; retrying."
            self._report(cluster, "False", "PortUnavailable", message)
            return
        self._proxies[cluster.name] = proxy
        if spec.warning:
            self._log.warn("cluster {cluster}: {text}", cluster=cluster.name, text=spec.warning)
        self._report(cluster, "True", spec.reason, spec.message)

    def _report(self, cluster: Cluster, status: ConditionStatus, reason: str, message: str) -> None:
        kind = self._policy.condition
        known = cluster.condition(kind)
        if known is None or (known.status, known.message) != (status, message):
            writing = self._clusters.set_condition(cluster.name, kind, status, reason, message)
            writing.addErrback(self._not_reported, cluster.name)

    def _not_reported(self, failure: Failure, name: str) -> None:
        if failure.check(StoreFailed):
            text = "cannot write the port condition of cluster {cluster}: {reason}"
            self._log.warn(text, cluster=name, reason=str(failure.value))
        elif not failure.check(NotFound):  # removed meanwhile
            self._log.failure("cannot write the port condition of cluster {cluster}", failure, cluster=name)

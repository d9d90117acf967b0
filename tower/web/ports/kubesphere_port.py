"""The clusters' KubeSphere ports: plain HTTP to the API server of each cluster's KubeSphere.

Other parts of KubeSphere use these ports, as they did with KubeSphere Tower.  The ports do not authenticate
clients, and change no header but ``X-Forwarded-For``: KubeSphere has its own login.  They are off by default
(``--kubesphere-ports``) and listen on the loopback address by default (``--kubesphere-host``).
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from tower.clusters import Cluster, Clusters
from tower.net.connection_slots import prove
from tower.net.listening import ConnectionReactor
from tower.tunnels.targets import KUBESPHERE
from tower.web.access.authentication.identity import ANONYMOUS
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Relay
from tower.web.ports.cluster_proxy import PortClosed, PortSpec

#: The condition that reports whether a cluster's KubeSphere port is open.
KUBESPHERE_PORT_OPEN = "KubeSpherePortOpen"

#: Difference between a cluster's KubeSphere port and its Kubernetes port, as in KubeSphere Tower.
OFFSET = 10_000


class KubeSpherePort:
    """The router of one KubeSphere port: relays every request to the cluster's KubeSphere.

    Requests are not changed, except that ``X-Forwarded-For`` gets the client's address, as in KubeSphere
    Tower.
    """

    def __init__(self, cluster: str) -> None:
        self._relay = Relay(cluster, target=KUBESPHERE, plain=True, names_client=True)

    def __call__(self, request: Request) -> Relay | Deferred[Outcome]:
        """Return the relay to KubeSphere."""
        request.identity = ANONYMOUS
        prove(request.channel.connection)  # every client that reaches this port may use it
        waiting = request.audit(self._relay.cluster)
        return self._relay if waiting is None else waiting.addCallback(lambda _: self._relay)


class KubeSpherePorts:
    """The KubeSphere ports; a `tower.web.ports.cluster_proxy.PortPolicy`.

    :param reactor: without TLS.
    :param ports: the allowed range; None: KubeSphere ports are off.
    """

    condition = KUBESPHERE_PORT_OPEN

    def __init__(
        self,
        reactor: ConnectionReactor,
        clusters: Clusters,
        host: str,
        ports: range | None,
        gateway: Callable[[str], Gateway],
    ) -> None:
        self._reactor = reactor
        self._clusters = clusters
        self._host = host
        self._ports = ports
        self._gateway = gateway

    def port_of(self, cluster: Cluster) -> PortSpec | PortClosed:
        """See `tower.web.ports.cluster_proxy.PortPolicy.port_of`."""
        ports = self._ports
        if ports is None:
            return PortClosed("Off", "KubeSphere ports are off; --kubesphere-ports opens them.")
        if not cluster.enabled:
            return PortClosed.of_disabled(cluster)
        if cluster.kubernetes_port is None or not self._clusters.ports.owns(cluster):
            return PortClosed(
                "NoPort",
                "The cluster has no Kubernetes port (--cluster-ports), and the KubeSphere port is that "
                f"plus {OFFSET}.",
                always_report=True,
            )
        port = cluster.kubernetes_port + OFFSET
        if port not in ports:
            return PortClosed(
                "OutOfRange",
                f"Port {port} is not within --kubesphere-ports {ports.start}-{ports.stop - 1}.",
                always_report=True,
            )
        text = (
            f"KubeSphere is served on port {port} of {self._host} by plain HTTP: clients are not "
            "authenticated, and only X-Forwarded-For is changed"
        )
        return PortSpec(port, self._host, self._reactor, self._gateway, "PortOpen", f"{text}.", text)

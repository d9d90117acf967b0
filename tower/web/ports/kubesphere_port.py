"""The clusters' KubeSphere ports: plain HTTP to the API server of each cluster's KubeSphere.

They are what other parts of KubeSphere were pointed at by KubeSphere Tower.  Nobody is authenticated there
and no header is touched: KubeSphere has a login of its own.  So they are off unless asked for
(``--kubesphere-ports``), and on the loopback address unless another is given (``--kubesphere-host``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tower.clusters import Cluster
from tower.net.connection_slots import prove
from tower.tunnels.targets import KUBESPHERE
from tower.web.access.authentication import ANYBODY
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.request import Request
from tower.web.outcome import Relay
from tower.web.ports.cluster_proxy import PortClosed, PortSpec

#: The condition that says whether a cluster's KubeSphere port is open.
KUBESPHERE_PORT_OPEN = "KubeSpherePortOpen"

#: How far above a cluster's port for Kubernetes the one for KubeSphere is, as in KubeSphere Tower.
OFFSET = 10_000


class KubeSpherePort:
    """The router of one of them: everything goes to the cluster's KubeSphere as it came."""

    def __init__(self, cluster: str) -> None:
        self._relay = Relay(cluster, target=KUBESPHERE, plain=True)

    def __call__(self, request: Request) -> Relay:
        """Return where *request* goes."""
        request.identity = ANYBODY
        prove(request.channel.connection)  # whoever reaches this port may use it
        request.audit(self._relay.cluster)
        return self._relay


class KubeSpherePorts:
    """Those ports; a `tower.web.ports.cluster_proxy.PortPolicy`.

    :param reactor: a `tower.net.listening.ConnectionReactor` without TLS.
    :param ports: within which they have to lie; None: there are none.
    :param gateway: makes the gateway for a cluster, with a `KubeSpherePort`.
    """

    condition = KUBESPHERE_PORT_OPEN

    def __init__(
        self, reactor: Any, host: str, ports: range | None, gateway: Callable[[str], Gateway]
    ) -> None:
        self._reactor = reactor
        self._host = host
        self._ports = ports
        self._gateway = gateway

    def of(self, cluster: Cluster) -> PortSpec | PortClosed:
        """See `tower.web.ports.cluster_proxy.PortPolicy.of`."""
        ports = self._ports
        if ports is None:
            return PortClosed("Off", "KubeSphere ports are off: --kubesphere-ports would open them.")
        if not cluster.enabled:
            return PortClosed("ClusterDisabled", "The port is closed, as the cluster is disabled.")
        if cluster.kubernetes_port is None:
            return PortClosed(
                "NoPort",
                "The cluster has no port for Kubernetes, which the one for KubeSphere follows "
                "(--cluster-ports).",
                is_news=True,
            )
        port = cluster.kubernetes_port + OFFSET
        if port not in ports:
            return PortClosed(
                "OutOfRange",
                f"Port {port} is not within --kubesphere-ports {ports.start}-{ports.stop - 1}.",
                is_news=True,
            )
        text = (
            f"KubeSphere is served on port {port} of {self._host}, in plain HTTP: nobody is authenticated "
            "there, and no header is touched"
        )
        return PortSpec(port, self._host, self._reactor, self._gateway, "PortOpen", f"{text}.", text)

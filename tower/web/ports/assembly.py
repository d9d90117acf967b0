"""Assembly of the proxy's HTTP ports: reactors with their limits, gateways, and the ports of clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Clusters
from tower.clusters.v1_tokens import V1Tokens
from tower.http.identity_fields import IdentityFields
from tower.net.budget import Budget
from tower.net.connection_slots import Slots
from tower.net.listening import Admission, ConnectionReactor
from tower.net.load_balancers import Balancers
from tower.reactor.poller import Poller
from tower.trust.port_certificates import PortCertificates
from tower.trust.serving_certificate import ServingCertificate
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.filters import FilterChain
from tower.web.access.request_logs import RequestLogs
from tower.web.access.sessions import Sessions
from tower.web.gateway.cross_origin import CrossOrigin
from tower.web.gateway.gateway import Gateway, RequestLimits, Router, SharedLimits
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.measurements import RequestMeter
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.limits.door_limits import DoorLimits
from tower.web.ports.cluster_ports import ClusterPort, OpenClusterPort, TokenClusterPort
from tower.web.ports.cluster_proxy import ClusterProxies, KubernetesPorts, OpenPorts
from tower.web.ports.door_reviews import DoorReviews
from tower.web.ports.kubesphere_port import KubeSpherePort, KubeSpherePorts


@frozen(eq=False)
class PortReactors:
    """Reactors whose ports share the limits of connections.

    :ivar plain: without TLS.
    :ivar tls: with TLS, for users and agents.
    :ivar certificates: those of the clusters' ports.
    """

    slots: Slots
    admission: Admission
    plain: ConnectionReactor
    tls: ConnectionReactor
    certificates: PortCertificates
    _sockets: Poller

    @classmethod
    def of(cls, sockets: Poller, serving: ServingCertificate, slots: Slots, balancers: Balancers) -> Self:
        """Return the reactors; *balancers* may name the clients of their connections."""
        admission = Admission(slots, balancers)
        plain = ConnectionReactor(sockets, None, admission)
        tls = ConnectionReactor(sockets, lambda: serving.context, admission)
        return cls(slots, admission, plain, tls, PortCertificates(serving), sockets)

    def of_cluster(self, name: str) -> ConnectionReactor:
        """Return the reactor for the port of a cluster, with TLS, for users."""
        context = partial(self.certificates.context, name)
        return ConnectionReactor(self._sockets, context, self.admission)

    def open_for(self, name: str) -> ConnectionReactor:
        """Return the reactor for the port of a cluster, with TLS, for clients without a credential."""
        context = partial(self.certificates.open_context, name)
        return ConnectionReactor(self._sockets, context, self.admission)


@frozen(eq=False)
class Gateways:
    """Makes the gateways, which share everything but their routers; see `Gateway`."""

    _clock: IReactorTime
    _pool: ChannelPool
    _sessions: Sessions
    _budget: Budget
    _inflight: DoorLimits
    _logs: RequestLogs
    _meter: RequestMeter
    _shared: SharedLimits
    _claims: IdentityFields
    _limits: RequestLimits = field(factory=RequestLimits)
    _origins: CrossOrigin | None = None

    def __call__(self, router: Router, *, allows_origins: bool = True) -> Gateway:
        """Return a gateway.

        :param allows_origins: whether pages of the allowed origins may use it.
        """
        origins = self._origins if allows_origins else None
        return Gateway(
            self._clock,
            router if origins is None else origins.router(router),
            self._pool,
            self._sessions,
            self._limits,
            budget=self._budget,
            inflight=self._inflight,
            audit=self._logs.audit,
            observer=self._logs.accesses,
            meter=self._meter,
            shared=self._shared,
            claims=self._claims,
            protocol=HTTPChannel if origins is None else origins.protocol,
        )


def kubernetes_ports(
    options: Mapping[str, Any],
    reactors: PortReactors,
    gateway: Gateways,
    clusters: Clusters,
    v1_tokens: V1Tokens,
    chain: FilterChain,
    generation: AdmissionGeneration,
    reviews: DoorReviews,
    *,
    has_controller: bool,
    is_for_door: Callable[[bytes], bool],
) -> ClusterProxies:
    """Return the clusters' own ports; *chain* filters their requests, and *reviews* answers some.

    :param is_for_door: see `TokenClusterPort`.
    :param has_controller: each cluster gets a token, so only a used one makes its port an open one.
    """
    open_ports = OpenPorts(
        v1_tokens.are_used if has_controller else lambda name: bool(v1_tokens.tokens(name)),
        reactors.open_for,
        lambda name: gateway(OpenClusterPort(chain, name, generation, reviews)),
    )
    return ClusterProxies(
        clusters,
        KubernetesPorts(
            reactors.of_cluster,
            clusters,
            options["host"],
            lambda name: gateway(ClusterPort(chain, name, generation, reviews)),
            open_ports if options["v1-open-ports"] else None,
            lambda name: gateway(TokenClusterPort(chain, name, generation, is_for_door, reviews)),
        ),
    )


def kubesphere_ports(
    options: Mapping[str, Any], reactors: PortReactors, gateway: Gateways, clusters: Clusters
) -> ClusterProxies:
    """Return the ports of the clusters' KubeSphere consoles."""
    return ClusterProxies(
        clusters,
        KubeSpherePorts(
            reactors.plain,
            clusters,
            options["kubesphere-host"],
            options["kubesphere-ports"],
            lambda name: gateway(KubeSpherePort(name), allows_origins=False),
        ),
    )

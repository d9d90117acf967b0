"""The proxy's HTTP side: what is behind each of its ports, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList

from tower.clusters.v1_tokens import KIND as V1_TOKENS
from tower.control.proxy_options import Options
from tower.control.records import ProxyRecords
from tower.control.trust import ProxyTrust
from tower.net.budget import UNAUTHENTICATED_MINIMUM, UNAUTHENTICATED_PART, Budget
from tower.net.listening import Admission, ConnectionReactor
from tower.nodes.clusters import NodeClusters
from tower.reactor.clock import TimeOfDay
from tower.reactor.periodic import periodic
from tower.store.audit_log import AuditLog
from tower.store.records import Watch
from tower.tunnels import Tunnels
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.audit import Audit
from tower.web.access.audit_formats import FORMATS
from tower.web.access.authentication import Authenticator
from tower.web.access.filters import FilterChain, identification, user_chain
from tower.web.access.sessions import SWEEP_PERIOD, Sessions
from tower.web.api.dispatch import Api
from tower.web.api.issuer import Issuer, Published
from tower.web.api.resources import tower_api
from tower.web.gateway.channel_pool import SWEEP_PERIOD as POOL_PERIOD
from tower.web.gateway.channel_pool import ChannelPool
from tower.web.gateway.gateway import Common, Gateway, Router
from tower.web.gateway.inflight import InFlight
from tower.web.ports.cluster_proxy import ClusterProxies, KubernetesPorts, OpenPorts
from tower.web.ports.kubesphere_port import KubeSpherePort, KubeSpherePorts
from tower.web.ports.router import ClusterPort, FrontDoor, OpenClusterPort, PlainPort, TakeAgent

#: How often to try again to open a cluster's port, s.
RETRY_PORTS = 30.0


class Gateways:
    """:param sockets: a `tower.reactor.poller.Poller`.
    :param take_agent: gets the connections of agents.
    :param admission: for all ports.
    :param is_ready: says whether requests can be served.
    :param audit_log: gets a line for what everybody asks.
    :ivar front: behind the one TLS port.
    :ivar plain: behind the port without TLS.
    :ivar sessions: what people do now.
    """

    def __init__(
        self,
        options: Options,
        sockets: Any,
        day: TimeOfDay,
        trust: ProxyTrust,
        records: ProxyRecords,
        tunnels: Tunnels,
        nodes: NodeClusters,
        budget: Budget,
        admission: Admission,
        take_agent: TakeAgent,
        is_ready: Callable[[], bool],
        audit_log: AuditLog | None = None,
    ) -> None:
        self._options = options
        self._sockets = sockets
        self._day = day
        self._trust = trust
        self._records = records
        self._budget = budget
        self._admission = admission
        self._watch: Watch | None = None
        limit = options["max-requests-inflight"]
        self._inflight = InFlight(limit) if limit else None
        form = FORMATS[options["audit-log-format"]]()
        self._audit = None if audit_log is None else Audit(audit_log, form, day.seconds)
        self._common = Common.of(sockets, max(budget.capacity // UNAUTHENTICATED_PART, UNAUTHENTICATED_MINIMUM))
        authenticator = Authenticator(records.credentials, day)
        self.sessions = Sessions(authenticator)
        self._pool = ChannelPool(tunnels)
        self._chain = user_chain(authenticator, records.clusters.get)
        self._rights = AdmissionGeneration(records.store, day.seconds)
        self.front = self._gateway(
            FrontDoor(
                self._chain,
                identification(authenticator),
                self._api(tunnels, nodes),
                take_agent,
                self._rights,
                is_ready,
                ssh_tunnel=nodes.unhealthy,
                kubelets=nodes.kubelets,
            )
        )
        self.plain = self._gateway(PlainPort(take_agent, nodes.unhealthy))
        self._proxies = ClusterProxies(records.clusters, self._kubernetes_doors(self._chain))
        self._kubespheres = ClusterProxies(
            records.clusters,
            KubeSpherePorts(
                ConnectionReactor(sockets, None, admission),
                options["kubesphere-host"],
                options["kubesphere-ports"],
                lambda name: self._gateway(KubeSpherePort(name)),
            ),
        )

    def _gateway(self, router: Router) -> Gateway:
        return Gateway(
            self._day,
            router,
            self._pool,
            self.sessions,
            budget=self._budget,
            inflight=self._inflight,
            audit=self._audit,
            common=self._common,
        )

    def _api(self, tunnels: Tunnels, nodes: NodeClusters) -> Api:
        options, trust, records = self._options, self._trust, self._records
        issuer = Issuer(
            records.clusters,
            records.credentials,
            records.tokens,
            None if options["require-v2"] else records.old_tokens,
            trust.users,
            trust.authority,
            lambda: [key.fingerprint for key in trust.host_keys],
            Published(
                options["host"], options["publish-service-address"], options["secure-port"], options["port"]
            ),
            self._day,
        )
        return tower_api(
            records.store,
            records.clusters,
            records.credentials,
            records.tokens,
            records.old_tokens,
            tunnels,
            issuer,
            self._day,
            records.accesses,
            nodes.status,
            check_files=nodes.check_files,
        )

    def _kubernetes_doors(self, chain: FilterChain) -> KubernetesPorts:
        return KubernetesPorts(
            ConnectionReactor(self._sockets, self._trust.serving.context, self._admission),
            self._records.clusters,
            self._options["host"],
            lambda name: self._gateway(ClusterPort(chain, name, self._rights)),
            self._open_doors(chain) if self._options["v1-open-ports"] else None,
        )

    def _open_doors(self, chain: FilterChain) -> OpenPorts:
        """Return how the ports of clusters with old agents are open, and look again when tokens change."""
        self._watch = self._records.store.watch(
            V1_TOKENS, lambda event: self._proxies.recheck(str(event.record.value["cluster"]))
        )
        return OpenPorts(
            lambda name: bool(self._records.old_tokens.tokens(name)),
            ConnectionReactor(self._sockets, self._trust.serving.open_context, self._admission),
            lambda name: self._gateway(OpenClusterPort(chain, name, self._rights)),
        )

    def services(self, reactor: Any) -> list[Service]:
        """Return what has to run beside the two ports."""
        return [
            self._proxies,
            self._kubespheres,
            periodic(reactor, 1.0, self._sweep),
            periodic(reactor, SWEEP_PERIOD, self.sessions.sweep),
            periodic(reactor, POOL_PERIOD, self._pool.sweep),
            periodic(reactor, RETRY_PORTS, self._proxies.retry),
            periodic(reactor, RETRY_PORTS, self._kubespheres.retry),
        ]

    def _sweep(self) -> None:
        self.front.sweep()
        self.plain.sweep()
        self._proxies.sweep()
        self._kubespheres.sweep()
        self._admission.sweep()

    async def drain(self, grace: float) -> None:
        """Close the clusters' ports; let the requests of all ports finish within *grace* s, then end them."""
        stopping: Deferred[Any] = DeferredList(
            [
                self.front.stop(grace),
                self.plain.stop(grace),
                self._proxies.drain(grace),
                self._kubespheres.drain(grace),
            ]
        )
        await stopping
        self._pool.stop()

    def stop(self) -> None:
        """Follow the records no longer, and write what is left to be logged."""
        self._common.rejections.write()
        if self._watch is not None:
            self._watch.stop()
        self._rights.stop()

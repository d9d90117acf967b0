"""Servers: Tower's API and pages, the clusters, and the ports for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from attrs import frozen
from twisted.application.service import Service

from tower.clusters.records import Records
from tower.control.front_door.server_chain import StartHooks, create_server_chain
from tower.control.metrics.proxy_metrics import ProxyMetrics
from tower.control.planes.connection_limits import ConnectionLimits
from tower.control.planes.runtime import RecordFollower, Runtime
from tower.control.planes.trust_plane import TrustPlane
from tower.control.planes.tunnel_plane import TunnelPlane
from tower.control.planes.user_plane import UserPlane
from tower.http.identity_fields import STANDARD
from tower.metrics.page import MetricsPage
from tower.metrics.port import MetricsPort
from tower.options.followed_file import PERIOD as FILES_PERIOD
from tower.rotation.rotations import Rotations
from tower.server.chain import PreparedChain
from tower.server.login_server import LoginRoutes
from tower.store.kinds import PORTS, V1_TOKENS
from tower.store.records import Event
from tower.web.access.request_logs import RequestLogs
from tower.web.api.dispatch import Api
from tower.web.api.issuer import Issuer
from tower.web.api.resources import tower_api
from tower.web.api.watch import WatchLimits
from tower.web.gateway.gateway import RequestLimits
from tower.web.gateway.upstream.channel_pool import SWEEP_PERIOD as POOL_PERIOD
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.limits.active_users import ActiveUsers
from tower.web.limits.door_limits import DoorLimits
from tower.web.ports.assembly import Gateways, PortReactors, kubernetes_ports, kubesphere_ports
from tower.web.ports.import_page import ImportPage
from tower.web.ports.plain_port import PlainPort
from tower.web.ports.router import FrontDoor
from tower.web.ports.served_ports import SWEEP_PERIOD, ServedPorts


@frozen(eq=False)
class ServingPlane:
    """The servers and their ports.

    :ivar servers: the chain behind the front door.
    :ivar pool: the channels into clusters.
    :ivar reactors: their certificates are those of the clusters' ports.
    :ivar services: open the ports, and keep them in order.
    """

    servers: PreparedChain
    ports: ServedPorts
    pool: ChannelPool
    reactors: PortReactors
    metrics: MetricsPage
    services: Sequence[Service]
    followers: Sequence[RecordFollower]

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        records: Records,
        limits: ConnectionLimits,
        trust: TrustPlane,
        tunnels: TunnelPlane,
        users: UserPlane,
        logs: RequestLogs,
        rotations: Rotations,
        start_hooks: StartHooks,
        *,
        has_controller: bool,
    ) -> Self:
        """Return the plane.

        :param has_controller: see `tower.web.ports.assembly.kubernetes_ports`.
        """
        options, reactor, clusters = runtime.options, runtime.reactor, records.clusters
        issuer = _issuer(runtime, records, trust)
        door_limits = DoorLimits.of(options, ActiveUsers(reactor.seconds))
        metrics = ProxyMetrics.of(
            reactor,
            trust.keys,
            trust.serving,
            records.store,
            records,
            tunnels.tunnels,
            tunnels.nodes,
            limits.budget,
            limits.slots,
            limits.shared,
            logs.audit,
            logs.access_log,
            door_limits,
            lambda: trust.named.expiries,
        )
        metrics.page.add(users.metrics)
        pool = ChannelPool(tunnels.tunnels, reactor.seconds, tunnels.silences)
        servers = create_server_chain(
            options,
            reactor,
            users.chain,
            _api(runtime, records, tunnels, users, issuer, rotations),
            tunnels.nodes,
            metrics.page.pieces,
            ImportPage(issuer, reactor.seconds),
            LoginRoutes(users.authentication, users.logins.pages),
            start_hooks,
            pool,
        ).prepare_run()

        # HTTP ports
        front_proxies = options.front_proxy_fields
        gateway = Gateways(
            runtime.day,
            pool,
            users.sessions,
            limits.budget,
            door_limits,
            logs,
            metrics.requests,
            limits.shared,
            STANDARD if front_proxies is None else front_proxies.claims,
            RequestLimits(answer=options["request-timeout"]),
            options["cors-allowed-origins"],
        )
        accept_agent = tunnels.agents.endpoint.accept
        front = gateway(
            FrontDoor(
                users.chain,
                users.authentication,
                servers.route,
                accept_agent,
                users.generation,
                kubelets=tunnels.nodes.kubelets,
                reviews=users.reviews,
            )
        )
        plain = gateway(
            PlainPort(accept_agent, tunnels.nodes.unhealthy, servers.health.answer), allows_origins=False
        )
        reactors = PortReactors.of(runtime.sockets, trust.serving, limits.slots, limits.balancers)
        cluster_ports = kubernetes_ports(
            options,
            reactors,
            gateway,
            clusters,
            records.v1_tokens,
            users.chain,
            users.generation,
            users.reviews,
            has_controller=has_controller,
            is_for_door=users.is_for_door,
        )
        own = ((options["port"], plain, reactors.plain), (options["secure-port"], front, reactors.tls))
        ports = ServedPorts(
            options["host"], own, (cluster_ports, kubesphere_ports(options, reactors, gateway, clusters))
        )

        def token_changed(event: Event) -> None:
            cluster_ports.recheck(str(event.record.value["cluster"]))

        def port_changed(event: Event) -> None:
            ports.recheck(str(event.record.value["cluster"]))

        watch = records.store.watch
        services = [
            metrics.lag,
            *ports.services(reactor),
            *runtime.every(SWEEP_PERIOD, reactors.admission.sweep),
            *runtime.every(FILES_PERIOD, logs.check_files),
            *runtime.every(POOL_PERIOD, pool.sweep),
        ]
        if options["metrics-port"] is not None:
            services.append(
                MetricsPort(reactor, metrics.page, options["metrics-host"], options["metrics-port"])
            )
        followers = [watch(V1_TOKENS, token_changed), watch(PORTS, port_changed)]
        return cls(servers, ports, pool, reactors, metrics.page, services, followers)


def _issuer(runtime: Runtime, records: Records, trust: TrustPlane) -> Issuer:
    return Issuer(
        records.clusters,
        records.credentials,
        records.tokens,
        None if runtime.options["require-v2"] else records.v1_tokens,
        trust.keys.users,
        trust.keys.authority,
        trust.keys.fingerprints,
        trust.published,
        runtime.day,
        records.imports,
        trust.named.kubeconfig_authority,
    )


def _api(
    runtime: Runtime,
    records: Records,
    tunnels: TunnelPlane,
    users: UserPlane,
    issuer: Issuer,
    rotations: Rotations,
) -> Api:
    return tower_api(
        records,
        tunnels.tunnels,
        issuer,
        runtime.day,
        tunnels.nodes.status,
        tunnels.nodes.check_files,
        rotations,
        users.policies,
        users.authorization.rights,
        WatchLimits(runtime.options["min-request-timeout"]),
        users.authorization.rules,
        users.logins.revoke,
    )

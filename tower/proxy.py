"""``twistd -n tower-proxy``: how the proxy's parts are put together."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from twisted.application.internet import TCPServer
from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower import __version__
from tower.adminaccess import LOOK, AdminAccess
from tower.authorities import given_authority, own_authority
from tower.availability import Availability
from tower.budget import Budget
from tower.clock import TimeOfDay, count_steadily
from tower.clusters import Clusters
from tower.conch.keys import load_or_create
from tower.credentials import Credentials
from tower.errors import ConfigurationError
from tower.jointokens import JoinTokens
from tower.kube.kubeconfig import KubeAccess
from tower.listening import ConnectionFactory, ConnectionReactor
from tower.nodes.access import MemberAccesses
from tower.nodes.clusters import LOOK_PERIOD, NodeClusters
from tower.nodes.given import ensure, read_access
from tower.nodes.metrics import MetricsPort, TunnelCollector, registry_of
from tower.nodes.nodecluster import Surroundings
from tower.options import OptionError, one_line_errors
from tower.periodic import periodic
from tower.poller import Poller
from tower.process import raise_file_limit, settle_memory
from tower.proxyoptions import Options
from tower.quantities import is_wildcard
from tower.reception import Reception
from tower.records import Watch
from tower.revocation import Revocation
from tower.serving import RENEWAL_PERIOD, Serving, serving_names
from tower.sqlite import SQLiteStore
from tower.statedir import StateDir
from tower.tunnels import Tunnels
from tower.v1.config import KUBESPHERE_V1
from tower.v1.notices import REMINDER, Notices
from tower.v1.reception import V1Reception
from tower.v1.tokens import KIND as V1_TOKENS
from tower.v1.tokens import V1Tokens
from tower.vault import Vault
from tower.web.agents import TOWER_V2, AgentEndpoint, Opened
from tower.web.chain import Chain, identification, user_chain
from tower.web.clusterproxy import ClusterProxies, KubernetesDoors, OpenDoors
from tower.web.gateway import Gateway, Router
from tower.web.identity import Authenticator
from tower.web.issuing import Issuer, Published
from tower.web.kubesphereport import KubeSphereDoors, KubeSpherePort
from tower.web.router import ClusterPort, FrontDoor, OpenClusterPort, PlainPort
from tower.web.sessions import SWEEP_PERIOD, Sessions
from tower.web.standing import Rights
from tower.web.towerapi import tower_api
from tower.web.upstream import ChannelPool

__all__ = ["Options", "Proxy", "makeService"]

#: How long a stop lets requests finish, s.
GRACE = 10.0

#: How often to try again to open a cluster's port, and to forget what has expired, s.
RETRY_PORTS = 30.0
PURGE = 60.0


@one_line_errors("tower-proxy")
def makeService(options: Options, reactor: Any = None) -> IService:
    """Return the proxy; what cannot work ends the program with one line and exit code 1."""
    if reactor is None:
        from twisted.internet import reactor

        count_steadily(reactor)
    for name, host in (("port", "host"), ("secure-port", "host"), ("metrics-port", "metrics-host")):
        if options[name] is not None:
            _check_free(name, options[host], options[name])
    state = StateDir(options["state-dir"])
    state.lock()
    given = options.given_cluster
    return Proxy(options, state, reactor, None if given is None else read_access(given))


def _check_free(name: str, host: str, port: int) -> None:
    """Find out now whether *port* can be listened on, not when users are waiting."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise OptionError(
            name,
            str(port),
            f"cannot be listened on at {host} ({reason}): stop what uses it, or choose another",
        ) from e


class Proxy(MultiService):
    """The proxy with all its parts.

    :param state: locked; the proxy closes it when it stops.
    :param access: the credential for the cluster of ``--ssh-user``.
    """

    _log = Logger()

    def __init__(
        self, options: Options, state: StateDir, reactor: Any, access: KubeAccess | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options = options
        self._access = access
        self._state = state
        self._reactor = reactor
        self._day = TimeOfDay(reactor)
        self._sockets = Poller(reactor)
        self._ready = False
        self._ports: list[TCPServer] = []
        self._watches: list[Watch] = []
        self._compose_trust()
        self._compose_records()
        self._compose_agents()
        self._compose_nodes()
        self._compose_gateways()

    def _compose_trust(self) -> None:
        options, state, now = self._options, self._state, self._day.seconds
        self._users = own_authority(state, "users-ca", now())
        if options["ca-cert"] is not None:
            self._authority = given_authority(options["ca-cert"], options["ca-key"], now())
        else:
            self._authority = own_authority(state, "serving-ca", now())
        names = serving_names(options["publish-service-address"], options["host"])
        self._serving = Serving(state, self._authority, self._users, names, now)
        self._host_keys = [load_or_create(state, "ssh_host_ed25519_key")]

    def _compose_records(self) -> None:
        options, day = self._options, self._day
        self._store = SQLiteStore(self._reactor, self._state.path / "tower.db")
        key_file = options["secrets-key-file"] or self._state.path / "secrets.key"
        self._accesses = MemberAccesses(self._store, Vault(key_file, day.seconds))
        self._clusters = Clusters(self._store, options["cluster-ports"], day, self._accesses)
        self._credentials = Credentials(self._store, day, options["max-credential-ttl"])
        self._tokens = JoinTokens(self._store, day)
        self._old_tokens = V1Tokens(self._store, day)
        host = "127.0.0.1" if is_wildcard(options["host"]) else options["host"]
        self._admin = AdminAccess(
            self._state,
            self._credentials,
            self._users,
            self._authority,
            f"https://{f'[{host}]' if ':' in host else host}:{options['secure-port']}",
            day.seconds,
        )

    def _compose_agents(self) -> None:
        options, reactor = self._options, self._reactor
        self._budget = Budget(options["buffer-budget"])
        self._tunnels = Tunnels(reactor, self._day.seconds)
        self._reception = Reception(
            self._sockets,
            self._tunnels,
            self._tokens,
            self._host_keys,
            self._budget,
            keepalive=options["keepalive"],
            epoch=self._day.seconds,
        )
        welcomes: dict[bytes, Opened] = {TOWER_V2.encode(): self._reception.opened}
        if not options["require-v2"]:
            old = V1Reception(
                self._sockets,
                self._reception,
                self._old_tokens,
                self._host_keys[0],
                keepalive=options["keepalive"],
                impersonate=not options["v1-no-impersonation"],
            )
            welcomes[KUBESPHERE_V1.encode()] = old.opened
        self._agents = AgentEndpoint(reactor, welcomes)

    def _compose_nodes(self) -> None:
        self._nodes = NodeClusters(
            Surroundings(
                self._reactor,
                self._sockets,
                self._reception.wheel,
                self._store,
                self._tunnels,
                self._accesses,
                self._budget,
                self._day.seconds,
                self._options["keepalive"],
            ),
            self._clusters,
        )

    def _compose_gateways(self) -> None:
        options, day = self._options, self._day
        authenticator = Authenticator(self._credentials, day)
        self._sessions = Sessions(authenticator)
        self._pool = ChannelPool(self._tunnels)
        published = Published(
            options["host"], options["publish-service-address"], options["secure-port"], options["port"]
        )
        issuer = Issuer(
            self._clusters,
            self._credentials,
            self._tokens,
            None if options["require-v2"] else self._old_tokens,
            self._users,
            self._authority,
            lambda: [key.fingerprint for key in self._host_keys],
            published,
            day,
        )
        chain = user_chain(authenticator, self._clusters.get)
        self._rights = rights = Rights(self._store, day.seconds)
        api = tower_api(
            self._store,
            self._clusters,
            self._credentials,
            self._tokens,
            self._old_tokens,
            self._tunnels,
            issuer,
            day,
            self._accesses,
            self._nodes.status,
        )
        who = identification(authenticator)
        nodes = self._nodes
        front = FrontDoor(
            chain,
            who,
            api,
            self._agents.accept,
            rights,
            lambda: self._ready,
            ssh_tunnel=nodes.unhealthy,
            kubelets=nodes.kubelets,
        )
        self._front = self._gateway(front)
        self._plain = self._gateway(PlainPort(self._agents.accept, nodes.unhealthy))
        doors = KubernetesDoors(
            ConnectionReactor(self._sockets, self._serving.context),
            self._clusters,
            options["host"],
            lambda name: self._gateway(ClusterPort(chain, name, rights)),
            self._open_doors(chain, rights) if options["v1-open-ports"] else None,
        )
        self._proxies = ClusterProxies(self._clusters, doors)
        self._kubespheres = ClusterProxies(
            self._clusters,
            KubeSphereDoors(
                ConnectionReactor(self._sockets, None),
                options["kubesphere-host"],
                options["kubesphere-ports"],
                lambda name: self._gateway(KubeSpherePort(name)),
            ),
        )

    def _open_doors(self, chain: Chain, rights: Rights) -> OpenDoors:
        """Return how the ports of clusters with old agents are open, and look again when tokens change."""
        self._watches.append(
            self._store.watch(
                V1_TOKENS, lambda event: self._proxies.resettle(str(event.record.value["cluster"]))
            )
        )
        return OpenDoors(
            lambda name: bool(self._old_tokens.tokens(name)),
            ConnectionReactor(self._sockets, self._serving.open_context),
            lambda name: self._gateway(OpenClusterPort(chain, name, rights)),
        )

    def _gateway(self, router: Router) -> Gateway:
        return Gateway(self._day, router, self._pool, self._sessions, budget=self._budget)

    def startService(self) -> None:
        """Start; the ports open once the records and the admin's kubeconfig are in order."""
        super().startService()  # type: ignore[no-untyped-call]
        raise_file_limit()
        Deferred.fromCoroutine(self._open()).addErrback(self._cannot_open)

    async def _open(self) -> None:
        await self._admin.renew()
        await self._clusters.assign_ports()
        await self._accesses.reseal()
        given = self._options.given_cluster
        if given is not None:
            await ensure(self._clusters, given, self._access)
        if not self.running:
            return
        options, reactor = self._options, self._reactor
        notices = Notices(
            self._clusters,
            self._tunnels,
            self._day.seconds,
            impersonate=not options["v1-no-impersonation"],
            open_ports=options["v1-open-ports"],
        )
        self._ports = [
            self._port("port", self._plain, None),
            self._port("secure-port", self._front, self._serving.context),
        ]
        services: list[Service] = [
            Revocation(self._store, self._clusters, self._credentials, self._tunnels, self._sessions),
            Availability(reactor, self._clusters, self._tunnels),
            notices,
            self._reception,
            self._nodes,
            self._proxies,
            self._kubespheres,
            *self._ports,
            periodic(reactor, 1.0, self._sweep),
            periodic(reactor, SWEEP_PERIOD, self._sessions.sweep),
            periodic(reactor, 5.0, self._pool.sweep),
            periodic(reactor, REMINDER, notices.remind),
            periodic(reactor, RETRY_PORTS, self._proxies.retry),
            periodic(reactor, RETRY_PORTS, self._kubespheres.retry),
            periodic(reactor, LOOK_PERIOD, self._nodes.look),
            periodic(reactor, LOOK, self._admin.try_to_renew),
            periodic(reactor, RENEWAL_PERIOD, self._serving.renew),
            periodic(reactor, PURGE, self._purge),
        ]
        if options["metrics-port"] is not None:
            registry = registry_of(TunnelCollector(self._nodes.readings))
            services.append(MetricsPort(reactor, registry, options["metrics-host"], options["metrics-port"]))
        for service in services:
            service.setServiceParent(self)
        settle_memory()
        self._ready = True
        self._log.info(
            "tower-proxy {version}: users at {host}:{secure}, agents there and, without TLS, at port {port}",
            version=__version__,
            host=options["host"],
            secure=options["secure-port"],
            port=options["port"],
        )

    def _port(self, name: str, gateway: Gateway, tls: ssl.SSLContext | None) -> TCPServer:
        port: TCPServer = TCPServer(
            self._options[name],
            ConnectionFactory(gateway.accept),
            interface=self._options["host"],
            reactor=ConnectionReactor(self._sockets, tls),
        )
        return port

    def _cannot_open(self, failure: Failure) -> None:
        if failure.check(ConfigurationError):
            self._log.critical("the proxy cannot start: {reason}", reason=failure.getErrorMessage())
        else:
            self._log.failure("the proxy cannot start", failure)
        self._reactor.stop()

    def _sweep(self) -> None:
        self._front.sweep()
        self._plain.sweep()
        self._proxies.sweep()
        self._kubespheres.sweep()

    async def _purge(self) -> None:
        await self._tokens.purge()
        await self._credentials.purge()

    def stopService(self) -> Deferred[None]:
        """Let requests finish for `GRACE` s, then close everything, the store last."""
        self._ready = False
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for port in self._ports:
            await maybeDeferred(port.disownServiceParent)
        await DeferredList([self._front.stop(GRACE), self._plain.stop(GRACE)])
        self._pool.stop()
        await maybeDeferred(super().stopService)
        for watch in self._watches:
            watch.stop()
        self._rights.stop()
        self._credentials.stop()
        self._clusters.stop()
        self._old_tokens.stop()
        await self._store.stop()
        self._state.close()

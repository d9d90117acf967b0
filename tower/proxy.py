"""``twistd -n tower-proxy``: how the proxy's parts are put together."""

from __future__ import annotations

import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.internet import TCPServer
from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower import __version__
from tower.control.admin_kubeconfig import LOOK, AdminAccess
from tower.control.availability import Availability
from tower.control.connection_metrics import SlotsCollector
from tower.control.default_cluster import ensure_default_cluster, read_access
from tower.control.gateways import Gateways
from tower.control.metrics_port import MetricsPort, registry_of
from tower.control.proxy_options import Options
from tower.control.records import ProxyRecords
from tower.control.revocation import Revocation
from tower.control.trust import ProxyTrust
from tower.errors import TowerError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.self_test import check_head_policy
from tower.net.addresses import is_wildcard, join_address
from tower.net.budget import Budget
from tower.net.connection_slots import Slots
from tower.net.listening import Admission, ConnectionFactory, ConnectionReactor
from tower.net.load_balancers import Balancers
from tower.nodes.cluster import NodeCluster
from tower.nodes.clusters import CREDENTIAL_PERIOD, REPORT_PERIOD, NodeClusters
from tower.nodes.record_files import DIRECTORY, NodeFiles
from tower.nodes.tunnel_metrics import TunnelCollector
from tower.options import OptionError, one_line, one_line_errors
from tower.reactor.clock import TimeOfDay, count_steadily
from tower.reactor.periodic import periodic
from tower.reactor.poller import Poller
from tower.reactor.process import end_in_failure, forbid_dumps, raise_file_limit, settle_memory
from tower.store.audit_log import AuditCollector, open_audit_log
from tower.trust.serving_certificate import RENEWAL_PERIOD
from tower.trust.statedir import StateDir
from tower.tunnels import Tunnels
from tower.v1.acceptor import V1AgentAcceptor
from tower.v1.warnings import REMINDER, Notices
from tower.v2.acceptor import AgentAcceptor
from tower.web.gateway.gateway import Gateway
from tower.websocket.endpoint import AgentEndpoint, Opened
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2

__all__ = ["Options", "Proxy", "makeService"]

#: How long a stop lets requests finish, s.
GRACE = 10.0

#: How often to forget what has expired, s.
PURGE = 60.0


@one_line_errors("tower-proxy")
def makeService(options: Options, reactor: Any = None) -> IService:
    """Return the proxy; what cannot work ends the program with one line and exit code 1."""
    if reactor is None:
        from twisted.internet import reactor

        count_steadily(reactor)
        if not options["allow-core-dumps"]:
            forbid_dumps()
    check_head_policy()
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
        self._audit_log = open_audit_log(options, reactor, self._day.seconds)
        self._sockets = Poller(reactor)
        self._ready = False
        self._ports: list[TCPServer] = []
        self._trust = ProxyTrust(options, state, self._day.seconds)
        self._records = ProxyRecords(options, state, reactor, self._day)
        self._admin = self._admin_access()
        self._budget = Budget(options["buffer-budget"])
        self._slots = Slots(reactor, options["max-connections"], options.connections_per_address)
        self._admission = Admission(self._slots, Balancers(reactor, options["proxy-protocol-from"] or ()))
        self._tunnels = Tunnels(reactor, self._day.seconds)
        self._reception = AgentAcceptor(
            self._sockets,
            self._tunnels,
            self._records.tokens,
            self._trust.host_keys,
            self._budget,
            keepalive=options["keepalive"],
            epoch=self._day.seconds,
            per_key=options["max-tunnels-per-key"],
            per_cluster=options["max-tunnels-per-cluster"],
        )
        self._nodes = self._node_clusters()
        self._gateways = Gateways(
            options,
            self._sockets,
            self._day,
            self._trust,
            self._records,
            self._tunnels,
            self._nodes,
            self._budget,
            self._admission,
            AgentEndpoint(reactor, self._welcomes()).accept,
            lambda: self._ready,
            self._audit_log,
        )

    def _admin_access(self) -> AdminAccess:
        options = self._options
        host = "127.0.0.1" if is_wildcard(options["host"]) else options["host"]
        return AdminAccess(
            self._state,
            self._records.credentials,
            self._trust.users,
            self._trust.authority,
            f"https://{join_address(host, options['secure-port'])}",
            self._day.seconds,
        )

    def _welcomes(self) -> dict[bytes, Opened]:
        """Return who takes an agent's connection, by what the agent speaks."""
        options = self._options
        welcomes: dict[bytes, Opened] = {TOWER_V2.encode(): self._reception.opened}
        if not options["require-v2"]:
            old = V1AgentAcceptor(
                self._sockets,
                self._reception,
                self._records.old_tokens,
                self._trust.host_keys[0],
                keepalive=options["keepalive"],
                impersonate=not options["v1-no-impersonation"],
            )
            welcomes[KUBESPHERE_V1.encode()] = old.opened
        return welcomes

    def _node_clusters(self) -> NodeClusters:
        records, files = self._records, self._node_files()
        create = partial(
            NodeCluster,
            reactor=self._reactor,
            poller=self._sockets,
            clock=self._reception.wheel,
            store=records.store,
            tunnels=self._tunnels,
            credentials=records.accesses,
            budget=self._budget,
            epoch=self._day.seconds,
            keepalive=self._options["keepalive"],
            files=files,
        )
        return NodeClusters(records.clusters, records.accesses, self._tunnels, files, create)

    def _node_files(self) -> NodeFiles:
        options = self._options
        files = NodeFiles(
            Path(options["node-files"] or self._state.path / DIRECTORY).absolute(), options.given_cluster
        )
        named = (options["secrets-key-file"], options["ca-key"])
        files.prepare(self._state.path, *(Path(name) for name in named if name))
        return files

    def startService(self) -> None:
        """Start; the ports open once the records and the admin's kubeconfig are in order."""
        super().startService()  # type: ignore[no-untyped-call]
        raise_file_limit()
        Deferred.fromCoroutine(self._open()).addErrback(self._cannot_open)

    async def _open(self) -> None:
        records, given = self._records, self._options.given_cluster
        await self._admin.renew()
        await records.clusters.assign_ports()
        await records.accesses.reseal()
        if given is not None:
            await ensure_default_cluster(records.clusters, given, self._access)
        if not self.running:
            return
        options, reactor, gateways = self._options, self._reactor, self._gateways
        notices = Notices(
            records.clusters,
            self._tunnels,
            self._day.seconds,
            impersonate=not options["v1-no-impersonation"],
            open_ports=options["v1-open-ports"],
        )
        self._ports = [
            self._port("port", gateways.plain, None),
            self._port("secure-port", gateways.front, self._trust.serving.context),
        ]
        services: list[Service] = [
            Revocation(
                records.store, records.clusters, records.credentials, self._tunnels, gateways.sessions
            ),
            Availability(reactor, records.clusters, self._tunnels),
            notices,
            self._reception,
            self._nodes,
            *gateways.services(reactor),
            *self._ports,
            periodic(reactor, REMINDER, notices.remind),
            periodic(reactor, REPORT_PERIOD, self._nodes.report),
            periodic(reactor, CREDENTIAL_PERIOD, self._nodes.check_credentials),
            periodic(reactor, LOOK, self._admin.try_to_renew),
            periodic(reactor, RENEWAL_PERIOD, self._trust.serving.renew),
            periodic(reactor, PURGE, records.purge),
        ]
        if options["metrics-port"] is not None:
            registry = registry_of(TunnelCollector(self._nodes.readings), SlotsCollector(self._slots))
            if self._audit_log is not None:
                registry.register(AuditCollector(self._audit_log))
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
            reactor=ConnectionReactor(self._sockets, tls, self._admission),
        )
        return port

    def _cannot_open(self, failure: Failure) -> None:
        if isinstance(failure.value, (TowerError, CannotListenError)):
            self._log.critical("the proxy cannot start: {reason}", reason=one_line(failure.value))
        else:
            self._log.failure("the proxy cannot start", failure)
        end_in_failure(self._reactor)

    def stopService(self) -> Deferred[None]:
        """Let requests finish for `GRACE` s, then close everything, audit log and store last."""
        self._ready = False
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for port in self._ports:
            if port.parent is not None:  # a start that failed may not have come to it
                await maybeDeferred(port.disownServiceParent)
        await self._gateways.drain(GRACE)
        await maybeDeferred(super().stopService)
        self._gateways.stop()
        if self._audit_log is not None:
            await self._audit_log.stop()
        await self._records.stop()
        self._state.close()

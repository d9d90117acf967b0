"""The proxy, ``tower-proxy``: its parts, their settings, and the services that run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector
from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower import BUILD, WARNINGS, __version__
from tower.clusters.availability_summary import availability_summary
from tower.clusters.records import Records
from tower.control.default_cluster import read_access
from tower.control.planes.connection_limits import ConnectionLimits
from tower.control.planes.proxy_stop import ProxyStop
from tower.control.planes.record_upkeep import RecordUpkeep
from tower.control.planes.runtime import Runtime
from tower.control.planes.serving_plane import ServingPlane
from tower.control.planes.start_hooks import start_hooks
from tower.control.planes.trust_plane import TrustPlane
from tower.control.planes.tunnel_plane import TunnelPlane
from tower.control.planes.user_plane import UserPlane
from tower.control.proxy_options import Options
from tower.control.revocation import Revocation
from tower.control.state_files import SECRETS_KEY, open_database
from tower.control.validation import locked_state, validate
from tower.errors import TowerError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.self_test import check_head_policy
from tower.net.addresses import is_wildcard, join_address
from tower.options.errors import one_line, one_line_errors, raise_all
from tower.program import installed_reactor, run
from tower.reactor.interfaces import IReactor
from tower.reactor.process import end_in_failure, raise_file_limit, settle_memory
from tower.reactor.service_manager import notify_manager
from tower.reactor.signals import Reloads, Signals
from tower.store import IStore
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault
from tower.tunnels import Tunnels
from tower.tunnels.drains import ClusterDrains
from tower.web.access.audit.changes import ChangeRecorder
from tower.web.access.request_logs import RequestLogs

# Needed with a host cluster only; other proxies start faster without these modules.
if TYPE_CHECKING:
    from tower.controller.controller import Controller
    from tower.controller.host_access import HostAccess
    from tower.controller.leader.hosted_proxy import HostedProxy

__all__ = ["Options", "Proxy", "main", "makeService"]

#: Time for requests to finish when the proxy stops, s.
GRACE = 10.0

#: How long the port of a removed cluster is not assigned again, s.
QUARANTINE = 30 * 86400.0


def main() -> int:
    """Run ``tower-proxy``; return its exit code."""
    return run("tower-proxy", Options(), makeService)


@one_line_errors("tower-proxy")
def makeService(options: Options, reactor: IReactor | None = None) -> IService:
    """Return the proxy; a configuration that cannot work ends the program with one line and exit code 1.

    :param reactor: None: the installed one, and the proxy handles the process's signals.
    """
    is_program = reactor is None
    if reactor is None:
        reactor = installed_reactor(options)
    check_head_policy()
    errors = validate(options.complete(), reactor)
    if options["install-crds"]:
        raise_all(errors)
        from tower.hosted import crd_installation

        return crd_installation(options, reactor)
    state = locked_state(options, errors)
    create = partial(_create, options, state, reactor)
    proxy: Proxy | HostedProxy
    try:
        if options.is_hosted:
            from tower.hosted import replica

            proxy = replica(options, reactor, state, create)
        else:
            proxy = create()
    except Exception:
        state.close()
        raise
    if is_program:
        Signals(reactor, proxy.reloads, options.flush_log).setServiceParent(proxy)  # type: ignore[no-untyped-call]
        proxy.on_ready = notify_manager(proxy, reactor, proxy.reloads, proxy.summary)
    return proxy


def _create(
    options: Options,
    state: StateDir,
    reactor: IReactor,
    store: IStore | None = None,
    host_access: HostAccess | None = None,
    reloads: Reloads | None = None,
) -> Proxy:
    if host_access is not None:  # the last leader could have the ports until now
        options.check_listening()
    given = options.given_cluster
    access = None if given is None else read_access(given)
    return Proxy(options, state, reactor, access, store, host_access, reloads)


class Proxy(MultiService):
    """The proxy with all its parts.

    :param state: locked; the proxy closes it when it stops.
    :param access: API server and credential of the ``--ssh-user`` cluster.
    :param store: of the records; None: the database in the state directory.
    :param host_access: for the controller of the host cluster that has the records; None: there is none.
    :param reloads: to add to; None: the proxy has its own.
    :ivar controller: of the host cluster, if there is one.
    :ivar reloads: what SIGHUP reloads.
    :ivar on_ready: called when the ports are open.
    :ivar grace: time for requests to finish at a stop, s.
    :ivar reason: why it stops, for requests that are cut; empty: as usual.
    :ivar hand_over: called at a stop once no record is written any more, so that the next proxy can start;
        requests go on.
    """

    _log = Logger()

    def __init__(
        self,
        options: Options,
        state: StateDir,
        reactor: IReactor,
        access: KubeAccess | None = None,
        store: IStore | None = None,
        host_access: HostAccess | None = None,
        reloads: Reloads | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options, self._reactor = options, reactor
        self._ready = False
        self.on_ready: Callable[[], None] = lambda: None
        self.grace = GRACE
        self.reason = ""
        self.hand_over: Callable[[], Awaitable[None]] | None = None
        self.reloads = reloads = Reloads() if reloads is None else reloads
        reloads.add("log", options.reload_log)
        runtime = Runtime.of(options, reactor, reloads)
        logs = RequestLogs.open(options, reactor, runtime.epoch, reloads)
        if store is None:
            store = open_database(reactor, state)
        if logs.audit is not None:
            store.observe = ChangeRecorder(logs.audit, store).observe
        has_host = host_access is not None

        trust = TrustPlane.of(runtime, state, store)
        self._records = records = Records.of(
            store,
            Vault(Path(options["secrets-key-file"] or state.path / SECRETS_KEY), runtime.epoch),
            options["cluster-ports"],
            runtime.day,
            options["max-credential-ttl"],
            QUARANTINE if has_host else 0.0,
        )
        admin = trust.admin(records)
        limits = ConnectionLimits.of(runtime)
        tunnels = Tunnels(reactor, runtime.epoch)
        if host_access is not None:
            host_access.statuses.bind(tunnels)
        tunnel_plane = TunnelPlane.of(
            runtime, state, records, trust, limits.budget, tunnels, has_host=has_host
        )
        self._files = tunnel_plane.files
        rotations = trust.rotations(records, tunnels, admin)
        users = UserPlane.of(runtime, records, trust)
        logs.record_files([*trust.named.files, *users.files])
        know_services = self._know_services if has_host else None
        hooks = start_hooks(runtime, records, admin, rotations, access, know_services)
        serving = ServingPlane.of(
            runtime,
            records,
            limits,
            trust,
            tunnel_plane,
            users,
            logs,
            rotations,
            hooks,
            has_controller=has_host,
        )
        self._servers, self._metrics = serving.servers, serving.metrics
        upkeep = RecordUpkeep.of(runtime, records, tunnels, admin, rotations)
        drains = ClusterDrains(reactor, tunnels, serving.pool.close_idle)
        self._services: Sequence[Service] = [
            Revocation(store, records.clusters, records.credentials, tunnels, users.sessions, drains),
            *tunnel_plane.services,
            *upkeep.services,
            *users.services,
            *serving.services,
            *trust.services,
        ]
        self.controller: Controller | None = None
        if host_access is not None:
            self.controller = self._control(runtime, host_access, trust, serving)
            tunnels.watch(self.controller.reached)
        self._stop = ProxyStop(
            runtime,
            state,
            store,
            logs,
            limits,
            tunnels,
            serving,
            [*filter(None, [self.controller]), *upkeep.writers],
            [*serving.followers, *users.followers, records],
        )

    def _control(
        self, runtime: Runtime, access: HostAccess, trust: TrustPlane, serving: ServingPlane
    ) -> Controller:
        """Return the controller of the host cluster."""
        from tower.controller.controller import Controller
        from tower.controller.kubeconfig_issuer import KubeconfigIssuer

        records, keys = self._records, trust.keys
        controller = Controller(
            runtime.reactor,
            access,
            records,
            KubeconfigIssuer(records.credentials, keys.users, keys.authority, runtime.epoch),
            runtime.epoch,
            serving.reactors.certificates.set_names,
            uses_tokens=not runtime.options["require-v2"],
        )
        serving.metrics.add(controller.metrics)
        return controller

    def startService(self) -> None:
        """Start; the ports open once the records and the administrator's kubeconfig are up to date."""
        super().startService()  # type: ignore[no-untyped-call]
        raise_file_limit()
        Deferred.fromCoroutine(self._open()).addErrback(self._cannot_open)

    async def _open(self) -> None:
        await self._servers.run(lambda: bool(self.running))
        if not self.running:
            return
        for service in self._services:
            service.setServiceParent(self)
        settle_memory()
        self._ready = True
        self._log_start()
        self.on_ready()

    async def _know_services(self) -> None:
        assert self.controller is not None
        self.controller.setServiceParent(self)  # type: ignore[no-untyped-call]
        await self.controller.known

    @property
    def host_problems(self) -> Sequence[str]:
        """Problems of the host cluster, with their cures."""
        if self.controller is None:
            return ()
        return [*self.controller.problems, *self._files.unshared(self._records.clusters.list())]

    def add_metrics(self, collector: Collector) -> None:
        """Add metrics to the page of metrics."""
        self._metrics.add(collector)

    def summary(self) -> str:
        """Return the state of the clusters in one sentence."""
        return availability_summary(self._records.clusters.list())

    def _log_start(self) -> None:
        host, port = self._options["host"], self._options["port"]
        self._log.info(
            "tower-proxy {version} ({build}): listening on https://{secure} (users, agents){_plain}",
            version=__version__,
            build=BUILD,
            secure=join_address(host, self._options["secure-port"]),
            plain=None if port is None else join_address(host, port),
            _plain="" if port is None else f" and http://{join_address(host, port)} (agents)",
        )
        unshared = self._files.unshared(self._records.clusters.list())
        for text in (*WARNINGS, *self._options.warnings, *unshared):
            self._log.warn("{text}", text=text)
        if is_wildcard(host) and self._options.public_address is None:
            self._log.warn(
                "--publish-service-address is not set, and --host {host} is not an address that users and "
                "agents can connect to: 'tower join' and 'tower kubeconfig' fail until it is set",
                host=host,
            )

    def _cannot_open(self, failure: Failure) -> None:
        if isinstance(failure.value, (TowerError, CannotListenError)):
            self._log.critical("the proxy cannot start: {reason}", reason=one_line(failure.value))
        else:
            self._log.failure("the proxy cannot start", failure)
        end_in_failure(self._reactor)

    def stopService(self) -> Deferred[None]:
        """Let requests finish for `grace` s, then close everything, audit log and store last."""
        was_ready, self._ready = self._ready, False
        return Deferred.fromCoroutine(self._stop.run(self, super().stopService, was_ready=was_ready))

"""The proxy, ``tower-proxy``: its parts, their settings, and the services that run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from prometheus_client.registry import Collector
from twisted.application.service import IService, MultiService, Service
from twisted.internet import defer
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower import __version__
from tower.clusters.availability_summary import availability_summary
from tower.clusters.records import Records
from tower.control.admin_kubeconfig import CHECK_PERIOD, AdminKubeconfig
from tower.control.agent_tunnels import AgentTunnels
from tower.control.agent_versions import AgentVersions
from tower.control.availability import Availability
from tower.control.default_cluster import ensure_default_cluster, read_access
from tower.control.event_recorder import EventRecorder
from tower.control.last_seen import PERIOD as LAST_SEEN_PERIOD
from tower.control.last_seen import LastSeen
from tower.control.member_checks import MemberChecks
from tower.control.metrics.proxy_metrics import ProxyMetrics
from tower.control.proxy_options import Options
from tower.control.revocation import Revocation
from tower.control.serving_reload import given_ca, reload_serving
from tower.control.state_files import DATABASE, SECRETS_KEY, check_database, check_keys
from tower.controller.controller import QUARANTINE, Controller
from tower.controller.host_access import HostAccess
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.leader.hosted_proxy import HostedProxy
from tower.errors import TowerError
from tower.hosted import crd_installation, replica
from tower.kube.kubeconfig import KubeAccess
from tower.kube.self_test import check_head_policy
from tower.metrics.port import MetricsPort
from tower.net.addresses import is_wildcard, join_address
from tower.net.budget import UNAUTHENTICATED_MINIMUM, UNAUTHENTICATED_PART, Budget
from tower.net.connection_slots import Slots
from tower.net.load_balancers import Balancers
from tower.nodes.cluster import NodeCluster
from tower.nodes.clusters import REPORT_PERIOD, NodeClusters
from tower.nodes.record_files import DIRECTORY, NodeFiles
from tower.options.errors import one_line, one_line_errors
from tower.program import installed_reactor, run
from tower.reactor.clock import TimeOfDay
from tower.reactor.interfaces import IReactor
from tower.reactor.poller import Poller
from tower.reactor.process import end_in_failure, raise_file_limit, settle_memory
from tower.reactor.repeating import periodic
from tower.reactor.service_manager import notify_manager
from tower.reactor.signals import Reloads, Signals
from tower.rotation.assembly import ProxyKeys, rotations_of
from tower.rotation.rotations import CHECK_PERIOD as ROTATIONS_PERIOD
from tower.store import IStore
from tower.store.kinds import PORTS, V1_TOKENS
from tower.store.sqlite import SQLiteStore
from tower.trust.serving_certificate import RENEWAL_PERIOD, ServingCertificate, serving_names
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault
from tower.tunnels import Tunnels
from tower.tunnels.drains import ClusterDrains
from tower.tunnels.silence import Silences
from tower.tunnels.silence_watch import PERIOD as SILENCE_PERIOD
from tower.tunnels.silence_watch import SilenceWatch
from tower.v1.warnings import REMINDER
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.tower_credentials import CredentialAuthenticator
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.filters import authentication_chain, user_chain
from tower.web.access.request_logs import RequestLogs
from tower.web.access.sessions import SWEEP_PERIOD as SESSIONS_PERIOD
from tower.web.access.sessions import Sessions
from tower.web.api.issuer import Issuer, Published
from tower.web.api.resources import tower_api
from tower.web.gateway.gateway import SharedLimits
from tower.web.gateway.inflight import InFlight
from tower.web.gateway.upstream.channel_pool import SWEEP_PERIOD as POOL_PERIOD
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.ports.assembly import Gateways, PortReactors, kubernetes_ports, kubesphere_ports
from tower.web.ports.import_page import ImportPage
from tower.web.ports.plain_port import PlainPort
from tower.web.ports.router import FrontDoor
from tower.web.ports.served_ports import SWEEP_PERIOD, ServedPorts

__all__ = ["Options", "Proxy", "main", "makeService"]

#: Time for requests to finish when the proxy stops, s.
GRACE = 10.0

#: Time for requests to Tower's API to finish before a hand-over, and for writes in progress, s.
QUIET = 0.5
LAST_WRITES = 2.0

#: Interval for removing expired tokens and credentials, s.
PURGE_PERIOD = 60.0


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
    if options["install-crds"]:
        return crd_installation(options, reactor)
    state = StateDir(options["state-dir"])
    state.lock()
    proxy: Proxy | HostedProxy
    try:
        state.require_complete()
        if options.is_hosted:
            proxy = replica(options, reactor, state, partial(_create, options, state, reactor))
        else:
            proxy = _create(options, state, reactor)
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
    options.check_listening()  # after the lock: a running proxy with this directory has the ports, too
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
        self._options, self._state, self._reactor, self._access = options, state, reactor, access
        self._ready = False
        self.on_ready: Callable[[], None] = lambda: None
        self.grace = GRACE
        self.reason = ""
        self.hand_over: Callable[[], Awaitable[None]] | None = None
        host, port, secure_port = options["host"], options["port"], options["secure-port"]
        published = Published(host, options["publish-service-address"], secure_port, port)
        keepalive = options["keepalive"]
        day = TimeOfDay(reactor)
        epoch = day.seconds
        sockets = Poller(reactor)
        self.reloads = reloads = Reloads() if reloads is None else reloads
        reloads.add("log", options.reload_log)
        self._logs = logs = RequestLogs.open(options, reactor, epoch, reloads)
        if store is None:
            check_database(state)
            store = SQLiteStore(reactor, state.path / DATABASE)
        self._store = store
        given = given_ca(options, epoch())
        new_host_key, new_ca = bool(options["new-host-key"]), bool(options["new-ca"])
        check_keys(
            state, store, epoch(), new_host_key=new_host_key, new_ca=new_ca, is_given=given is not None
        )

        # Authorities, certificates, host keys
        keys = ProxyKeys.load(state, given, epoch())
        users, authority = keys.users, keys.authority
        names = serving_names(published.address, host)
        serving = ServingCertificate(state, authority.current, users, names, epoch)
        reloads.add(
            "serving certificate", partial(reload_serving, keys, serving, lambda: given_ca(options, epoch()))
        )

        # Records
        secrets_file = Path(options["secrets-key-file"] or state.path / SECRETS_KEY)
        self._records = records = Records.of(
            store,
            Vault(secrets_file, epoch),
            options["cluster-ports"],
            day,
            options["max-credential-ttl"],
            QUARANTINE if host_access is not None else 0.0,
        )
        clusters, member_credentials = records.clusters, records.member_credentials
        credentials, tokens, v1_tokens = records.credentials, records.tokens, records.v1_tokens
        own_host = "127.0.0.1" if is_wildcard(host) else host
        self._admin = admin = AdminKubeconfig(
            state, credentials, users, authority, f"https://{join_address(own_host, secure_port)}", epoch
        )

        # Limits of memory and connections
        budget = Budget(options["buffer-budget"])
        shared = SharedLimits.of(
            sockets, max(budget.capacity // UNAUTHENTICATED_PART, UNAUTHENTICATED_MINIMUM)
        )
        self._rejections = shared.rejections
        slots = Slots(reactor, options["max-connections"], options.connections_per_address)
        balancers = Balancers(reactor, options["proxy-protocol-from"] or ())
        reactors = PortReactors.of(sockets, serving, slots, balancers)

        # Tunnels to agents
        self._tunnels = tunnels = Tunnels(reactor, epoch)
        if host_access is not None:
            host_access.statuses.bind(tunnels)
        agents = AgentTunnels.of(options, reactor, sockets, tunnels, records, keys, budget, epoch)
        acceptor, notices = agents.acceptor, agents.notices

        # Tunnels to nodes
        files = NodeFiles(
            Path(options["node-files"] or state.path / DIRECTORY).absolute(),
            options.given_cluster,
            is_cache=host_access is not None and options["node-files"] is None,
        )
        self._files = files
        files.prepare(state.path, secrets_file, *filter(None, [options["ca-key"]]))
        create = partial(
            NodeCluster,
            reactor=reactor,
            poller=sockets,
            clock=acceptor.wheel,
            store=store,
            tunnels=tunnels,
            credentials=member_credentials,
            budget=budget,
            epoch=epoch,
            keepalive=keepalive,
            files=files,
        )
        nodes = NodeClusters(clusters, member_credentials, tunnels, files, create)

        # Rotation of keys
        self._rotations = rotations = rotations_of(
            keys, serving, records, tunnels, day, admin.renew, admin.owns
        )

        # Authentication, audit, Tower's API
        authenticator = AuthenticatorUnion(CredentialAuthenticator(credentials, day))
        sessions = Sessions(authenticator)
        chain = user_chain(authenticator, clusters.get)
        generation = AdmissionGeneration(store, epoch)
        issuer = Issuer(
            clusters,
            credentials,
            tokens,
            None if options["require-v2"] else v1_tokens,
            users,
            authority,
            keys.fingerprints,
            published,
            day,
            records.imports,
        )
        api = tower_api(records, tunnels, issuer, day, nodes.status, nodes.check_files, rotations)

        # Metrics
        metrics = ProxyMetrics.of(
            reactor,
            keys,
            serving,
            store,
            records,
            tunnels,
            nodes,
            budget,
            slots,
            shared,
            logs.audit_log,
            logs.access_log,
        )
        self._metrics = metrics.page

        # HTTP ports
        silences = Silences(reactor.seconds)
        silence_watch = SilenceWatch(tunnels, silences, reactor.seconds)
        self._pool = pool = ChannelPool(tunnels, reactor.seconds, silences)
        limit = options["max-requests-inflight"]
        inflight = InFlight(limit) if limit else None

        gateway = Gateways(day, pool, sessions, budget, inflight, logs, metrics.requests, shared)
        front = gateway(
            FrontDoor(
                chain,
                authentication_chain(authenticator),
                api,
                agents.endpoint.accept,
                generation,
                lambda: self._ready,
                ssh_tunnel=nodes.unhealthy,
                kubelets=nodes.kubelets,
                metrics=metrics.page.pieces,
                imports=ImportPage(issuer, reactor.seconds),
            )
        )
        plain = gateway(PlainPort(agents.endpoint.accept, nodes.unhealthy))
        cluster_ports = kubernetes_ports(
            options,
            reactors,
            gateway,
            clusters,
            v1_tokens,
            chain,
            generation,
            has_controller=host_access is not None,
        )
        watch = store.watch(
            V1_TOKENS, lambda event: cluster_ports.recheck(str(event.record.value["cluster"]))
        )
        claims = store.watch(PORTS, lambda event: self._ports.recheck(str(event.record.value["cluster"])))
        self._followers = (watch, claims, generation, records)
        own = ((port, plain, reactors.plain), (secure_port, front, reactors.tls))
        self._ports = ports = ServedPorts(
            host, own, (cluster_ports, kubesphere_ports(options, reactors, gateway, clusters))
        )

        # Services
        last_seen = LastSeen(store, clusters, tunnels, records.agent_keys)
        versions = AgentVersions(reactor, clusters, tunnels, __version__)
        availability = Availability(reactor, clusters, tunnels)
        recorder = EventRecorder(store, clusters, tunnels, records.events)
        writing = (
            periodic(reactor, max(LAST_SEEN_PERIOD, store.quiet_period), last_seen.write),
            periodic(reactor, CHECK_PERIOD, admin.try_to_renew),
            *(
                periodic(reactor, PURGE_PERIOD, purge)
                for purge in (records.events.sweep, tokens.purge, credentials.purge, records.agent_keys.purge)
            ),
            periodic(reactor, ROTATIONS_PERIOD, rotations.check),
        )
        self._writers: tuple[Service, ...] = (
            recorder,
            availability,
            versions,
            last_seen,
            rotations,
            *writing,
        )
        self._services: list[Service] = [
            Revocation(
                store,
                clusters,
                credentials,
                tunnels,
                sessions,
                ClusterDrains(reactor, tunnels, pool.close_idle),
            ),
            last_seen,
            notices,
            versions,
            rotations,
            acceptor,
            nodes,
            # stop before the tunnels, whose end is not a state of the clusters
            availability,
            MemberChecks(reactor, tunnels),
            metrics.lag,
            *ports.services(reactor),
            periodic(reactor, SWEEP_PERIOD, reactors.admission.sweep),
            periodic(reactor, SESSIONS_PERIOD, sessions.sweep),
            periodic(reactor, POOL_PERIOD, pool.sweep),
            periodic(reactor, SILENCE_PERIOD, silence_watch.check),
            periodic(reactor, REMINDER, notices.remind),
            periodic(reactor, REPORT_PERIOD, nodes.report),
            periodic(reactor, RENEWAL_PERIOD, serving.renew),
            recorder,
            *writing,
        ]
        if options["metrics-port"] is not None:
            self._services.append(
                MetricsPort(reactor, metrics.page, options["metrics-host"], options["metrics-port"])
            )
        self.controller: Controller | None = None
        if host_access is not None:
            self.controller = Controller(
                reactor,
                host_access,
                records,
                KubeconfigIssuer(credentials, users, authority, epoch),
                epoch,
                reactors.certificates.set_names,
                uses_tokens=not options["require-v2"],
            )
            tunnels.watch(self.controller.reached)
            self._writers = (self.controller, *self._writers)
            metrics.page.add(self.controller.metrics)

    def startService(self) -> None:
        """Start; the ports open once the records and the administrator's kubeconfig are up to date."""
        super().startService()  # type: ignore[no-untyped-call]
        raise_file_limit()
        Deferred.fromCoroutine(self._open()).addErrback(self._cannot_open)

    async def _open(self) -> None:
        await self._admin.renew()
        if self.controller is None:
            await self._records.clusters.assign_ports()
        await self._records.member_credentials.reseal()
        await self._rotations.resume()
        given = self._options.given_cluster
        if given is not None:
            await ensure_default_cluster(self._records.clusters, given, self._access)
        if self.controller is not None and self.running:
            self.controller.setServiceParent(self)  # type: ignore[no-untyped-call]
            await self.controller.known  # else a port may open without the names of its Service
        if not self.running:
            return
        for service in self._services:
            service.setServiceParent(self)
        settle_memory()
        self._ready = True
        self._log_start()
        self.on_ready()

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
            "tower-proxy {version}: listening on https://{secure} (users, agents){_plain}",
            version=__version__,
            secure=join_address(host, self._options["secure-port"]),
            plain=None if port is None else join_address(host, port),
            _plain="" if port is None else f" and http://{join_address(host, port)} (agents)",
        )
        for text in (*self._options.warnings, *self._files.unshared(self._records.clusters.list())):
            self._log.warn("{text}", text=text)
        if is_wildcard(host) and self._options["publish-service-address"] is None:
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
        return Deferred.fromCoroutine(self._stop(was_ready=was_ready))

    async def _stop(self, *, was_ready: bool) -> None:
        draining = Deferred.fromCoroutine(self._ports.drain(self.grace, self.reason))
        if self.hand_over is not None:
            await self._cede(self.hand_over)
        await draining
        self._pool.stop()
        await maybeDeferred(super().stopService)
        self._rejections.write()
        await self._logs.stop()
        for follower in self._followers:
            follower.stop()
        await self._store.stop()
        self._state.close()
        if was_ready:
            self._log.info("tower-proxy stopped")

    async def _cede(self, hand_over: Callable[[], Awaitable[None]]) -> None:
        """Stop writing records, let the next proxy begin, and send the agents there."""
        await deferLater(self._reactor, QUIET)
        finishing = Deferred.fromCoroutine(self._finish_writes())
        try:
            await finishing.addTimeout(LAST_WRITES, self._reactor)
        except defer.TimeoutError:
            self._log.warn("records could not be written within {limit:g} s", limit=LAST_WRITES)
            return
        await hand_over()
        for tunnel in self._tunnels:
            tunnel.drain()

    async def _finish_writes(self) -> None:
        for writer in self._writers:
            if writer.parent is not None:  # None if the start failed before
                await maybeDeferred(writer.disownServiceParent)
        await self._store.stop()

"""Makes a replica of the proxy from its options: clients of the host cluster, election, store, health."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from socket import gethostname
from uuid import uuid4

from twisted.application.service import Service
from twisted.logger import Logger

from tower import __version__
from tower.clusters.host.host_object import ClusterCodec
from tower.control.host_options import HostOptions
from tower.control.state_files import DATABASE
from tower.controller.crd_installation import CRDInstallation
from tower.controller.host_access import HostAccess
from tower.controller.leader.election_metrics import ElectionCollector
from tower.controller.leader.fenced_host import FencedHost
from tower.controller.leader.hosted_proxy import HostedProxy
from tower.controller.leader.leader_election import ElectionTimes, LeaderElection
from tower.controller.leader.leader_label import LeaderLabel
from tower.controller.leader.leading_proxy import LeadingProxy
from tower.controller.leader.lease_events import LeaseEvents
from tower.controller.leader.replica_page import ReplicaPage
from tower.controller.leader.state_secret import StateSecret
from tower.controller.objects.service_objects import LEADER_SELECTOR, HostSettings
from tower.errors import ConfigurationError
from tower.kube.rest.host_link import HostLink
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.member.health_page import HealthService
from tower.metrics.page import MetricsPage, registry_of
from tower.metrics.process import ProcessInfo
from tower.reactor.interfaces import IReactor
from tower.reactor.signals import Reloads
from tower.store import IStore
from tower.store.kubernetes.host_kinds import own_codecs
from tower.store.kubernetes.store import KubernetesStore
from tower.trust.statedir import StateDir

_log = Logger()

_TIMES = ("lease-duration", "renew-deadline", "retry-period")


def replica(
    options: HostOptions,
    reactor: IReactor,
    state: StateDir,
    create: Callable[[IStore, HostAccess, Reloads], LeadingProxy],
    environ: Mapping[str, str] = os.environ,
) -> HostedProxy:
    """Return the replica that *options* describe.

    :param create: returns the proxy with a store and a controller; it adds to the reloads.
    :param environ: may have ``POD_NAME``, ``POD_NAMESPACE`` and ``POD_IP``.
    :raise ConfigurationError: the kubeconfig or the service account cannot be used, or the state directory
        has records.
    :raise CannotListenError: ``--health-port`` is in use.
    """
    database = state.path / DATABASE
    if database.exists() and database.stat().st_size > 0:
        raise ConfigurationError(
            f"{database} has records, which --store kubernetes does not use: "
            "move the file away, or set another --state-dir"
        )
    config = _config(options, reactor, environ)
    _log.info(
        "records are in the host cluster at {address}, namespace {namespace} (access: {source})",
        address=config.address,
        namespace=options["namespace"],
        source=options["kubeconfig"] or "the pod's service account",
    )
    # renewals of the Lease do not wait for other requests
    link = HostLink.of(reactor)
    api, lease_api = (RestClient(reactor, config, requests=link.requests) for _ in range(2))
    namespace, pod = options["namespace"], environ.get("POD_NAME", "")
    identity = f"{pod or gethostname()}_{uuid4()}"
    fenced = FencedHost(api, lambda: election.is_leader, lambda: election.fence)
    secret = StateSecret(fenced, namespace, state, identity, use_own=options["keys-from-state-dir"])
    election = LeaderElection(
        lease_api,
        reactor,
        identity,
        namespace,
        ElectionTimes(*(options[f"leader-elect-{name}"] for name in _TIMES)),
        is_only=not options["leader-elect"],
        had_leader=secret.exists,
        seconds=partial(time.clock_gettime, time.CLOCK_BOOTTIME),
    )
    pod_namespace = environ.get("POD_NAMESPACE", namespace)
    label = LeaderLabel(fenced, pod_namespace, pod, lease_api) if pod else None
    # Services select pods of their namespace only
    is_selected = bool(pod) and pod_namespace == namespace
    selector, addresses = (LEADER_SELECTOR, ()) if is_selected else (None, _addresses(options, environ))
    settings = HostSettings(namespace, selector, addresses, options["kubesphere-compat"])
    collector = ElectionCollector(election)
    access = HostAccess(fenced, settings, link=link)
    records = _HostRecords(access, namespace, reactor)
    reloads = Reloads()
    reloads.add("log", options.reload_log)
    hosted = HostedProxy(
        reactor,
        election,
        state,
        secret,
        label,
        records.load,
        lambda store: create(store, access, reloads),
        reloads,
        failures=records.failures,
        own_secrets_key=options["secrets-key-file"] is None,
        collector=collector,
        announce=LeaseEvents(lease_api, election.lock, time.time).record,
        end=partial(_end, options),
    )
    if options["health-port"] is not None:
        metrics = MetricsPage(reactor, registry_of(ProcessInfo("proxy", __version__), collector))
        health = HealthService(reactor, options["host"], options["health-port"], ReplicaPage(hosted, metrics))
        health.setServiceParent(hosted)  # type: ignore[no-untyped-call]
    _Connections(api, lease_api).setServiceParent(hosted)  # type: ignore[no-untyped-call]
    return hosted


def crd_installation(
    options: HostOptions, reactor: IReactor, environ: Mapping[str, str] = os.environ
) -> CRDInstallation:
    """Return the service for ``--install-crds``.

    :raise ConfigurationError: the kubeconfig or the service account cannot be used.
    """
    return CRDInstallation(reactor, RestClient(reactor, _config(options, reactor, environ)))


def _config(options: HostOptions, reactor: IReactor, environ: Mapping[str, str]) -> RestConfig:
    if options["kubeconfig"] is None:
        return RestConfig.in_cluster(reactor, environ=environ)
    return RestConfig.from_kubeconfig(options["kubeconfig"], reactor, environ=environ)


class _HostRecords:
    """Loads the records, and names the reasons if it cannot."""

    def __init__(self, access: HostAccess, namespace: str, reactor: IReactor) -> None:
        self._access, self._namespace, self._reactor = access, namespace, reactor
        self._store: KubernetesStore | None = None

    async def load(self) -> IStore:
        """Return the store with all records; waits for missing CRDs and rights."""
        access = self._access
        codecs = [ClusterCodec(statuses=access.statuses), *own_codecs()]
        group = None if access.link is None else access.link.reflectors
        self._store = store = KubernetesStore(access.api, self._namespace, codecs, self._reactor, group=group)
        try:
            await store.start()
        except BaseException:
            self._store = None
            raise
        return store

    def failures(self) -> Sequence[str]:
        """Return the reasons why records cannot be read now, with their cures."""
        return () if self._store is None else self._store.failures


class _Connections(Service):
    """Closes the connections of clients at its stop."""

    def __init__(self, *clients: RestClient) -> None:
        self._clients = clients

    def stopService(self) -> None:
        """Close the connections."""
        super().stopService()  # type: ignore[no-untyped-call]
        for client in self._clients:
            client.close()


def _addresses(options: HostOptions, environ: Mapping[str, str]) -> Sequence[str]:
    """Return the IP address of the proxy, for the host cluster; empty: it is not known."""
    for host in (
        environ.get("POD_IP"),
        options["advertise-address"],
        options["publish-service-address"],
        options["host"],
    ):
        with suppress(ValueError):
            address = ip_address(host or "")
            if not (address.is_unspecified or address.is_loopback):
                return (str(address),)
    return ()


def _end(options: HostOptions, code: int) -> None:
    options.flush_log()
    os._exit(code)

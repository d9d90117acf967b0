"""A leader in memory: controller, store and conditions together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.certificates import authority
from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import opened
from tower.clusters.host.host_statuses import HostStatuses
from tower.clusters.records import Records
from tower.control.availability import Availability
from tower.controller.controller import Controller
from tower.controller.host_access import HostAccess
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS, SERVICES
from tower.trust.vault import Vault
from tower.tunnels import Tunnels


class LeaderTestCase(SynchronousTestCase):
    """A leader with its store in a host in memory."""

    def setUp(self) -> None:
        """Start the leader."""
        self.host = FakeHost()
        self.host.admission.append(_allocate)
        self.statuses = HostStatuses()
        self.start()

    def start(self) -> None:
        """Start a leader."""
        self.bench = bench = Bench(None, lambda clock: opened(self.host, clock, self.statuses))
        clock: Any = bench.clock
        vault = Vault(Path(self.mktemp()), clock.seconds)
        self.records = records = Records.of(bench.store, vault, range(6000, 6010), clock, 86400.0, 1.0)
        self.addCleanup(records.stop)
        self.clusters = records.clusters
        self.tunnels = Tunnels(clock, clock.seconds)
        self.statuses.bind(self.tunnels)
        now = clock.seconds()
        issuer = KubeconfigIssuer(
            records.credentials, authority("users", now=now), authority("serving", now=now), clock.seconds
        )
        access = HostAccess(self.host, statuses=self.statuses)
        names: dict[str, object] = {}
        self.controller = Controller(clock, access, records, issuer, clock.seconds, names.__setitem__)
        self.availability = Availability(clock, self.clusters, self.tunnels)
        for service in (self.availability, self.controller):
            service.startService()
            self.addCleanup(service.stopService)
        self.pump()

    def pump(self, seconds: float = 0.0) -> None:
        """Let *seconds* pass, and a few iterations of the reactor."""
        self.bench.clock.advance(seconds)
        self.bench.clock.pump([0.01] * 40)

    def apply(self, **spec: Any) -> None:
        """Apply alpha, as its users do."""
        before = self.host.object(CLUSTERS, "alpha") or {"metadata": {"name": "alpha"}}
        wanted = {"joinFederation": True, "connection": {"type": "proxy"}, **spec}
        self.host.put(CLUSTERS, {**before, "spec": wanted})
        self.pump()

    def cluster(self) -> Object:
        """Return the object of alpha."""
        found = self.host.object(CLUSTERS, "alpha")
        assert found is not None
        return found

    def status(self) -> Object:
        """Return the status in the object of alpha."""
        status: Object = self.cluster()["status"]
        return status

    def condition(self, kind: str) -> str:
        """Return the status of a condition in the object of alpha; empty without one."""
        return next((each["status"] for each in self.status()["conditions"] if each["type"] == kind), "")

    def writes(self, since: int = 0) -> list[str]:
        """Return the verbs of the writes of Cluster objects."""
        return [verb for verb, plural, _ in self.host.writes[since:] if plural == "clusters"]


def _allocate(verb: str, resource: ResourceType, obj: Object) -> None:
    if resource is SERVICES:
        obj["spec"].setdefault("clusterIP", "10.96.0.1")

"""Writes of the ``Cluster`` object by the controller, the store and the conditions together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.certificates import authority
from tests.fakes.tunnels import FakeTunnel
from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import opened
from tower.clusters.condition_types import AGENT_AVAILABLE, AVAILABLE
from tower.clusters.host.host_statuses import HostStatuses
from tower.clusters.records import Records
from tower.control.availability import Availability
from tower.controller.controller import FACTS_PERIOD, Controller
from tower.controller.host_access import HostAccess
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.host_conditions import INITIALIZED
from tower.kube.member_status import Check, MemberStatus
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS, SERVICES
from tower.kube.timestamps import timestamp
from tower.trust.vault import Vault
from tower.tunnels import Tunnels

_GOOD = Check("True", "Reachable")
_STATUS = MemberStatus(_GOOD, _GOOD, _GOOD, version="v1.36.0")


class ClusterWriteTests(SynchronousTestCase):
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
        records = Records.of(bench.store, vault, range(6000, 6010), clock, 86400.0, 1.0)
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

    def apply(self) -> None:
        """Apply alpha, as its users do."""
        spec = {"joinFederation": True, "connection": {"type": "proxy"}}
        self.host.put(CLUSTERS, {"metadata": {"name": "alpha"}, "spec": spec})
        self.pump()

    def status(self) -> Object:
        """Return the status in the object of alpha."""
        found = self.host.object(CLUSTERS, "alpha")
        assert found is not None
        status: Object = found["status"]
        return status

    def condition(self, kind: str) -> str:
        """Return the status of a condition in the object of alpha; empty without one."""
        return next((each["status"] for each in self.status()["conditions"] if each["type"] == kind), "")

    def writes(self, since: int = 0) -> list[str]:
        """Return the verbs of the writes of Cluster objects."""
        return [verb for verb, plural, _ in self.host.writes[since:] if plural == "clusters"]

    def test_new_cluster(self) -> None:
        """A new cluster costs 4 writes of its object, and the connection of its agent one more."""
        self.apply()
        self.assertEqual((self.condition(INITIALIZED), self.condition(AVAILABLE)), ("True", "False"))
        self.assertEqual(self.writes(), ["patch"] * 4)
        obj = self.host.object(CLUSTERS, "alpha")
        assert obj is not None
        self.assertEqual(obj["status"]["observedGeneration"], obj["metadata"]["generation"])
        self.tunnels.add(FakeTunnel("alpha", member_status=_STATUS))
        self.pump(60)
        self.assertEqual((self.condition(AGENT_AVAILABLE), self.condition(AVAILABLE)), ("True", "True"))
        self.assertEqual(self.writes(), ["patch"] * 5)

    def test_facts(self) -> None:
        """The object has the versions at no extra write, and the time when the last agent was lost."""
        self.apply()
        tunnel = FakeTunnel("alpha", version="1.2.3", member_status=_STATUS)
        self.tunnels.add(tunnel)
        self.pump(1)
        status = self.status()
        self.assertEqual((status["kubernetesVersion"], status["agentVersion"]), ("v1.36.0", "1.2.3"))
        self.pump(1000)
        self.tunnels.remove(tunnel)
        lost, before = self.bench.clock.seconds(), len(self.host.writes)
        self.pump(60)
        self.assertEqual(self.status()["lastSeen"], timestamp(lost))
        self.assertEqual(self.status()["agentVersion"], "1.2.3")
        self.assertEqual(self.writes(before), ["patch"])

    def test_after_a_crash(self) -> None:
        """The next leader knows the version, and when an agent was last seen."""
        self.apply()
        self.tunnels.add(FakeTunnel("alpha", member_status=_STATUS))
        self.pump(1)
        seen, self.statuses = self.status()["lastSeen"], HostStatuses()
        self.start()
        self.assertEqual(self.tunnels.kubernetes_version("alpha"), "v1.36.0")
        self.assertEqual(timestamp(self.tunnels.last_seen("alpha") or 0), seen)

    def test_upgraded_member(self) -> None:
        """A version that changes without a change of conditions is written once, within 5 minutes."""
        self.apply()
        tunnel = FakeTunnel("alpha", member_status=_STATUS)
        self.tunnels.add(tunnel)
        self.pump(60)
        before = len(self.host.writes)
        tunnel.member_status = evolve(_STATUS, version="v1.37.0")
        tunnel.on_change()
        self.pump(FACTS_PERIOD)
        self.assertEqual(self.status()["kubernetesVersion"], "v1.37.0")
        self.pump(FACTS_PERIOD)
        self.assertEqual(self.writes(before), ["patch"])

    def test_other_schema(self) -> None:
        """With a CRD of KubeSphere, which drops Tower's own fields, nothing is written again."""
        self.host.admission.append(_prune)
        self.apply()
        self.tunnels.add(FakeTunnel("alpha", version="1.2.3", member_status=_STATUS))
        self.pump(60)
        self.assertEqual(self.status()["kubernetesVersion"], "v1.36.0")
        self.assertNotIn("agentVersion", self.status())
        self.assertEqual((self.condition(INITIALIZED), self.condition(AVAILABLE)), ("True", "True"))
        before = len(self.host.writes)
        self.pump(FACTS_PERIOD)
        self.pump(FACTS_PERIOD)
        self.assertEqual(self.writes(before), [])

    def test_without_status_subresource(self) -> None:
        """Without a status subresource, the facts are written, too, and it comes to rest."""
        self.host.without_status.add(CLUSTERS)
        self.apply()
        self.tunnels.add(FakeTunnel("alpha", member_status=_STATUS))
        self.pump(60)
        self.assertEqual(self.status()["kubernetesVersion"], "v1.36.0")
        self.assertNotIn("observedGeneration", self.status())
        before = len(self.host.writes)
        self.pump(FACTS_PERIOD)
        self.assertEqual(self.writes(before), [])


def _allocate(verb: str, resource: ResourceType, obj: Object) -> None:
    if resource is SERVICES:
        obj["spec"].setdefault("clusterIP", "10.96.0.1")


def _prune(verb: str, resource: ResourceType, obj: Object) -> None:
    if resource is CLUSTERS:
        for key in ("agentVersion", "lastSeen", "observedGeneration"):
            obj.get("status", {}).pop(key, None)

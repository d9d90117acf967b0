"""Writes of the ``Cluster`` object by the controller, the store and the conditions together."""

from __future__ import annotations

from attrs import evolve

from tests.controller.leader_kit import LeaderTestCase
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.condition_types import AGENT_AVAILABLE, AVAILABLE
from tower.clusters.host.host_statuses import HostStatuses
from tower.controller.controller import FACTS_PERIOD
from tower.controller.objects.host_conditions import INITIALIZED
from tower.kube.member_status import Check, MemberStatus
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS
from tower.kube.timestamps import timestamp

_GOOD = Check("True", "Reachable")
_STATUS = MemberStatus(_GOOD, _GOOD, _GOOD, version="v1.36.0")


class ClusterWriteTests(LeaderTestCase):
    """Each test has a leader without clusters."""

    def test_new_cluster(self) -> None:
        """A new cluster costs 4 writes of its object, and the connection of its agent one more."""
        self.apply()
        self.assertEqual((self.condition(INITIALIZED), self.condition(AVAILABLE)), ("True", "False"))
        self.assertEqual(self.writes(), ["patch"] * 4)
        obj = self.cluster()
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

    def test_reconnects(self) -> None:
        """Agents that reconnect every 30 s, in turn with two versions, cost few writes."""
        self.apply()
        versions = ("1.2.3", "1.2.4")
        tunnel = FakeTunnel("alpha", version=versions[0], member_status=_STATUS)
        self.tunnels.add(tunnel)
        self.pump(60)
        before = len(self.host.writes)
        for number in range(20):
            self.tunnels.remove(tunnel)
            self.pump(1)
            tunnel = FakeTunnel("alpha", version=versions[number % 2], member_status=_STATUS)
            self.tunnels.add(tunnel)
            self.pump(29)
        self.assertLessEqual(len(self.writes(before)), 2)

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


def _prune(verb: str, resource: ResourceType, obj: Object) -> None:
    if resource is CLUSTERS:
        for key in ("agentVersion", "lastSeen", "observedGeneration"):
            obj.get("status", {}).pop(key, None)

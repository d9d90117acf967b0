"""Tests of `tower.clusters.host.host_statuses`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.clusters.host.host_statuses import (
    AGENT_VERSION,
    KUBERNETES_VERSION,
    LAST_SEEN,
    OBSERVED_GENERATION,
    HostStatuses,
)
from tower.kube.crds.manifests import crds
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import CLUSTERS
from tower.tunnels import Tunnels


def _object(**status: object) -> Object:
    return {"metadata": {"name": "alpha", "generation": 3}, "status": status}


class HostStatusTests(SynchronousTestCase):
    """Each test has the statuses of clusters without agents."""

    def setUp(self) -> None:
        """Make the statuses."""
        self.statuses, clock = HostStatuses(), Clock()
        self.tunnels = Tunnels(clock, clock.seconds)

    def test_unbound(self) -> None:
        """Before the sources are bound, nothing is added."""
        after = _object(conditions=[1])
        self.assertEqual(self.statuses.added("alpha", _object(), after), after)

    def test_restored(self) -> None:
        """Facts in the loaded objects are restored once; malformed fields are ignored."""
        self.statuses.read(_object(lastSeen="1970-01-01T00:01:00Z", kubernetesVersion="v1.36.0"))
        statuses: list[Any] = [7, None, [], {"lastSeen": 7, "kubernetesVersion": [7]}, {"lastSeen": "soon"}]
        for odd in statuses:
            self.statuses.read({"metadata": {"name": "beta"}, "status": odd})
        self.statuses.bind(self.tunnels)
        self.assertEqual(self.tunnels.last_seen("alpha"), 60.0)
        self.assertEqual(self.tunnels.kubernetes_version("alpha"), "v1.36.0")
        self.assertIsNone(self.tunnels.last_seen("beta"))
        self.assertEqual(self.tunnels.kubernetes_version("beta"), "")
        self.statuses.read(_object(kubernetesVersion="v1.37.0"))
        self.assertEqual(self.tunnels.kubernetes_version("alpha"), "v1.36.0")

    def test_with_other_changes_only(self) -> None:
        """Facts are added to a status that changes; those that are not known stay."""
        self.statuses.bind(self.tunnels)
        self.tunnels.add(FakeTunnel("alpha", version="1.2.3"))
        before = _object(conditions=[], kubernetesVersion="v1.36.0")
        self.assertIs(self.statuses.added("alpha", before, before), before)
        self.assertNotIn("status", self.statuses.added("alpha", None, {"metadata": {"name": "alpha"}}))
        after = _object(conditions=[1], kubernetesVersion="v1.36.0")
        status = self.statuses.added("alpha", before, after)["status"]
        self.assertEqual(
            status,
            {
                "conditions": [1],
                "kubernetesVersion": "v1.36.0",
                "agentVersion": "1.2.3",
                "lastSeen": "1970-01-01T00:00:00Z",
            },
        )

    def test_observed_generation(self) -> None:
        """The generation that was handled is added, unless the object has changed since."""
        for generation, expected in ((3, 3), (2, None)):
            self.statuses.generations["alpha"] = generation
            status = self.statuses.added("alpha", _object(), _object(conditions=[1]))["status"]
            self.assertEqual(status.get("observedGeneration"), expected)

    def test_described(self) -> None:
        """The CRD describes each field, so that kubectl explain knows it."""
        (crd,) = [each for each in crds() if each["metadata"]["name"] == CLUSTERS.name]
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        for name in ("conditions", KUBERNETES_VERSION, AGENT_VERSION, LAST_SEEN, OBSERVED_GENERATION):
            self.assertTrue(schema[name]["description"], name)

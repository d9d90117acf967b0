"""A cluster's record, and the object it is shown as."""

from __future__ import annotations

import json

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.members import SPEC
from tower.clusters.cluster import Cluster, Condition, Live, MemberFacts, decode, encode, to_object
from tower.kube.timestamps import timestamp
from tower.store.records import Record

ALPHA = Cluster(
    "alpha",
    "6b1f0d9c-0000-4000-8000-000000000000",
    7,
    1_790_000_000.5,
    enabled=False,
    kubernetes_port=6000,
    conditions=(Condition("AgentAvailable", "True", "Connected", "an agent is connected", 1_790_000_100.0),),
    labels={"env": "prod"},
    annotations={"note": "x"},
)


class ClusterTests(SynchronousTestCase):
    """One cluster with everything."""

    def test_record(self) -> None:
        """A decoded record equals the encoded cluster."""
        value = json.loads(json.dumps(encode(ALPHA)))
        self.assertEqual(decode(Record("clusters", "alpha", 7, value)), ALPHA)

    def test_object(self) -> None:
        """The object has upstream's field names, and what is known live."""
        live = Live("https://tower:8443/clusters/alpha", 2, "1.0", 1_790_000_200.9, 0.0123456)
        self.assertEqual(
            to_object(ALPHA, live),
            {
                "apiVersion": "cluster.kubesphere.io/v1alpha1",
                "kind": "Cluster",
                "metadata": {
                    "name": "alpha",
                    "uid": "6b1f0d9c-0000-4000-8000-000000000000",
                    "resourceVersion": "7",
                    "generation": 1,
                    "creationTimestamp": "2026-09-21T14:13:20Z",
                    "labels": {"env": "prod"},
                    "annotations": {"note": "x"},
                },
                "spec": {
                    "enable": False,
                    "connection": {
                        "type": "proxy",
                        "kubernetesAPIServerPort": 6000,
                        "kubernetesAPIEndpoint": "https://tower:8443/clusters/alpha",
                    },
                },
                "status": {
                    "conditions": [
                        {
                            "type": "AgentAvailable",
                            "status": "True",
                            "reason": "Connected",
                            "message": "an agent is connected",
                            "lastTransitionTime": "2026-09-21T14:15:00Z",
                        }
                    ],
                    "agents": 2,
                    "agentVersion": "1.0",
                    "lastSeen": "2026-09-21T14:16:40Z",
                    "roundTripMilliseconds": 12.346,
                },
            },
        )

    def test_bare_object(self) -> None:
        """Unknown values are omitted."""
        shown = to_object(Cluster("beta", "u", 1, 0.0))
        self.assertEqual(shown["spec"], {"enable": True, "connection": {"type": "proxy"}})
        self.assertEqual(shown["status"], {"conditions": []})
        self.assertEqual(
            set(shown["metadata"]), {"name", "uid", "resourceVersion", "generation", "creationTimestamp"}
        )
        self.assertEqual(
            to_object(Cluster("beta", "u", 1, 0.0), Live())["status"], {"conditions": [], "agents": 0}
        )

    def test_ssh(self) -> None:
        """A cluster of type ssh shows its spec and public facts of its credential, and no agents."""
        beta = evolve(ALPHA, name="beta", ssh=SPEC)
        value = json.loads(json.dumps(encode(beta)))
        self.assertEqual(decode(Record("clusters", "beta", 7, value)), beta)
        shown = to_object(beta, Live(member=MemberFacts("https://10.0.0.1:6443", "token", 1_790_000_000.0)))
        connection = shown["spec"]["connection"]
        self.assertEqual((connection["type"], connection["ssh"]["user"]), ("ssh", "tower"))
        self.assertEqual(
            shown["status"]["member"],
            {
                "server": "https://10.0.0.1:6443",
                "credential": "token",
                "expirationTimestamp": "2026-09-21T14:13:20Z",
            },
        )
        self.assertNotIn("agents", shown["status"])

    def test_records_of_before(self) -> None:
        """A record from before there were such clusters is one with an agent."""
        value = dict(encode(ALPHA))
        self.assertNotIn("ssh", value)
        self.assertEqual(decode(Record("clusters", "alpha", 7, value)).type, "proxy")

    def test_timestamp(self) -> None:
        """Times are in UTC, in whole seconds."""
        self.assertEqual(timestamp(0.9), "1970-01-01T00:00:00Z")

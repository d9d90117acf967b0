"""Clusters as KubeSphere's objects in a host cluster."""

from __future__ import annotations

import json
from typing import Any

from attrs import asdict, evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.members import SPEC
from tests.store.kubernetes.samples import KUBESPHERE, cluster_value
from tower.clusters.cluster import Cluster, Condition, decode, encode
from tower.clusters.host.host_object import CREATED, UID, ClusterCodec, merged, record_value
from tower.clusters.object_meta import ObjectMeta
from tower.errors import Invalid
from tower.kube.rest.host_api import Object
from tower.store.kubernetes.object_codec import normal
from tower.store.records import Record, Value

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _stored(obj: Object, uid: str = "0f-1") -> Object:
    """Return *obj* with the metadata that an API server sets."""
    copy: Object = json.loads(json.dumps(obj))
    copy["metadata"] |= {
        "uid": uid,
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2025-06-01T09:00:00Z",
    }
    return copy


def _value(obj: Object, known: Value | None = None) -> dict[str, Any]:
    """Return the value of a cluster that Tower serves."""
    value = record_value(obj, known)
    assert value is not None
    return dict(value)


class KubeSphereTests(SynchronousTestCase):
    """Objects that KubeSphere, its console or its users have written."""

    def setUp(self) -> None:
        """Make one."""
        self.obj = _stored(KUBESPHERE)

    def test_decoded(self) -> None:
        """Its fields are those of the record; secrets are not."""
        value = _value(self.obj)
        cluster = decode(Record("clusters", "alpha", 7, value))
        self.assertEqual((cluster.uid, cluster.created, cluster.enabled), ("0f-1", 1748768400, True))
        self.assertEqual((cluster.type, cluster.kubernetes_port), ("proxy", None))
        self.assertEqual(cluster.labels, {"cluster.kubesphere.io/group": "production"})
        self.assertEqual(cluster.annotations, {"kubesphere.io/description": "Berlin"})
        self.assertEqual(cluster.meta.finalizers, ("finalizer.cluster.kubesphere.io",))
        self.assertEqual(cluster.meta.generation, 2)
        self.assertEqual([each.type for each in cluster.conditions], ["Initialized", "AgentAvailable"])
        self.assertEqual(cluster.conditions[1].reason, "")
        self.assertEqual(cluster.conditions[1].last_transition, 1748772001)
        self.assertEqual([each["type"] for each in cluster.meta.conditions], ["KSCoreReady"])
        for secret in ("t" * 64, "YXBpVmVyc2lvbjogdjEK"):
            self.assertNotIn(secret, json.dumps(value))

    def test_unchanged(self) -> None:
        """The object with an unchanged record is the same object."""
        self.assertEqual(merged(self.obj, "alpha", _value(self.obj)), self.obj)

    def test_unknown_fields(self) -> None:
        """Every write keeps the fields that Tower does not know."""
        value = _value(self.obj)
        value |= {"enabled": False, "kubernetes_port": 6001, "labels": {"new": "label"}}
        value["conditions"] = [{**value["conditions"][1], "status": "True", "last_transition": 1_800_000_000}]
        new = merged(self.obj, "alpha", value)
        expected = json.loads(json.dumps(self.obj))
        expected["metadata"]["labels"] = {"new": "label"}
        expected["spec"]["enable"] = False
        expected["spec"]["connection"] |= {"kubernetesAPIServerPort": 6001, "kubesphereAPIServerPort": 16001}
        agent, other = expected["status"]["conditions"][1:]
        agent |= {"status": "True"} | dict.fromkeys(
            ("lastTransitionTime", "lastUpdateTime"), "2027-01-15T08:00:00Z"
        )
        expected["status"]["conditions"] = [agent, other]
        self.assertEqual(new, expected)
        self.assertEqual({**_value(new), "meta": {}}, {**value, "meta": {}})

    def test_served(self) -> None:
        """A cluster is enabled by joinFederation, unless it is disabled or being deleted.

        While KubeSphere cleans up in the member of a deleted cluster, it is still served.
        """
        for spec, metadata, expected in (
            ({}, {}, True),
            ({"enable": True}, {}, True),
            ({"enable": False}, {}, False),
            ({"joinFederation": False}, {}, False),
            ({"joinFederation": None}, {}, False),
            ({}, {"deletionTimestamp": "2025-06-02T00:00:00Z"}, True),
            ({"enable": False}, {"deletionTimestamp": "2025-06-02T00:00:00Z"}, False),
            ({}, {"deletionTimestamp": "2025-06-02T00:00:00Z", "finalizers": ["other/x"]}, False),
            ({}, {"deletionTimestamp": "2025-06-02T00:00:00Z", "finalizers": []}, False),
        ):
            obj = _stored(KUBESPHERE)
            obj["spec"] |= spec
            obj["metadata"] |= metadata
            self.assertEqual(_value(obj)["enabled"], expected, f"{spec} {metadata}")

    def test_enabled_again(self) -> None:
        """Enabling sets both fields; disabling leaves joinFederation to KubeSphere."""
        self.obj["spec"]["joinFederation"] = False
        new = merged(self.obj, "alpha", {**_value(self.obj), "enabled": True})
        self.assertEqual((new["spec"]["joinFederation"], new["spec"]["enable"]), (True, True))
        off = merged(new, "alpha", {**_value(new), "enabled": False})
        self.assertEqual((off["spec"]["joinFederation"], off["spec"]["enable"]), (True, False))

    def test_other_types(self) -> None:
        """Clusters that KubeSphere reaches itself are ignored."""
        for kind in ("direct", "", None):
            self.obj["spec"]["connection"]["type"] = kind
            self.assertIsNone(record_value(self.obj))
        del self.obj["spec"]["connection"]
        self.assertIsNone(record_value(self.obj))
        del self.obj["spec"]
        self.assertIsNone(record_value(self.obj))

    def test_names(self) -> None:
        """A name that cannot be one of Tower's is rejected with the rule."""
        self.obj["metadata"]["name"] = "a.b"
        self.assertIn("lower case", str(self.assertRaises(Invalid, record_value, self.obj)))

    def test_malformed_conditions(self) -> None:
        """Conditions that are malformed are ignored, and kept."""
        odd = [7, {"status": "True"}, {"type": "Available", "status": "maybe"}]
        self.obj["status"]["conditions"] += odd
        value = _value(self.obj)
        self.assertEqual(len(value["conditions"]), 2)
        self.assertEqual(merged(self.obj, "alpha", value), self.obj)
        statuses: list[Any] = [None, {}, {"conditions": None}, {"conditions": {}}]
        for status in statuses:
            self.obj["status"] = status
            self.assertEqual(_value(self.obj)["conditions"], [])
            merged(self.obj, "alpha", value)

    def test_applied(self) -> None:
        """The object that kubectl applied stays whole, but the record has no secret of it."""
        applied = json.dumps(KUBESPHERE)
        self.obj["metadata"]["annotations"][_APPLIED] = applied
        value = _value(self.obj)
        shown = json.loads(value["annotations"][_APPLIED])
        self.assertEqual(shown["spec"]["connection"], {"type": "proxy"})
        self.assertNotIn("config", shown["spec"])
        self.assertEqual(merged(self.obj, "alpha", value), self.obj)
        value["annotations"] = {**value["annotations"], _APPLIED: "{}"}
        new = merged(self.obj, "alpha", value)
        self.assertEqual(new["metadata"]["annotations"][_APPLIED], "{}")
        for text in ("nonsense", "7", '{"spec": 7}', '{"spec": {"connection": [1]}}', "[" * 100_000):
            self.obj["metadata"]["annotations"][_APPLIED] = text
            self.assertNotIn("[1]", _value(self.obj)["annotations"].get(_APPLIED, ""))


class TowerTests(SynchronousTestCase):
    """Objects that Tower has written."""

    def round_trip(self, cluster: Cluster) -> Cluster:
        """Return the cluster after writing and reading."""
        obj = merged(None, cluster.name, normal(encode(cluster)))
        stored = _stored(obj)
        value = _value(stored)
        self.assertEqual(merged(stored, cluster.name, value), stored)
        return decode(Record("clusters", cluster.name, 7, value))

    def test_all_fields(self) -> None:
        """Every field of a cluster survives; only the generation is the API server's."""
        condition = Condition("Available", "True", "Ready", "Fine.", 1_700_000_000)
        special = Condition("example.org/Special", "Unknown", "", "", 1_700_000_001)
        cluster = Cluster(
            "beta",
            "b-1",
            7,
            1_700_000_000.125,
            enabled=False,
            kubernetes_port=6002,
            conditions=(condition, special),
            labels={"a": "b"},
            annotations={"c": "d"},
            ssh=SPEC,
            meta=ObjectMeta(
                2,
                None,
                ("example.org/x",),
                ({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"},),
                ({"manager": "kubectl", "operation": "Apply"},),
                ({"type": "example.org/Other", "status": "True", "more": [1]},),
            ),
        )
        self.assertEqual(self.round_trip(cluster), cluster)
        plain = evolve(cluster, ssh=None, meta=ObjectMeta(2), enabled=True, kubernetes_port=None)
        self.assertEqual(self.round_trip(plain), plain)

    def test_new(self) -> None:
        """A new object has KubeSphere's fields, and no owner that would delete it."""
        value = {**cluster_value("b-1"), "kubernetes_port": 60_000, "meta": {"owners": [{"uid": "1"}]}}
        obj = merged(None, "beta", value)
        self.assertEqual((obj["apiVersion"], obj["kind"]), ("cluster.kubesphere.io/v1alpha1", "Cluster"))
        self.assertEqual(
            obj["spec"],
            {
                "enable": True,
                "joinFederation": True,
                "connection": {"type": "proxy", "kubernetesAPIServerPort": 60_000},
            },
        )
        self.assertNotIn("ownerReferences", obj["metadata"])
        self.assertNotIn("status", obj)
        self.assertEqual(obj["metadata"]["annotations"][UID], "beta/b-1")

    def test_identity(self) -> None:
        """A copy of an object under another name is another cluster; a lost annotation changes nothing."""
        obj = _stored(merged(None, "beta", cluster_value("b-1")))
        self.assertEqual(_value(obj)["uid"], "b-1")
        copy = _stored({**obj, "metadata": {**obj["metadata"], "name": "gamma"}}, "0f-2")
        self.assertEqual(_value(copy)["uid"], "0f-2")
        known = _value(obj)
        obj["metadata"]["annotations"] = {}
        self.assertEqual(_value(obj, known), known)
        again = merged(obj, "beta", known)
        self.assertEqual(again["metadata"]["annotations"], {UID: "beta/b-1", CREATED: "1700000000.25"})

    def test_private_annotations(self) -> None:
        """Clients cannot set the annotations that identify a cluster."""
        value = {**cluster_value("b-1"), "annotations": {UID: "beta/other", "a": "b"}}
        obj = _stored(merged(None, "beta", value))
        self.assertEqual(_value(obj)["uid"], "b-1")
        self.assertEqual(_value(obj)["annotations"], {"a": "b"})

    def test_malformed_annotations(self) -> None:
        """Damaged private annotations are ignored, or named in an error."""
        obj = _stored(merged(None, "beta", cluster_value("b-1")))
        for text in ("soon", "[]", '"x"', "null"):
            obj["metadata"]["annotations"][CREATED] = text
            self.assertEqual(_value(obj)["created"], 1748768400)
        obj["metadata"]["annotations"]["tower.kubesphere.io/metadata"] = "[7]"
        self.assertIn("remove this annotation", str(self.assertRaises(Invalid, record_value, obj)))

    def test_ssh(self) -> None:
        """Unknown fields of the SSH settings stay; a field of the wrong type is named."""
        cluster = Cluster("beta", "b-1", 7, 1_700_000_000, ssh=SPEC)
        obj = _stored(merged(None, "beta", normal(encode(cluster))))
        obj["spec"]["connection"]["ssh"]["later"] = 1
        edited = normal(encode(evolve(cluster, ssh=evolve(SPEC, user="other"))))
        ssh = merged(obj, "beta", edited)["spec"]["connection"]["ssh"]
        self.assertEqual((ssh["user"], ssh["later"]), ("other", 1))
        obj["spec"]["connection"]["ssh"]["user"] = 7
        self.assertIn("spec.connection.ssh.user", str(self.assertRaises(Invalid, record_value, obj)))

    def test_deletion(self) -> None:
        """A requested deletion is one request; later writes are not."""
        codec, base = ClusterCodec(), _stored(merged(None, "beta", cluster_value("b-1")))
        deleted = {**cluster_value("b-1"), "meta": asdict(ObjectMeta(deleted=1_700_000_000.0))}
        self.assertTrue(codec.is_deletion(base, deleted))
        self.assertFalse(codec.is_deletion(base, cluster_value("b-1")))
        base["metadata"]["deletionTimestamp"] = "2025-06-02T00:00:00Z"
        self.assertFalse(codec.is_deletion(base, deleted))

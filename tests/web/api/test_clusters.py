"""Tests for `tower.web.api.clusters` and `tower.web.api.writes.cluster_object`."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.api import BASE, TABLE, ApiTestCase, decoded
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.condition_types import AVAILABLE
from tower.errors import Invalid
from tower.kube.member_status import Check, ConditionStatus, MemberStatus
from tower.kube.timestamps import timestamp
from tower.store.records import StoreFailed
from tower.web.api.fields.kinds import CLUSTER
from tower.web.api.fields.schema import pruned
from tower.web.api.issuer import Published
from tower.web.api.writes.cluster_object import merge, read_cluster
from tower.web.outcome import Response

CLUSTERS = f"{BASE}/clusters"
ALPHA = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "alpha"}}
MERGE = "application/merge-patch+json"


class ReadingTests(ApiTestCase):
    """Lists and single objects."""

    def test_empty(self) -> None:
        """An empty list is a list."""
        answer = self.get(CLUSTERS)
        self.assertEqual((answer["kind"], answer["items"]), ("ClusterList", []))

    def test_list(self) -> None:
        """Clusters are ordered by name; the list has the version to start a watch with."""
        self.add("beta")
        self.add("alpha")
        answer = self.get(CLUSTERS)
        self.assertEqual([item["metadata"]["name"] for item in answer["items"]], ["alpha", "beta"])
        self.assertEqual(answer["metadata"]["resourceVersion"], str(self.store.version))

    def test_selectors(self) -> None:
        """Labels and the name are supported in selectors; other selectors are rejected, not ignored."""
        self.add("alpha", labels={"env": "prod"})
        self.add("beta")
        for query in ({"labelSelector": "env=prod"}, {"fieldSelector": "metadata.name=alpha"}):
            items = self.get(CLUSTERS, **query)["items"]
            self.assertEqual([item["metadata"]["name"] for item in items], ["alpha"])
        self.refused(400, "GET", CLUSTERS, fieldSelector="spec.enable=true")
        self.refused(400, "GET", CLUSTERS, labelSelector="env in prod")

    def test_one(self) -> None:
        """One cluster, with the current state of its agents."""
        self.add("alpha")
        self.assertNotIn("lastSeen", self.get(f"{CLUSTERS}/alpha")["status"])
        tunnel: Any = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        cluster = self.get(f"{CLUSTERS}/alpha")
        self.assertEqual(cluster["status"]["agents"], 1)
        self.assertEqual(cluster["status"]["agentVersion"], "1.2.3")
        self.assertEqual(cluster["status"]["roundTripMilliseconds"], 4.2)
        connection = cluster["spec"]["connection"]
        self.assertEqual(connection["kubernetesAPIEndpoint"], "https://tower.example.org:8443/clusters/alpha")
        self.assertEqual(connection["kubernetesAPIServerPort"], 6000)
        self.tunnels.remove(tunnel)
        self.clock.advance(42)
        seen = self.get(f"{CLUSTERS}/alpha")["status"]["lastSeen"]
        self.assertEqual(seen, timestamp(self.clock.seconds() - 42))

    def test_missing(self) -> None:
        """A missing cluster is NotFound, with its name and kind."""
        refusal = self.refused(404, "GET", f"{CLUSTERS}/nope")
        self.assertEqual(refusal.reason, "NotFound")
        self.assertEqual(
            refusal.details, {"name": "nope", "group": "cluster.kubesphere.io", "kind": "clusters"}
        )

    def test_table(self) -> None:
        """A table of the list, and of one, with live cells."""
        self.add("alpha")
        good = Check("True", "Reachable")
        status = MemberStatus(good, good, good, version="v1.31.2", credential_expires=1_900_000_000.0)
        tunnel: Any = FakeTunnel("alpha", member_status=status)
        self.tunnels.add(tunnel)
        for path in (CLUSTERS, f"{CLUSTERS}/alpha"):
            answer = self.get(path, accept=TABLE)
            names = [column["name"] for column in answer["columnDefinitions"] if not column["priority"]]
            cells = answer["rows"][0]["cells"]
            self.assertEqual(
                dict(zip(names, cells, strict=False)),
                {
                    "Name": "alpha",
                    "Type": "proxy",
                    "Enabled": True,
                    "Available": "Unknown",
                    "Reason": "<none>",
                    "Port": "6000",
                    "Version": "v1.31.2",
                    "Last seen": "now",
                    "Age": "0s",
                },
            )
            self.assertEqual(cells[9:12], ["1", "1.2.3", "4.2ms"])
            self.assertEqual(answer["rows"][0]["object"]["metadata"]["name"], "alpha")
        self.assertEqual(
            self.get(f"{CLUSTERS}/alpha")["status"]["member"],
            {"expirationTimestamp": "2030-03-17T17:46:40Z"},
        )
        self.tunnels.remove(tunnel)
        self.clock.advance(42)
        (row,) = self.get(CLUSTERS, accept=TABLE)["rows"]
        self.assertEqual(row["cells"][6:8], ["v1.31.2", "42s ago"])

    def test_silent(self) -> None:
        """The table has the time of the last byte of an agent that is connected and does not answer."""
        self.add("alpha")
        tunnel: Any = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        self.tunnels.note_silence(tunnel, 15.0)
        (row,) = self.get(CLUSTERS, accept=TABLE)["rows"]
        self.assertEqual((row["cells"][7], row["cells"][9:12]), ("15s ago", ["1", "1.2.3", ""]))

    def test_reconnecting(self) -> None:
        """A cluster that is still available after the loss of its agent is shown as reconnecting."""
        self.add("alpha")
        self.successResultOf(self.clusters.set_condition("alpha", AVAILABLE, "True", "Ready", "It answers."))
        (row,) = self.get(CLUSTERS, accept=TABLE)["rows"]
        self.assertEqual(row["cells"][3:5], ["True", "Reconnecting"])
        self.assertIn("No agent is connected", row["cells"][-1])

    def test_reasons(self) -> None:
        """The table has the first problem with its cure, also of an available cluster."""
        self.add("alpha")
        tunnel: Any = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        cases: tuple[tuple[ConditionStatus, str, tuple[str, str]], ...] = (
            ("False", "ConnectionRefused", ("ConnectionRefused", "start it")),
            ("True", "ClockSkew", ("ClockSkew", "start it")),
            ("True", "Ready", ("<none>", "<none>")),
            ("True", "AgentConnected", ("<none>", "<none>")),
            ("Unknown", "NotChecked", ("NotChecked", "start it")),
        )
        for status, reason, shown in cases:
            change = self.clusters.set_condition("alpha", AVAILABLE, status, reason, "start it")
            self.successResultOf(change)
            answer = self.get(CLUSTERS, accept=TABLE)
            names = [column["name"] for column in answer["columnDefinitions"]]
            cells = dict(zip(names, answer["rows"][0]["cells"], strict=True))
            self.assertEqual((cells["Available"], cells["Reason"], cells["Message"]), (status, *shown))

    def test_no_secrets(self) -> None:
        """No object contains a token, a key or a digest of one."""
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha"))
        text = json.dumps(self.get(CLUSTERS))
        self.assertNotIn(token, text)
        self.assertNotIn("token", text.lower())

    def test_other_methods(self) -> None:
        """An unsupported method is rejected; an unknown path is not found."""
        self.add("alpha")
        self.refused(405, "POST", f"{CLUSTERS}/alpha/status", {})
        self.refused(405, "DELETE", CLUSTERS)
        self.refused(404, "GET", f"{CLUSTERS}/alpha/frobs")
        self.refused(404, "GET", f"{BASE}/frobs")


class UnpublishedTests(ApiTestCase):
    """A proxy without a published address."""

    published = Published("0.0.0.0", None, 8443, 8080)

    def test_no_endpoint(self) -> None:
        """The object has no endpoint rather than a wrong one."""
        self.add("alpha")
        self.assertNotIn("kubernetesAPIEndpoint", self.get(f"{CLUSTERS}/alpha")["spec"]["connection"])


class WritingTests(ApiTestCase):
    """Create, patch, delete."""

    def test_create(self) -> None:
        """A cluster is created as requested."""
        body = {**ALPHA, "metadata": {"name": "alpha", "labels": {"env": "prod"}}, "spec": {"enable": False}}
        outcome = self.ask("POST", CLUSTERS, body)
        assert isinstance(outcome, Response)
        self.assertEqual(outcome.code, 201)
        made = decoded(outcome)
        self.assertEqual((made["spec"]["enable"], made["metadata"]["labels"]), (False, {"env": "prod"}))
        cluster = self.clusters.get("alpha")
        assert cluster is not None
        self.assertFalse(cluster.enabled)

    def test_create_with_a_port(self) -> None:
        """A requested port is assigned once, and cannot be changed later."""
        body = {**ALPHA, "spec": {"connection": {"kubernetesAPIServerPort": 6001}}}
        made = decoded(self.ask("POST", CLUSTERS, body))
        self.assertEqual(made["spec"]["connection"]["kubernetesAPIServerPort"], 6001)
        beta = {**body, "metadata": {"name": "beta"}}
        self.assertEqual(self.refused(409, "POST", CLUSTERS, beta).reason, "Conflict")
        for port in ("6001", True, 0, 65536, 6.5):
            wrong = {"spec": {"connection": {"kubernetesAPIServerPort": port}}}
            self.refused(422, "POST", CLUSTERS, {**beta, **wrong})
        self.ask("PATCH", f"{CLUSTERS}/alpha", body, content=MERGE)
        other = {"spec": {"connection": {"kubernetesAPIServerPort": 6002}}}
        self.refused(422, "PATCH", f"{CLUSTERS}/alpha", other, content=MERGE)

    def test_create_from_yaml(self) -> None:
        """YAML is supported too."""
        self.ask("POST", CLUSTERS, b"metadata:\n  name: alpha\n", content="application/yaml")
        self.assertIsNotNone(self.clusters.get("alpha"))

    def test_create_twice(self) -> None:
        """The second is AlreadyExists."""
        self.ask("POST", CLUSTERS, ALPHA)
        self.assertEqual(self.refused(409, "POST", CLUSTERS, ALPHA).reason, "AlreadyExists")

    def test_dry_run(self) -> None:
        """A dry run returns the result and changes nothing."""
        self.ask("POST", CLUSTERS, ALPHA, dryRun="All")
        self.assertIsNone(self.clusters.get("alpha"))
        self.add("alpha")
        self.assertEqual(self.refused(409, "POST", CLUSTERS, ALPHA, dryRun="All").reason, "AlreadyExists")
        patch = {"spec": {"enable": False}}
        answer = decoded(self.ask("PATCH", f"{CLUSTERS}/alpha", patch, content=MERGE, dryRun="All"))
        self.assertFalse(answer["spec"]["enable"])
        self.ask("DELETE", f"{CLUSTERS}/alpha", dryRun="All")
        self.ask("DELETE", f"{CLUSTERS}/alpha", {"dryRun": ["All"]})
        cluster = self.clusters.require("alpha")
        self.assertTrue(cluster.enabled)
        self.refused(422, "POST", CLUSTERS, ALPHA, dryRun="Some")

    def test_bad_bodies(self) -> None:
        """Each invalid object is rejected with the reason."""
        for code, body in (
            (400, b"{"),
            (400, b"[]"),
            (422, {}),
            (422, {"metadata": {"name": "Alpha"}}),
            (422, {"metadata": "alpha"}),
            (422, {**ALPHA, "spec": {"enable": "yes"}}),
            (422, {**ALPHA, "spec": {"connection": {"type": "direct"}}}),
            (422, {**ALPHA, "metadata": {"name": "alpha", "labels": {"a": 1}}}),
            (422, {**ALPHA, "metadata": {"name": "alpha", "resourceVersion": "x"}}),
            (422, {**ALPHA, "metadata": {"name": "alpha", "resourceVersion": "9" * 5000}}),
            (400, {**ALPHA, "kind": "Pod"}),
            (400, {**ALPHA, "apiVersion": "v1"}),
        ):
            self.refused(code, "POST", CLUSTERS, body)
        for content in ("application/vnd.kubernetes.protobuf", "text/plain", ""):
            self.refused(415, "POST", CLUSTERS, ALPHA, content=content)
        self.assertEqual(self.clusters.list(), [])

    def test_field_validation(self) -> None:
        """Unknown fields are rejected, warned about or ignored, as the client requests."""
        body = {**ALPHA, "spec": {"foo": 1, "connection": {"bar": 2}}}
        refusal = self.refused(400, "POST", CLUSTERS, body, fieldValidation="Strict")
        self.assertIn('unknown field "spec.foo", unknown field "spec.connection.bar"', str(refusal))
        outcome = self.ask("POST", CLUSTERS, body)
        assert isinstance(outcome, Response)
        self.assertIn((b"Warning", b'299 tower "unknown field \\"spec.foo\\""'), outcome.headers)
        outcome = self.ask(
            "PATCH", f"{CLUSTERS}/alpha", {"spec": {"foo": 1}}, content=MERGE, fieldValidation="Ignore"
        )
        assert isinstance(outcome, Response)
        self.assertNotIn(b"Warning", dict(outcome.headers))
        self.refused(422, "POST", CLUSTERS, body, fieldValidation="Perhaps")

    def test_patch(self) -> None:
        """Enabling, labels and annotations can be changed; null removes a value."""
        self.add("alpha", labels={"a": "1", "b": "2"})
        patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"enable": False}}
        answer = decoded(self.ask("PATCH", f"{CLUSTERS}/alpha", patch, content=MERGE))
        self.assertEqual(answer["metadata"]["labels"], {"b": "2", "c": "3"})
        self.assertFalse(self.clusters.require("alpha").enabled)

    def test_patch_that_changes_nothing(self) -> None:
        """The version is kept."""
        self.add("alpha")
        version = self.store.version
        self.ask("PATCH", f"{CLUSTERS}/alpha", {"spec": {"enable": True}}, content=MERGE)
        self.assertEqual(self.store.version, version)

    def test_patch_refused(self) -> None:
        """Other patch types, another identity, an old version."""
        self.add("alpha")
        path = f"{CLUSTERS}/alpha"
        self.refused(415, "PATCH", path, {}, content="application/strategic-merge-patch+json")
        self.refused(422, "PATCH", path, {"metadata": {"name": "beta"}}, content=MERGE)
        self.refused(422, "PATCH", path, {"metadata": {"uid": "other"}}, content=MERGE)
        self.refused(422, "PATCH", path, {"metadata": {"resourceVersion": 7}}, content=MERGE)
        self.refused(422, "PATCH", path, {"metadata": {"resourceVersion": "9" * 5000}}, content=MERGE)
        refusal = self.refused(409, "PATCH", path, {"metadata": {"resourceVersion": "999"}}, content=MERGE)
        self.assertEqual(refusal.reason, "Conflict")
        self.refused(404, "PATCH", f"{CLUSTERS}/nope", {}, content=MERGE)

    def test_delete(self) -> None:
        """The cluster is removed, and the answer names it."""
        uid = self.add("alpha").uid
        answer = decoded(self.ask("DELETE", f"{CLUSTERS}/alpha", {"propagationPolicy": "Background"}))
        self.assertEqual((answer["status"], answer["details"]["uid"]), ("Success", uid))
        self.assertIsNone(self.clusters.get("alpha"))
        self.refused(404, "DELETE", f"{CLUSTERS}/alpha")

    def test_delete_preconditions(self) -> None:
        """Preconditions protect another cluster of the same name."""
        self.add("alpha")
        for precondition in ({"uid": "other"}, {"resourceVersion": "999"}):
            self.refused(409, "DELETE", f"{CLUSTERS}/alpha", {"preconditions": precondition})
        self.assertIsNotNone(self.clusters.get("alpha"))

    def test_store_fails(self) -> None:
        """A store that cannot write is 503."""
        self.successResultOf(self.store.stop())
        refusal = self.refused(503, "POST", CLUSTERS, ALPHA)
        self.assertIsInstance(refusal.__cause__, StoreFailed)

    def test_ports_exhausted(self) -> None:
        """The eleventh cluster for ten ports is rejected with the reason."""
        for number in range(10):
            self.add(f"c{number}")
        self.assertIn("--cluster-ports", str(self.refused(409, "POST", CLUSTERS, ALPHA)))


class ObjectTests(SynchronousTestCase):
    """Parsing of cluster objects."""

    def test_merge(self) -> None:
        """The examples of RFC 7396, appendix A."""
        for old, patch, new in (
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "foo"}, None, None),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ):
            self.assertEqual(merge(old, patch), new)

    def test_unknown(self) -> None:
        """Unknown fields are found at every level; odd values cause no error."""
        value = {"x": 1, "spec": {"y": 2, "connection": 3}, "metadata": {"z": 4, "name": "a"}}
        known, unknown = pruned(value, CLUSTER)
        self.assertEqual(unknown, ["x", "spec.y", "metadata.z"])
        self.assertEqual(known, {"spec": {"connection": 3}, "metadata": {"name": "a"}})

    def test_defaults(self) -> None:
        """A name is sufficient."""
        wish = read_cluster({"metadata": {"name": "alpha", "annotations": None}})
        self.assertEqual((wish.name, wish.enabled, wish.annotations, wish.version), ("alpha", True, {}, None))
        self.assertRaises(Invalid, read_cluster, {})

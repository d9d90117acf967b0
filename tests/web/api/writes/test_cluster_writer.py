"""Writes of clusters: replace, patches, server-side apply, status, finalizers."""

from __future__ import annotations

from typing import Any

from tests.fakes.api import BASE, ApiTestCase, decoded
from tower.clusters.cluster import decode
from tower.clusters.object_meta import COUNT_LIMIT
from tower.kube.status import status_object
from tower.web.api.writes.requests import ENTRY_LIMIT
from tower.web.outcome import Response

CLUSTERS = f"{BASE}/clusters"
ALPHA = f"{CLUSTERS}/alpha"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def labels(**values: str) -> dict[str, Any]:
    """Return a configuration with labels."""
    return {"metadata": {"labels": values}}


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    """Return a condition."""
    return {"type": kind, "status": status, "reason": "Test", "message": "A test.", **more}


class ClusterWriterTests(ApiTestCase):
    """Requests to a cluster."""

    def put(self, value: dict[str, Any], path: str = ALPHA, **query: str) -> dict[str, Any]:
        """Replace the cluster."""
        return decoded(self.ask("PUT", path, value, **query))

    def apply(self, config: Any, manager: str = "a", path: str = ALPHA, **query: str) -> dict[str, Any]:
        """Apply *config*."""
        return decoded(self.ask("PATCH", path, config, content=APPLY, fieldManager=manager, **query))

    def owners(self) -> dict[str, dict[str, Any]]:
        """Return the fields of each manager."""
        entries = self.get(ALPHA)["metadata"].get("managedFields", [])
        return {entry["manager"]: entry["fieldsV1"] for entry in entries}

    def stored(self) -> Any:
        """Return the cluster as it is read from the store."""
        record = self.store.get("clusters", "alpha")
        assert record is not None
        return decode(record)

    def test_replace(self) -> None:
        """A replacement sets everything that it contains, and removes the rest."""
        self.add("alpha", labels={"a": "1"}, annotations={"b": "2"})
        value = self.get(ALPHA)
        value["metadata"]["labels"] = {"c": "3"}
        del value["metadata"]["annotations"]
        value["spec"]["enable"] = False
        answer = self.put(value)
        self.assertEqual(answer["metadata"]["labels"], {"c": "3"})
        self.assertEqual(answer["metadata"]["generation"], 2)
        cluster = self.stored()
        self.assertEqual(
            (cluster.enabled, dict(cluster.labels), cluster.annotations), (False, {"c": "3"}, {})
        )
        self.assertEqual(self.refused(409, "PUT", ALPHA, value).reason, "Conflict")

    def test_replace_refused(self) -> None:
        """A replacement needs a version, and the identity of the cluster."""
        self.add("alpha")
        value = self.get(ALPHA)

        def changed(**metadata: str) -> dict[str, Any]:
            return {**value, "metadata": {**value["metadata"], **metadata}}

        self.refused(422, "PUT", ALPHA, changed(resourceVersion=""))
        self.refused(409, "PUT", ALPHA, changed(resourceVersion="99"))
        self.refused(409, "PUT", ALPHA, changed(uid="other"))
        self.refused(400, "PUT", ALPHA, changed(name="beta"))
        self.refused(404, "PUT", f"{CLUSTERS}/beta", changed(name="beta"))
        self.refused(422, "PUT", ALPHA, {**value, "metadata": []})
        self.refused(409, "PUT", ALPHA, changed(resourceVersion="99"), dryRun="All")
        self.assertEqual(self.get(ALPHA), value)

    def test_replace_with_what_was_read(self) -> None:
        """Writing back the object changes nothing, read-only fields included."""
        self.apply({**labels(a="1"), "spec": {"enable": True}})
        value = self.get(ALPHA)
        self.assertEqual(self.put(value), value)

    def test_json_patch(self) -> None:
        """Operations apply to the object as it is shown; a failing test changes nothing."""
        self.add("alpha", labels={"a": "1"})
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/labels/a", "value": "1"},
            {"op": "replace", "path": "/spec/enable", "value": False},
            {"op": "add", "path": "/metadata/labels/b", "value": "2"},
        ]
        answer = decoded(self.ask("PATCH", ALPHA, patch, content=JSON))
        self.assertEqual(
            (answer["spec"]["enable"], answer["metadata"]["labels"]), (False, {"a": "1", "b": "2"})
        )
        patch[0]["value"] = "2"
        self.refused(422, "PATCH", ALPHA, patch, content=JSON)
        for code, wrong in (
            (400, {}),
            (400, b"["),
            (422, [{"op": "add", "path": "", "value": 1}]),
            (422, [{"op": "replace", "path": "/metadata/name", "value": "beta"}]),
            (409, [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]),
        ):
            self.refused(code, "PATCH", ALPHA, wrong, content=JSON)
        self.assertEqual(self.get(ALPHA), answer)

    def test_wrong_metadata(self) -> None:
        """Names and labels that Kubernetes rejects are rejected with their field."""
        path = ALPHA.rpartition("/")[0]
        for text, metadata in (
            ("metadata.name: 5: must be a string", {"name": 5}),
            ("metadata.labels: 'bad key!': must be a name", {"labels": {"bad key!": "a"}}),
            ("metadata.labels: a: 'x y': must be at most 63", {"labels": {"a": "x y"}}),
            ("metadata.labels: a: ", {"labels": {"a": "x" * 64}}),
            ("metadata.annotations: '-a': must be a name", {"annotations": {"-a": "any text"}}),
        ):
            refusal = self.refused(422, "POST", path, {"metadata": {"name": "alpha", **metadata}})
            self.assertIn(text, refusal.message)
        good = {"labels": {"example.org/a": "", "b": "x.y-z_1"}, "annotations": {"c": "any text"}}
        self.ask("POST", path, {"metadata": {"name": "alpha", **good}})

    def test_json_patch_appends(self) -> None:
        """A patch that creates a list and appends to it appends once."""
        self.add("alpha")
        base = "/metadata/ownerReferences"
        owner = {"apiVersion": "v1", "kind": "Thing", "name": "a", "uid": "1"}
        patch = [{"op": "add", "path": base, "value": []}, {"op": "add", "path": f"{base}/-", "value": owner}]
        answer = decoded(self.ask("PATCH", ALPHA, patch, content=JSON))
        self.assertEqual(answer["metadata"]["ownerReferences"], [owner])

    def test_deep_results(self) -> None:
        """Operations that nest a value repeatedly are rejected, whether or not they end."""
        self.add("alpha")
        for rounds in (2, 30):
            patch = [{"op": "add", "path": "/spec/a", "value": {"b": {}}}]
            for _ in range(rounds):
                value: Any = {}
                for _ in range(40):
                    value = {"b": value}
                patch += [
                    {"op": "add", "path": "/spec/c", "value": value},
                    {"op": "move", "from": "/spec/a", "path": f"/spec/c{'/b' * 40}/b"},
                    {"op": "move", "from": "/spec/c", "path": "/spec/a"},
                ]
            refusal = self.refused(400, "PATCH", ALPHA, patch, content=JSON)
            self.assertIn("the patched object is nested too deeply: at most 64 levels", refusal.message)

    def test_json_patch_with_unknown_fields(self) -> None:
        """Unknown fields are warned about, or rejected."""
        self.add("alpha")
        patch = [{"op": "add", "path": "/spec/foo", "value": 1}]
        outcome = self.ask("PATCH", ALPHA, patch, content=JSON)
        assert isinstance(outcome, Response)
        self.assertEqual(dict(outcome.headers)[b"Warning"], b'299 tower "unknown field \\"spec.foo\\""')
        self.refused(400, "PATCH", ALPHA, patch, content=JSON, fieldValidation="Strict")

    def test_other_patches(self) -> None:
        """A strategic merge patch is answered as for a custom resource; `force` is for applies."""
        self.add("alpha")
        refusal = self.refused(415, "PATCH", ALPHA, {}, content="application/strategic-merge-patch+json")
        self.assertIn(APPLY, str(refusal))
        self.refused(422, "PATCH", ALPHA, {}, content=MERGE, force="true")

    def test_apply_creates(self) -> None:
        """An apply creates a cluster that does not exist, and its manager owns exactly what it contains."""
        outcome = self.ask("PATCH", ALPHA, labels(a="1"), content=APPLY, fieldManager="a", dryRun="All")
        assert isinstance(outcome, Response)
        self.assertEqual((outcome.code, self.clusters.get("alpha")), (201, None))
        made = self.apply(b"metadata:\n  name: alpha\n  labels:\n    a: '1'\n    date: 2026-01-01\n")
        self.assertEqual(made["metadata"]["labels"], {"a": "1", "date": "2026-01-01"})
        self.assertEqual(self.owners(), {"a": {"f:metadata": {"f:labels": {"f:a": {}, "f:date": {}}}}})
        self.assertEqual(made["spec"]["connection"]["kubernetesAPIServerPort"], 6000)

    def test_invalid(self) -> None:
        """The details of an Invalid Status have the kind and the name, also of a cluster that is created."""
        self.add("alpha")
        spec = {"connection": {"type": "foo"}}
        ssh = {"connection": {"type": "ssh"}}
        bad = {"metadata": {"name": "bad"}, "spec": spec}
        old = {"metadata": {"name": "alpha", "resourceVersion": "1"}, "spec": spec}
        merge = "application/merge-patch+json"
        for method, path, body, more, name, field in (
            ("POST", CLUSTERS, bad, {}, "bad", "spec.connection.type"),
            (
                "PATCH",
                f"{CLUSTERS}/bad",
                bad,
                {"content": APPLY, "fieldManager": "a"},
                "bad",
                "spec.connection.type",
            ),
            ("PUT", ALPHA, old, {}, "alpha", "spec.connection.type"),
            ("PUT", ALPHA, {"spec": {}}, {}, "alpha", "metadata.resourceVersion"),
            ("PATCH", ALPHA, {"spec": spec}, {"content": merge}, "alpha", "spec.connection.type"),
            ("PATCH", ALPHA, {"spec": ssh}, {"content": merge}, "alpha", "spec.connection.type"),
            ("POST", CLUSTERS, {"metadata": {"name": "A"}}, {}, "A", "metadata.name"),
            ("POST", CLUSTERS, {"metadata": "x"}, {}, "", "metadata"),
            ("POST", CLUSTERS, {"metadata": {"name": "b"}, "spec": 5}, {}, "b", "spec"),
            ("POST", CLUSTERS, bad, {"dryRun": "x", "fieldValidation": "x"}, "bad", "fieldValidation"),
        ):
            details = status_object(self.refused(422, method, path, body, **more), "1f")["details"]
            self.assertEqual((details["kind"], details["name"]), ("Cluster", name))
            (cause,) = details["causes"]
            self.assertEqual(cause["field"], field)
            self.assertTrue(cause["message"].endswith(" (request 1f)"), cause)

    def test_apply_again(self) -> None:
        """An apply removes what it omits, keeps others' fields, and is a no-op the second time."""
        self.apply(labels(a="1", b="1"))
        self.apply(labels(c="1"), "other")
        version = self.apply(labels(b="1"))["metadata"]["resourceVersion"]
        answer = self.apply(labels(b="1"))
        self.assertEqual(answer["metadata"]["labels"], {"b": "1", "c": "1"})
        self.assertEqual(answer["metadata"]["resourceVersion"], version)

    def test_apply_conflicts(self) -> None:
        """Fields of others are a conflict, unless forced; a dry run finds it too."""
        self.apply({"spec": {"enable": True}})
        for more in ({}, {"dryRun": "All"}):
            refusal = self.refused(
                409, "PATCH", ALPHA, {"spec": {"enable": False}}, content=APPLY, fieldManager="b", **more
            )
            (cause,) = refusal.details["causes"]
            self.assertEqual((cause["reason"], cause["field"]), ("FieldManagerConflict", ".spec.enable"))
        self.apply({"spec": {"enable": False}}, "b", force="true")
        self.assertFalse(self.stored().enabled)
        self.assertEqual(list(self.owners()), ["b"])

    def test_apply_refused(self) -> None:
        """An apply needs a manager and no managed fields; an invalid result is rejected."""
        self.add("alpha")
        for code, config, query in (
            (422, labels(a="1"), {}),
            (422, labels(a="1"), {"fieldManager": "x" * 129}),
            (400, {"metadata": {"managedFields": [{}]}}, {"fieldManager": "a"}),
            (400, {"metadata": {"name": "beta"}}, {"fieldManager": "a"}),
            (409, {"metadata": {"resourceVersion": "99"}}, {"fieldManager": "a"}),
            (409, {"metadata": {"uid": "other"}}, {"fieldManager": "a"}),
            (422, {"spec": {"enable": "yes"}}, {"fieldManager": "a"}),
            (422, {"spec": {"connection": {"type": "ssh", "ssh": {"user": "x"}}}}, {"fieldManager": "a"}),
            (422, {"spec": {"connection": {"kubernetesAPIServerPort": 6009}}}, {"fieldManager": "a"}),
            (422, {"metadata": {"finalizers": ["x", "x"]}}, {"fieldManager": "a"}),
            (400, b"a: &a [x]\nb: *a\n", {"fieldManager": "a"}),
        ):
            self.refused(code, "PATCH", ALPHA, config, content=APPLY, force="1", **query)
        beta = f"{CLUSTERS}/beta"
        self.refused(404, "PATCH", beta, {"metadata": {"uid": "x"}}, content=APPLY, fieldManager="a")
        self.refused(404, "PATCH", f"{beta}/status", {}, content=APPLY, fieldManager="a")
        self.refused(415, "PATCH", ALPHA, {}, content="application/apply-patch+cbor", fieldManager="a")

    def test_managers_of_other_writes(self) -> None:
        """Creations and updates are recorded for the client's program, or the manager that it names."""
        self.ask(
            "POST", CLUSTERS, {"metadata": {"name": "alpha", "labels": {"a": "1"}}}, fieldManager="maker"
        )
        self.ask("PATCH", ALPHA, labels(b="1"), content=MERGE)
        owners = self.owners()
        self.assertEqual(owners["kubectl"], {"f:metadata": {"f:labels": {"f:b": {}}}})
        self.assertIn("f:a", owners["maker"]["f:metadata"]["f:labels"])
        self.assertIn("f:spec", owners["maker"])

    def test_managed_fields_can_be_edited(self) -> None:
        """A client may change the managers, or forget all; malformed ones are ignored."""
        self.apply(labels(a="1"))
        entry = {**self.get(ALPHA)["metadata"]["managedFields"][0], "manager": "b"}
        patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
        self.ask("PATCH", ALPHA, patch, content=JSON)
        self.assertEqual(list(self.owners()), ["b"])
        patch[0]["value"] = [{"operation": "Grow"}]
        self.ask("PATCH", ALPHA, patch, content=JSON)
        self.assertEqual(list(self.owners()), ["b"])
        patch[0]["value"] = [{}]
        self.ask("PATCH", ALPHA, patch, content=JSON)
        self.assertEqual(self.owners(), {})
        self.ask("PATCH", ALPHA, labels(z="1"), content=MERGE)
        self.assertEqual(self.owners(), {})

    def test_finalizers(self) -> None:
        """A deleted cluster stays until its last finalizer is removed, and accepts no new finalizers."""
        uid = self.add("alpha").uid
        self.apply({"metadata": {"finalizers": ["example.org/a", "example.org/b"]}})
        stream = self.watch()
        self.assertEqual(stream.taken(), [("ADDED", "alpha")])
        deleted = decoded(self.ask("DELETE", ALPHA))
        self.assertEqual(deleted["metadata"]["uid"], uid)
        first = deleted["metadata"]["deletionTimestamp"]
        self.clock.advance(60)
        again = decoded(self.ask("DELETE", ALPHA, {"propagationPolicy": "Foreground"}))
        self.assertEqual(again["metadata"]["deletionTimestamp"], first)
        more = {"metadata": {"finalizers": ["example.org/a", "example.org/b", "example.org/c"]}}
        self.refused(422, "PATCH", ALPHA, more, content=MERGE)
        fewer = {"metadata": {"finalizers": ["example.org/b"]}}
        self.ask("PATCH", ALPHA, fewer, content=MERGE)
        self.assertIsNotNone(self.clusters.get("alpha"))
        last = decoded(self.ask("PATCH", ALPHA, {"metadata": {"finalizers": None}}, content=MERGE))
        self.assertEqual(last["metadata"]["uid"], uid)
        self.assertIsNone(self.clusters.get("alpha"))
        self.assertEqual(stream.taken(), [("MODIFIED", "alpha"), ("MODIFIED", "alpha"), ("DELETED", "alpha")])

    def test_finalizers_are_limited(self) -> None:
        """Names and number of finalizers and owners are checked."""
        self.add("alpha")
        for metadata in (
            {"finalizers": "x"},
            {"finalizers": ["a b"]},
            {"finalizers": ["x" * 400]},
            {"finalizers": [f"a.org/{n}" for n in range(COUNT_LIMIT + 1)]},
            {"ownerReferences": [{"name": "x"}]},
            {"ownerReferences": [owner(f"{n}") for n in range(COUNT_LIMIT + 1)]},
            {"ownerReferences": [owner("x" * 100_000)]},
        ):
            self.refused(422, "PATCH", ALPHA, {"metadata": metadata}, content=MERGE)
            self.refused(422, "PATCH", ALPHA, {"metadata": metadata}, content=MERGE, dryRun="All")
        self.ask("PATCH", ALPHA, {"metadata": {"ownerReferences": [owner("1")]}}, content=MERGE)
        self.assertEqual(self.get(ALPHA)["metadata"]["ownerReferences"], [owner("1")])

    def test_delete_options(self) -> None:
        """Preconditions, dry runs and invalid options."""
        uid = self.add("alpha").uid
        self.refused(422, "DELETE", ALPHA, {"propagationPolicy": "Later"})
        self.refused(422, "DELETE", ALPHA, propagationPolicy="Later")
        self.refused(422, "DELETE", ALPHA, {"dryRun": ["Some"]})
        self.refused(400, "DELETE", ALPHA, {"preconditions": "x"})
        self.ask("DELETE", ALPHA, {"preconditions": {"uid": uid}}, dryRun="All")
        self.assertIsNotNone(self.clusters.get("alpha"))
        version = self.get(ALPHA)["metadata"]["resourceVersion"]
        self.ask("DELETE", ALPHA, {"preconditions": {"uid": uid, "resourceVersion": version}})
        self.assertIsNone(self.clusters.get("alpha"))

    def test_status(self) -> None:
        """Controllers set other conditions; those of Tower and the spec stay."""
        self.add("alpha")
        self.successResultOf(
            self.clusters.set_condition("alpha", "AgentAvailable", "True", "AgentConnected", "Connected.")
        )
        value = self.get(f"{ALPHA}/status")
        ours = value["status"]["conditions"][0]
        value["status"]["conditions"] = [{**ours, "status": "False"}, condition("Registered")]
        value["spec"]["enable"] = False
        answer = self.put(value, f"{ALPHA}/status")
        self.assertEqual(answer["status"]["conditions"][0], ours)
        self.assertTrue(answer["spec"]["enable"])
        self.assertEqual(answer["metadata"]["generation"], 1)
        (_, own) = answer["status"]["conditions"]
        self.assertEqual(own, condition("Registered"))
        patch = {"status": {"conditions": [condition("Done", observedGeneration=1)]}}
        answer = decoded(self.ask("PATCH", f"{ALPHA}/status", patch, content=MERGE))
        self.assertEqual(
            [each["type"] for each in answer["status"]["conditions"]], ["AgentAvailable", "Done"]
        )
        self.put(answer)
        self.assertEqual(len(self.stored().meta.conditions), 1)

    def test_status_apply(self) -> None:
        """Each manager applies other conditions; those of Tower are a conflict, or stay if forced."""
        self.add("alpha")
        self.successResultOf(
            self.clusters.set_condition("alpha", "AgentAvailable", "True", "AgentConnected", "Connected.")
        )
        path = f"{ALPHA}/status"
        self.apply({"status": {"conditions": [condition("A")]}}, "a", path)
        self.apply({"status": {"conditions": [condition("B")]}}, "b", path)
        wrong = {"status": {"conditions": [condition("B"), condition("AgentAvailable", "False")]}}
        refusal = self.refused(409, "PATCH", path, wrong, content=APPLY, fieldManager="b")
        self.assertIn('"tower-proxy" with subresource "status"', str(refusal))
        self.apply(wrong, "b", path, force="true")
        answer = self.apply({}, "a", path)
        shown = {each["type"]: each["status"] for each in answer["status"]["conditions"]}
        self.assertEqual(shown, {"AgentAvailable": "True", "B": "True"})
        self.assertEqual(list(self.owners()), ["b"])

    def test_status_refused(self) -> None:
        """Malformed and too many conditions are rejected."""
        self.add("alpha")
        for conditions in (
            "x",
            ["x"],
            [{"status": "True"}],
            [condition("a b")],
            [condition("A", "Perhaps")],
            [condition("A", observedGeneration="1")],
            [condition("A", lastTransitionTime="yesterday")],
            [condition("A", lastTransitionTime="2026-13-01T00:00:00Z")],
            [condition("A", message="x" * 100_000)],
            [condition(f"A{n}") for n in range(COUNT_LIMIT + 1)],
        ):
            patch = {"status": {"conditions": conditions}}
            self.refused(422, "PATCH", f"{ALPHA}/status", patch, content=MERGE)

    def test_many_entries(self) -> None:
        """Objects with many fields are rejected before their owners are computed."""
        many = {f"l{number}": "x" for number in range(ENTRY_LIMIT + 1)}
        conditions = {"status": {"conditions": [condition(f"A{n}") for n in range(ENTRY_LIMIT + 1)]}}
        for config in ({"metadata": {"labels": many}}, {"metadata": {"annotations": many}}, conditions):
            self.refused(422, "PATCH", ALPHA, config, content=APPLY, fieldManager="a")
            self.refused(
                422,
                "POST",
                CLUSTERS,
                {**config, "metadata": {"name": "alpha", **config.get("metadata", {})}},
            )
        self.add("alpha")
        self.refused(422, "PATCH", ALPHA, {"metadata": {"labels": many}}, content=MERGE)
        patch = [{"op": "add", "path": "/metadata/labels", "value": many}]
        self.refused(422, "PATCH", ALPHA, patch, content=JSON)

    def test_older_record(self) -> None:
        """A record without the newer fields has their defaults; that of a plain cluster has none of them."""
        self.add("alpha")
        record = self.store.get("clusters", "alpha")
        assert record is not None
        self.assertNotIn("meta", record.value)
        self.assertEqual(self.get(ALPHA)["metadata"]["generation"], 1)


def owner(uid: str) -> dict[str, Any]:
    """Return an owner reference."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid, "controller": True}

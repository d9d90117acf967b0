"""The same writes to Tower and to a real API server with a CRD of the same schema: results are equal."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from attrs import frozen

from tests.integration import harness
from tests.integration.member import member
from tests.integration.person import Answer, Person
from tests.integration.programs import wait_for
from tower.web.api.fields.kinds import CLUSTER
from tower.web.api.fields.sets import from_tree

GROUP = "cluster.kubesphere.io"
CLUSTERS = f"/apis/{GROUP}/v1alpha1/clusters"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WHEN = "2026-01-01T00:00:00Z"
STEPS = 120
SEEDS = (1, 2, 5)

#: kube-apiserver keeps these containers, with their owners, even if they are empty; Tower omits them.
CONTAINERS = (".metadata.annotations", ".metadata.finalizers", ".metadata.labels")

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def crd() -> dict[str, Any]:
    """Return the CRD with the schema and the defaults of Tower's clusters."""
    schema = copy.deepcopy(dict(CLUSTER))
    schema["properties"]["metadata"] = {"type": "object"}
    spec = schema["properties"]["spec"]
    spec["default"] = {}
    spec["properties"]["enable"]["default"] = True
    spec["properties"]["connection"]["default"] = {}
    spec["properties"]["connection"]["properties"]["type"]["default"] = "proxy"
    names = {"plural": "clusters", "singular": "cluster", "kind": "Cluster"}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"clusters.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


@frozen
class Step:
    """One request; *edit* changes the current object for a replacement."""

    method: str
    body: Any
    content: str = JSON
    subresource: str = ""
    query: str = "fieldManager=a"


class DifferentialTests(harness.TowerTestCase):
    """Random writes by several managers."""

    timeout = 600
    maxDiff = None

    def setUp(self) -> None:
        """Start Tower, and give the real API server the CRD."""
        super().setUp()
        admin = self.tower.state / "admin.kubeconfig"
        wait_for("the administrator's kubeconfig", admin.exists)
        real = Person(member().admin)
        self.sides = {"tower": Person(admin), "real": real}
        self.addCleanup(self.ask, real, "DELETE", f"{CRDS}/clusters.{GROUP}")
        answer = self.ask(real, "POST", CRDS, crd())
        self.assertEqual(answer.status, 201, answer.body)
        wait_for("the CRD", lambda: self.ask(real, "GET", CLUSTERS).status == 200)
        wait_for("its schema", lambda: GROUP.encode() in self.ask(real, "GET", "/openapi/v3").body)

    def ask(self, person: Person, method: str, path: str, body: Any = None, content: str = JSON) -> Answer:
        """Send one request."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content, "User-Agent": "tester/1"}
        return person.request(method, path, body=raw, headers=headers)

    def both(self, name: str, step: Step) -> None:
        """Make one step on both sides, and compare."""
        found = {}
        for side, person in self.sides.items():
            path = f"{CLUSTERS}/{name}" if step.method != "POST" else CLUSTERS
            answer = self.replace(person, path, step) if step.method == "PUT" else None
            path += f"/{step.subresource}" if step.subresource else ""
            answer = answer or self.ask(person, step.method, f"{path}?{step.query}", step.body, step.content)
            found[side] = seen(answer)
            if side == "real" and found[side] == (409, "Conflict", []) and found["tower"] != found[side]:
                found[side] = seen(
                    self.ask(person, step.method, f"{path}?{step.query}&force=true", step.body, step.content)
                )
        self.assertEqual(found["tower"], found["real"], step)

    def replace(self, person: Person, path: str, step: Step) -> Answer:
        """Replace the current object, again if Tower itself has changed a condition meanwhile."""
        for _ in range(5):
            value = changed(json.loads(self.ask(person, "GET", path).body), step.body)
            answer = self.ask(person, "PUT", f"{path}?{step.query}", value)
            if answer.status != 409:
                break
        return answer

    def walk(self, seed: int) -> None:
        """Make random steps with one cluster."""
        choose = random.Random(seed)
        name = f"alpha-{seed}"
        first = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Cluster", **content(choose)}
        first["metadata"] = {**first.get("metadata", {}), "name": name}
        if seed % 2:
            self.both(name, Step("POST", first))
        else:
            self.both(name, Step("PATCH", first, APPLY, query="fieldManager=b"))
        for _ in range(STEPS // len(SEEDS)):
            self.both(name, step(choose, name))
        finalizers = {"metadata": {"finalizers": ["example.org/f"]}}
        self.both(name, Step("PATCH", finalizers, MERGE))
        self.both(name, Step("DELETE", None))
        self.both(
            name, Step("PATCH", {"metadata": {"finalizers": ["example.org/f", "example.org/h"]}}, MERGE)
        )
        self.both(name, Step("PATCH", {"metadata": {"finalizers": None}}, MERGE))
        self.both(name, Step("PATCH", {"spec": {"enable": True}}, MERGE))

    def test_random_writes(self) -> None:
        """Codes, objects, conflicts and managed fields are those of kube-apiserver."""
        for seed in SEEDS:
            self.walk(seed)

    def test_timeouts(self) -> None:
        """The parameter timeout is Go's notation; a watch ignores it."""
        for value in ("5s", "0", "-1s", "100h", "x", "10", "1d", "1s2", ".s", "%2B1m", "1h2m3.5s", "1%20s"):
            for query in (f"timeout={value}", f"timeout={value}&timeoutSeconds=1&watch=true"):
                found = {}
                for side, person in self.sides.items():
                    answer = self.ask(person, "GET", f"{CLUSTERS}?{query}")
                    message = json.loads(answer.body)["message"] if answer.status >= 400 else ""
                    found[side] = answer.status, message
                status, text = found["real"]
                self.assertEqual(found["tower"][0], status, (query, found))
                self.assertTrue(found["tower"][1].startswith(text), (query, found))


def content(choose: random.Random) -> dict[str, Any]:
    """Return a random part of an object."""
    metadata: dict[str, Any] = {}
    if choose.random() < 0.6:
        metadata["labels"] = {key: choose.choice("12") for key in choose.sample("xyz", choose.randint(1, 3))}
    if choose.random() < 0.3:
        metadata["annotations"] = {"n": choose.choice("12")}
    if choose.random() < 0.3:
        metadata["finalizers"] = [f"example.org/{key}" for key in choose.sample("fg", choose.randint(1, 2))]
    found: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if choose.random() < 0.4:
        found["spec"] = {"enable": choose.random() < 0.5}
        if choose.random() < 0.5:
            found["spec"]["connection"] = {"type": "proxy"}
    return found


def conditions(choose: random.Random) -> dict[str, Any]:
    """Return a random status."""
    found = [
        {
            "type": kind,
            "status": choose.choice(("True", "False")),
            "reason": choose.choice(("One", "Two")),
            "message": "",
            "lastTransitionTime": WHEN,
        }
        for kind in choose.sample("PQR", choose.randint(1, 3))
    ]
    return {"status": {"conditions": found}}


def step(choose: random.Random, name: str) -> Step:
    """Return a random step."""
    query = f"fieldManager={choose.choice('abc')}"
    head = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Cluster"}
    kind = choose.choices(
        ("apply", "put", "merge", "json", "status-apply", "status-merge", "reset"), (10, 4, 4, 4, 5, 3, 0.3)
    )[0]
    if kind in ("apply", "status-apply"):
        part = content(choose) if kind == "apply" else conditions(choose)
        body = {**head, **part, "metadata": {**part.get("metadata", {}), "name": name}}
        force = "&force=true" if choose.random() < 0.4 else ""
        return Step("PATCH", body, APPLY, "" if kind == "apply" else "status", query + force)
    if kind == "put":
        return Step("PUT", content(choose), query=query)
    if kind == "status-merge":
        return Step("PATCH", conditions(choose), MERGE, "status", query)
    if kind == "reset":
        return Step("PATCH", {"metadata": {"managedFields": [{}]}}, MERGE, query=query)
    if kind == "merge":
        body = content(choose)
        if choose.random() < 0.5:
            body.setdefault("metadata", {})["labels"] = {choose.choice("xyz"): None, "w": "1"}
        return Step("PATCH", body, MERGE, query=query)
    operation = choose.choice(("add", "replace", "remove", "test"))
    change = {"op": operation, "path": f"/metadata/labels/{choose.choice('xyz')}"}
    if operation != "remove":
        change["value"] = choose.choice("12")
    return Step("PATCH", [change], JSON_PATCH, query=query)


def changed(value: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return the object *value* with the parts in *part* replaced."""
    metadata = {**value["metadata"], **part.get("metadata", {})}
    return {**value, "metadata": metadata, "spec": {**value["spec"], **part.get("spec", {})}}


def seen(answer: Answer) -> Any:
    """Return the comparable part of an answer."""
    value = json.loads(answer.body)
    if value["kind"] == "Status":
        causes = value.get("details", {}).get("causes", [])
        fields = {each["field"] for each in causes if each["reason"] == "FieldManagerConflict"}
        return answer.status, value.get("reason", ""), sorted(fields.difference(CONTAINERS))
    metadata = value["metadata"]
    spec = copy.deepcopy(value["spec"])
    for name in ("kubernetesAPIServerPort", "kubernetesAPIEndpoint"):
        spec["connection"].pop(name, None)
    status = value.get("status", {}).get("conditions", [])
    managers = [
        (entry["manager"], entry["operation"], entry.get("subresource", ""), owned)
        for entry in metadata.get("managedFields", [])
        if (owned := fields_of(entry["fieldsV1"]))
    ]
    return {
        "code": answer.status,
        "labels": metadata.get("labels", {}),
        "annotations": metadata.get("annotations", {}),
        "finalizers": sorted(metadata.get("finalizers", [])),
        "generation": metadata["generation"],
        "deleted": "deletionTimestamp" in metadata,
        "spec": spec,
        "conditions": {each["type"]: each for each in status if each["type"] in "PQR"},
        "managers": sorted(managers, key=lambda each: each[:3]),
    }


def fields_of(tree: dict[str, Any]) -> list[str]:
    """Return the paths in `fieldsV1`, without the port, and without the containers of metadata and status.

    kube-apiserver keeps empty containers; Tower omits them.
    """
    shown = ["/".join(path) for path in from_tree(tree) if len(path) > 2 or path[0] == "f:spec"]
    return sorted(path for path in shown if not path.endswith("kubernetesAPIServerPort"))

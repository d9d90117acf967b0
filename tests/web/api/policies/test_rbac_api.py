"""Tests of the group `rbac.authorization.k8s.io` of Tower's own API."""

from __future__ import annotations

from typing import Any

from tests.fakes.api import TABLE, ApiTestCase, Stream, decoded
from tests.fakes.protobuf import PROTOBUF, message
from tower.kube.access.rbac import RoleReference
from tower.web.api.policies.rbac_form import PROBLEM_LIMIT
from tower.web.outcome import StreamingResponse

PATH = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
CLUSTERS = {"verbs": ["get"], "apiGroups": ["cluster.kubesphere.io"], "resources": ["clusters"]}
JANE = ("jane", ("dev",))
ADMIN = ("root", ("tower:admins",))


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a ClusterRole."""
    value = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    return {**value, "rules": list(rules), **more}


def binding(
    name: str, of: str, user: str = "jane", annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return a ClusterRoleBinding."""
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "annotations": annotations or {}},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": of},
        "subjects": [{"kind": "User", "name": user}],
    }


class RbacApiTests(ApiTestCase):
    """Roles and bindings as kubectl reads and writes them."""

    def setUp(self) -> None:
        """Start with the default roles."""
        super().setUp()
        self.add_default_roles()

    def create(self, plural: str, value: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        return decoded(self.ask("POST", f"{PATH}/{plural}", value))

    def names(self, path: str, **query: str) -> list[str]:
        """Return the names in a list."""
        return [each["metadata"]["name"] for each in self.get(f"{PATH}/{path}", **query)["items"]]

    def test_life(self) -> None:
        """A role is created, read, replaced, patched and removed."""
        made = self.create("clusterroles", role("ops", PODS))
        self.assertEqual(made["rules"], [PODS])
        self.assertEqual(self.get(f"{PATH}/clusterroles/ops"), made)
        made["rules"] = [CLUSTERS]
        replaced = decoded(self.ask("PUT", f"{PATH}/clusterroles/ops", made))
        self.assertEqual(replaced["rules"], [CLUSTERS])
        self.refused(409, "PUT", f"{PATH}/clusterroles/ops", made)
        strategic = "application/strategic-merge-patch+json"
        patch = {"metadata": {"labels": {"a": "b"}}, "rules": [PODS]}
        patched = decoded(self.ask("PATCH", f"{PATH}/clusterroles/ops", patch, content=strategic))
        self.assertEqual((patched["rules"], patched["metadata"]["labels"]), ([PODS], {"a": "b"}))
        self.refused(400, "PATCH", f"{PATH}/clusterroles/ops", {"$patch": "delete"}, content=strategic)
        self.assertEqual(self.names("clusterroles", labelSelector="a=b"), ["ops"])
        deleted = decoded(self.ask("DELETE", f"{PATH}/clusterroles/ops"))
        self.assertEqual(deleted["details"]["kind"], "clusterroles")
        error = self.refused(404, "GET", f"{PATH}/clusterroles/ops")
        self.assertEqual(error.message, f'clusterroles.{GROUP} "ops" not found')

    def test_apply(self) -> None:
        """Server-side apply records the owner of the fields."""
        content = "application/apply-patch+yaml"
        value = role("ops", PODS)
        made = decoded(
            self.ask("PATCH", f"{PATH}/clusterroles/ops", value, content=content, fieldManager="kubectl")
        )
        (manager,) = made["metadata"]["managedFields"]
        self.assertEqual((manager["manager"], manager["apiVersion"]), ("kubectl", f"{GROUP}/v1"))

    def test_namespaces(self) -> None:
        """Roles of a namespace are apart from those of others, and lists may have all."""
        value = {"kind": "Role", "metadata": {"name": "r"}, "rules": [PODS]}
        for namespace in ("a", "b"):
            made = decoded(self.ask("POST", f"{PATH}/namespaces/{namespace}/roles", value))
            self.assertEqual(made["metadata"]["namespace"], namespace)
        self.assertEqual(self.names("roles"), ["r", "r"])
        self.assertEqual(self.names("namespaces/a/roles"), ["r"])
        self.ask("DELETE", f"{PATH}/namespaces/a/roles/r")
        self.assertEqual(self.names("namespaces/a/roles"), [])
        self.assertEqual(self.names("namespaces/b/roles"), ["r"])
        self.refused(405, "POST", f"{PATH}/roles", value)
        wrong = {**value, "metadata": {"name": "r", "namespace": "c"}}
        self.refused(400, "POST", f"{PATH}/namespaces/b/roles", wrong)
        for path in ("roles/r", "namespaces/a/clusterroles", "nothing"):
            self.refused(404, "GET", f"{PATH}/{path}")

    def test_delete_all(self) -> None:
        """A collection is deleted, without the objects that the selectors do not match; not in a dry run."""
        for name in ("one", "two"):
            self.create("clusterroles", role(name, metadata={"name": name, "labels": {"name": name}}))
        for body, query in (({"dryRun": ["All"]}, {}), (None, {"dryRun": "All"})):
            self.ask("DELETE", f"{PATH}/clusterroles", body, labelSelector="name", **query)
            self.assertEqual(self.names("clusterroles", labelSelector="name"), ["one", "two"])
        self.refused(422, "DELETE", f"{PATH}/clusterroles", {"dryRun": ["Some"]}, labelSelector="name")
        self.ask("DELETE", f"{PATH}/clusterroles", labelSelector="name=one")
        self.assertEqual(self.names("clusterroles", labelSelector="name"), ["two"])

    def test_tables_and_watches(self) -> None:
        """Kubectl shows bindings with their roles, and follows them."""
        outcome = self.ask("GET", f"{PATH}/clusterrolebindings", watch="1", fieldSelector="metadata.name=b")
        assert isinstance(outcome, StreamingResponse)
        stream = Stream()
        outcome.start(stream)
        self.create("clusterrolebindings", binding("b", "tower:viewer"))
        self.create("clusterroles", role("b"))
        self.assertEqual(stream.taken(), [("ADDED", "b")])
        shown = decoded(self.ask("GET", f"{PATH}/clusterrolebindings/b", accept=TABLE))
        self.assertEqual(shown["rows"][0]["cells"][:2], ["b", "ClusterRole/tower:viewer"])
        self.assertEqual(shown["rows"][0]["cells"][3:], ["jane", "", ""])

    def test_wrong_objects(self) -> None:
        """Wrong objects are rejected with kube-apiserver's texts and causes."""
        error = self.refused(422, "POST", f"{PATH}/clusterroles", role("r", {"verbs": ["get"]}))
        self.assertTrue(error.message.startswith(f'ClusterRole.{GROUP} "r" is invalid: '), error.message)
        self.assertEqual(error.details["causes"][0]["field"], "rules[0].apiGroups")
        self.create("clusterrolebindings", binding("b", "view"))
        error = self.refused(422, "PUT", f"{PATH}/clusterrolebindings/b", binding("b", "edit"))
        self.assertIn("cannot change roleRef", error.message)
        wrong: tuple[Any, ...] = (["x"], [{"verbs": "get"}], [{"verbs": [1]}], [None], {})
        for rules in wrong:
            self.refused(400, "POST", f"{PATH}/clusterroles", {**role("r"), "rules": rules})
        error = self.refused(400, "POST", f"{PATH}/clusterroles", role("r", {**PODS, "name": ["x"]}))
        self.assertIn('unknown field "rules[0].name"', error.message)
        self.refused(409, "POST", f"{PATH}/clusterrolebindings", binding("b", "view"))

    def test_clusters_of_bindings(self) -> None:
        """Entries of the annotation that name no cluster are rejected, also for administrators."""
        self.user = ADMIN
        path, key = f"{PATH}/clusterrolebindings", "tower.kubesphere.io/clusters"
        wrong = binding("b", "view", annotations={key: "alpha,,Bad Name,@Tower"})
        error = self.refused(422, "POST", path, wrong)
        causes = error.details["causes"]
        self.assertEqual({each["field"] for each in causes}, {f"metadata.annotations[{key}]"})
        for text in ('""', '"Bad Name"', '"@Tower"'):
            self.assertIn(f"Invalid value: {text}: must be the name of a cluster, a pattern", error.message)
        self.assertEqual(len(causes), 3)
        self.create("clusterrolebindings", binding("b", "view", annotations={key: "alpha, test-*,@tower"}))
        patch = {"metadata": {"annotations": {key: "Alpha"}}}
        merge = "application/merge-patch+json"
        self.refused(422, "PATCH", f"{path}/b", patch, content=merge)
        self.refused(422, "PATCH", f"{path}/b", patch, content=merge, dryRun="All")
        long = binding("c", "view", annotations={key: ",A" * 10_000})
        self.assertEqual(len(self.refused(422, "POST", path, long).details["causes"]), PROBLEM_LIMIT)

    def test_huge_role(self) -> None:
        """A role with millions of combinations is rejected at once, unless the user has all these rights."""
        grants = {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"]}
        here = {"tower.kubesphere.io/clusters": "@tower"}
        self.create("clusterroles", role("granter", {**grants, "verbs": ["create"]}))
        self.create("clusterrolebindings", binding("granter", "granter", annotations=here))
        many = list(map(str, range(150)))
        huge = role("huge", {"verbs": many, "apiGroups": many, "resources": many})
        self.user = JANE
        error = self.refused(422, "POST", f"{PATH}/clusterroles", huge)
        self.assertIn("comparisons of verbs, API groups, resources and names", error.message)
        self.user = ADMIN
        self.create("clusterroles", huge)
        self.user = JANE
        self.refused(422, "POST", f"{PATH}/clusterrolebindings", binding("b", "huge", annotations=here))
        self.user = ADMIN
        self.create("clusterrolebindings", binding("all", "tower:admin", annotations=here))
        self.user = JANE
        self.create("clusterroles", {**huge, "metadata": {"name": "other"}})

    def test_escalation(self) -> None:
        """A user grants only rights that the user has, where the binding applies."""
        grants = {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"]}
        here = {"tower.kubesphere.io/clusters": "@tower"}
        self.create("clusterroles", role("granter", grants, CLUSTERS, metadata={"name": "granter"}))
        self.create("clusterroles", role("reader", CLUSTERS))
        self.create("clusterroles", role("pods", PODS))
        self.create("clusterrolebindings", binding("granter", "granter", annotations=here))
        grants["verbs"].remove("*")
        grants["verbs"] += ["create", "update", "patch", "delete"]
        self.ask("PUT", f"{PATH}/clusterroles/granter", role("granter", grants, CLUSTERS))
        self.user = JANE
        self.create("clusterrolebindings", binding("r", "reader", "joe", here))
        error = self.refused(403, "POST", f"{PATH}/clusterrolebindings", binding("p", "pods", "joe", here))
        self.assertTrue(
            error.message.startswith(
                f'clusterrolebindings.{GROUP} "p" is forbidden: user "jane" (groups=["dev" '
                '"system:authenticated"]) is attempting to grant RBAC permissions not currently held:'
            ),
            error.message,
        )
        # the right is held at Tower's own API only, so it cannot be granted in clusters
        self.refused(403, "POST", f"{PATH}/clusterrolebindings", binding("c", "reader", "joe"))
        self.refused(403, "POST", f"{PATH}/clusterrolebindings", binding("a", "tower:admin", "joe"))
        self.refused(403, "POST", f"{PATH}/clusterroles", role("more", PODS))
        self.create("clusterroles", role("same", CLUSTERS))
        everything = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
        self.refused(403, "POST", f"{PATH}/clusterroles", {**role("all"), **everything})
        self.refused(404, "POST", f"{PATH}/clusterrolebindings", binding("n", "none", "joe", here))
        # the role is bound for others in clusters, where jane has no rights
        self.user = ADMIN
        self.create("clusterroles", role("used", CLUSTERS))
        self.create("clusterrolebindings", binding("u", "used", "joe", {"tower.kubesphere.io/clusters": "*"}))
        self.user = JANE
        self.refused(403, "PUT", f"{PATH}/clusterroles/used", role("used", CLUSTERS, CLUSTERS))
        self.user = ADMIN
        self.create("clusterroles", role("binder", {**grants, "verbs": ["bind", "escalate"]}))
        self.create("clusterrolebindings", binding("binder", "binder", annotations=here))
        self.user = JANE
        self.create("clusterrolebindings", binding("c", "reader", "joe"))
        self.create("clusterroles", role("more", PODS))

    def test_protobuf(self) -> None:
        """The protobuf of `kubectl create clusterrole` and `create clusterrolebinding` is read."""
        meta = message(f1="made") + message(f11=message(f1="team", f2="sea"))
        rule = message(f1="get") + message(f1="list") + message(f2="") + message(f3="pods")
        self.ask(
            "POST", f"{PATH}/clusterroles", packed("ClusterRole", meta, message(f2=rule)), content=PROTOBUF
        )
        made = self.get(f"{PATH}/clusterroles/made")
        expected = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
        self.assertEqual((made["rules"], made["metadata"]["labels"]), ([expected], {"team": "sea"}))
        subjects = message(f2=message(f1="Group", f2=GROUP, f3="dev"))
        reference = message(f3=message(f1=GROUP, f2="ClusterRole", f3="made"))
        raw = packed("ClusterRoleBinding", message(f1="made"), subjects + reference)
        self.ask("POST", f"{PATH}/clusterrolebindings", raw, content=PROTOBUF)
        made = self.get(f"{PATH}/clusterrolebindings/made")
        self.assertEqual(made["subjects"], [{"kind": "Group", "apiGroup": GROUP, "name": "dev"}])
        self.assertEqual(made["roleRef"]["name"], "made")

    def test_default_roles(self) -> None:
        """The default roles exist, and `admin` has the rules of those that are aggregated."""
        names = self.names("clusterroles")
        for name in ("admin", "edit", "view", "cluster-admin", "tower:viewer", "tower:admin"):
            self.assertIn(name, names)
        rules = self.rights.rbac.index.rules_of(role_reference("admin"), "")
        self.assertGreater(len(rules), 20)


def packed(kind: str, meta: bytes, rest: bytes) -> bytes:
    """Return an object as kubectl sends it in protobuf."""
    of = message(f1=f"{GROUP}/v1", f2=kind)
    return b"k8s\x00" + message(f1=of, f2=message(f1=meta) + rest, f3="", f4="")


def role_reference(name: str) -> Any:
    """Return a reference to a ClusterRole."""
    return RoleReference("ClusterRole", name)

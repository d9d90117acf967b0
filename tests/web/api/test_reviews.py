"""Reviews of the user's own identity and rights."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.fakes.api import ApiTestCase, decoded
from tests.fakes.protobuf import PROTOBUF, message
from tower.clusters.policies.rbac_object import CLUSTER_ROLE_BINDING
from tower.kube.access.rbac_validation import with_defaults
from tower.kube.status import StatusError
from tower.web.api.calls.call import Call

AUTHENTICATION = "/apis/authentication.k8s.io"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


def review(kind: str, group: str, spec: bytes) -> bytes:
    """Return a review as kubectl sends it."""
    meta = message(f1=f"{group}/v1", f2=kind)
    return b"k8s\x00" + message(f1=meta, f2=message(f1=b"", f2=spec), f3="", f4="")


class ReviewsTests(ApiTestCase):
    """The requests of `kubectl auth`."""

    def can(self, **attributes: str) -> bool:
        """Return whether an operation on a resource is allowed."""
        body = {"spec": {"resourceAttributes": attributes}}
        answer = decoded(self.ask("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", body))
        return bool(answer["status"]["allowed"])

    def test_who(self) -> None:
        """The answer names the user and the groups, in the requested version."""
        for version in ("v1", "v1beta1"):
            answer = decoded(self.ask("POST", f"{AUTHENTICATION}/{version}/selfsubjectreviews", {}))
            self.assertEqual(answer["apiVersion"], f"authentication.k8s.io/{version}")
            groups = ["tower:admins", "system:authenticated"]
            self.assertEqual(answer["status"], {"userInfo": {"username": "jane", "groups": groups}})

    def test_who_by_another_method(self) -> None:
        """The answer has the uid and the extra that another method of authentication found."""
        extra = (("example.org/team", ("sea", "air")),)
        path = tuple(f"{AUTHENTICATION}/v1/selfsubjectreviews".split("/")[1:])
        call = Call("POST", path, user="jane", groups=("dev",), uid="7", extra=extra)
        outcome = self.successResultOf(Deferred.fromCoroutine(self.api.answer(call)))
        expected: dict[str, Any] = {"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"]}
        expected["extra"] = {"example.org/team": ["sea", "air"]}
        self.assertEqual(decoded(outcome)["status"]["userInfo"], expected)

    def test_access(self) -> None:
        """An operation is allowed if Tower's API supports it."""
        group = "cluster.kubesphere.io"
        self.assertTrue(self.can(group=group, resource="clusters", verb="delete"))
        self.assertTrue(self.can(group=group, resource="clusters", subresource="status", verb="patch"))
        self.assertTrue(self.can(group="*", resource="*", verb="*"))
        self.assertTrue(self.can(resource="events", verb="list", namespace="default"))
        self.assertFalse(self.can(resource="pods", verb="list"))
        self.assertFalse(self.can(group=group, resource="clusters", verb="deletecollection"))
        for verb, allowed in (("get", True), ("post", False)):
            body = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": verb}}}
            answer = decoded(self.ask("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", body))
            self.assertEqual(answer["status"]["allowed"], allowed)

    def test_rules(self) -> None:
        """The rules list the resources with their verbs."""
        answer = decoded(
            self.ask("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
        )
        resources = {rule["resources"][0]: rule["verbs"] for rule in answer["status"]["resourceRules"]}
        self.assertEqual(resources["credentials"], ["delete", "get", "list"])

    def test_roles(self) -> None:
        """Others may do what their roles allow."""
        self.add_default_roles()
        self.user = ("joe", ())
        self.assertFalse(self.can(group="cluster.kubesphere.io", resource="clusters", verb="list"))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tower:viewer"}
        body = {"roleRef": role, "subjects": [{"kind": "User", "name": "joe"}]}
        item = self.rbac_objects.new(CLUSTER_ROLE_BINDING, "joe", with_defaults(body))
        self.successResultOf(Deferred.fromCoroutine(self.rbac_objects.of(item.kind).add(item)))
        self.assertTrue(self.can(group="cluster.kubesphere.io", resource="clusters", verb="list"))
        self.assertFalse(self.can(group="cluster.kubesphere.io", resource="clusters", verb="delete"))
        path, spec = f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
        status = decoded(self.ask("POST", path, spec))["status"]
        self.assertIn(
            ["clusters", "clusters/status"], [each["resources"][:2] for each in status["resourceRules"]]
        )
        self.assertEqual(self.refused(400, "POST", path, {}).message, "no namespace on request")

    def test_protobuf(self) -> None:
        """The protobuf of kubectl has the same answers."""
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        group = "authorization.k8s.io"
        for resource, allowed in (("clusters", True), ("pods", False)):
            attributes = message(f2="list", f3="cluster.kubesphere.io", f5=resource)
            raw = review("SelfSubjectAccessReview", group, message(f1=attributes))
            answer = decoded(self.ask("POST", path, raw, content=PROTOBUF))
            self.assertEqual(answer["status"]["allowed"], allowed)
            self.assertEqual(answer["spec"]["resourceAttributes"]["resource"], resource)
        raw = review("SelfSubjectReview", "authentication.k8s.io", b"")
        answer = decoded(self.ask("POST", f"{AUTHENTICATION}/v1/selfsubjectreviews", raw, content=PROTOBUF))
        self.assertEqual(answer["status"]["userInfo"]["username"], "jane")

    def test_malformed_protobuf(self) -> None:
        """Each prefix of a review, and other messages, are rejected or read without an error."""
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        attributes = message(f2="list", f5="clusters")
        raw = review("SelfSubjectAccessReview", "authorization.k8s.io", message(f1=attributes))
        bad: list[bytes] = [raw[:length] for length in range(4, len(raw) - 6)]
        bad += [b"x", b"k8s\x00\xff", b"k8s\x00" + b"\xff" * 20, b"k8s\x00\x0b", b"k8s\x00\x0a\x02\x0a\x00"]
        bad.append(review("Pod", "authorization.k8s.io", b""))
        bad.append(review("SelfSubjectAccessReview", "authorization.k8s.io", b"\x0a\x03\x12\x01\xff"))
        for body in bad:
            self.assertIn(self.code(path, body), (400, 422), body)

    def code(self, path: str, body: bytes) -> int:
        """Return the code of the refusal."""
        try:
            self.ask("POST", path, body, content=PROTOBUF)
        except StatusError as e:
            return e.code
        return 201

    def test_refused(self) -> None:
        """Other methods, kinds and resources, and reviews without attributes."""
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        both: dict[str, Any] = {"resourceAttributes": {}, "nonResourceAttributes": {}}
        self.refused(405, "GET", path)
        self.refused(404, "POST", f"{AUTHORIZATION}/subjectaccessreviews", {})
        self.refused(404, "POST", f"{path}/x", {})
        self.refused(400, "POST", path, {"kind": "Pod"})
        self.refused(400, "POST", path, {"spec": "x"})
        self.refused(400, "POST", path, {"metadata": "x"})
        self.refused(422, "POST", path, {"spec": both})
        self.refused(422, "POST", path, {})

    def test_invalid_access(self) -> None:
        """An invalid question has kube-apiserver's errors, not the answer to another question."""
        path, attributes = f"{AUTHORIZATION}/selfsubjectaccessreviews", "spec.resourceAttributes"
        expressions: list[Any] = [{"key": "a", "operator": "In", "values": ["b"]}]
        one_of = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be"
        for more, text in (
            (None, f"{attributes}: {one_of} specified"),
            ({"fieldSelector": {}}, f"{attributes}.fieldSelector.requirements: Required value: when "),
            (
                {"labelSelector": {"rawSelector": "a=b", "requirements": expressions}},
                f'{attributes}.labelSelector.rawSelector: Invalid value: "a=b": may not specified at the',
            ),
        ):
            given = {"verb": "list", "resource": "roles"}
            spec = {} if more is None else {"resourceAttributes": {**given, **more}}
            refusal = self.refused(422, "POST", path, {"spec": spec})
            self.assertIn(f'.authorization.k8s.io "" is invalid: {text}', refusal.message)
            self.assertTrue(text.startswith(refusal.details["causes"][0]["field"]))
        good = {"nonResourceAttributes": {"verb": "get", "path": "/"}}
        refusal = self.refused(422, "POST", path, {"metadata": {"name": "x"}, "spec": good})
        self.assertIn('metadata: Invalid value: {"name":"x"}: must be empty', refusal.message)
        self.ask("POST", path, {"metadata": {"creationTimestamp": None, "namespace": "x"}, "spec": good})
        for wrong in ("x", {"fieldSelector": "x"}, {"labelSelector": {"rawSelector": 5}}):
            self.refused(400, "POST", path, {"spec": {"resourceAttributes": wrong}})

    def test_options(self) -> None:
        """Parameters with invalid values are rejected, as in kube-apiserver."""
        path = f"{AUTHENTICATION}/v1/selfsubjectreviews"
        self.ask("POST", path, {}, dryRun="All", fieldValidation="Strict")
        refusal = self.refused(422, "POST", path, {}, dryRun="Some")
        self.assertIn(
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]', refusal.message
        )
        refusal = self.refused(422, "POST", path, {}, fieldValidation="Foo")
        self.assertIn(
            'fieldValidation: Unsupported value: "Foo": supported values: "", "Ignore"', refusal.message
        )

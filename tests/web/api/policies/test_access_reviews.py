"""Tests of `tower.web.api.policies.access_reviews`; see also `test_policies_api`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from tests.fakes.api import BASE, ApiTestCase, decoded
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import NO_OPINION, Decision, Ruling
from tower.web.access.authorization.decision_cache import DecisionCache
from tower.web.access.authorization.mode_filter import ModeAuthorization
from tower.web.api.policies.access_reviews import CREDENTIAL_LIMIT

EXEC = "/api/v1/namespaces/d/pods/p/exec"


class Readers:
    """Allows the group dev to get and list."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Return the decision."""
        is_allowed = "dev" in attributes.user.groups and attributes.request.verb in ("get", "list")
        return Decision(Ruling.ALLOW) if is_allowed else NO_OPINION


class ReviewTestCase(ApiTestCase):
    """Reviews, by default of the user jane in the group dev."""

    def setUp(self) -> None:
        """Add a cluster."""
        super().setUp()
        self.cluster = self.add("alpha")

    def put(self, access: str, **subject: str) -> None:
        """Add a policy, by default for the group dev."""
        subjects = [subject or {"kind": "Group", "name": "dev"}]
        spec = {"subjects": subjects, "clusters": {"names": ["alpha"]}, "access": access}
        self.ask("POST", f"{BASE}/accesspolicies", {"metadata": {"name": "p"}, "spec": spec})

    def review(self, **spec: Any) -> dict[str, Any]:
        """Return the status of a review."""
        body = {"spec": {"user": "jane", "groups": ["dev"], "cluster": "alpha", **spec}}
        status: dict[str, Any] = decoded(self.ask("POST", f"{BASE}/accessreviews", body))["status"]
        return status

    def issue(self, user: str, *groups: str, role: str = "user") -> str:
        """Return the ID of a credential that Tower issues for the cluster."""
        issuing = self.credentials.issue_token("alpha", user, groups, 600.0, role)  # type: ignore[arg-type]
        credential, _ = self.successResultOf(issuing)
        found: str = credential.id
        return found


class AccessReviewTests(ReviewTestCase):
    """Reviews about access policies and issued credentials."""

    def test_paths_of_objects(self) -> None:
        """A path is decided as its request is, also if it is that of an object."""
        self.put("no-exec")
        for verb, path, allowed in (
            ("get", EXEC, False),
            ("post", EXEC, False),
            ("get", "/api/v1/namespaces/d/pods/p/log?follow=1", True),
            ("get", "/api/v1/namespaces/d/pods/p%2Fexec", False),
            ("create", "/api/v1/namespaces/d/pods", True),
            ("watch", "/api/v1/pods", True),
            ("get", "/metrics", True),
        ):
            self.assertEqual(self.review(verb=verb, path=path)["allowed"], allowed, (verb, path))
        self.assertIn("must not get pods/exec in", self.review(verb="get", path=EXEC)["reason"])

    def test_requests_without_an_object(self) -> None:
        """A verb needs a resource or a path, and a path needs a slash and the verb of a request."""
        for spec, text in (
            ({"verb": "create"}, "spec.verb: 'create': requires either resource or path"),
            ({"verb": "get", "resource": "pods", "path": "/x"}, "requires either resource or path"),
            ({"verb": "get", "path": "metrics"}, "spec.path: 'metrics': must begin with '/'"),
            ({"verb": "use", "path": "/metrics"}, "spec.verb: 'use': with a path, must be get, list,"),
        ):
            body = {"spec": {"user": "jane", "cluster": "alpha", **spec}}
            refusal = self.refused(422, "POST", f"{BASE}/accessreviews", body)
            self.assertIn(text, str(refusal))

    def test_groups_of_accounts(self) -> None:
        """Service accounts and anonymous users are in the groups that the front door gives them."""
        self.put("full", kind="Group", name="system:serviceaccounts:build")
        for user, allowed in (
            ("system:serviceaccount:build:ci", True),
            ("system:serviceaccount:other:ci", False),
        ):
            self.assertEqual(self.review(user=user, groups=[])["allowed"], allowed, user)
        groups = self.review(user="system:serviceaccount:build:ci", groups=[])["groups"]
        self.assertEqual(groups, ["door:serviceaccounts", "door:serviceaccounts:build"])

    def test_issued_credentials(self) -> None:
        """A user with a valid credential of Tower for the cluster enters without a policy."""
        self.assertEqual(self.review(user="bob")["credentials"], [])
        self.issue("eve")
        self.issue("bob", role="trusted-caller")
        ended = self.issue("bob")
        self.successResultOf(self.credentials.revoke(ended))
        self.assertFalse(self.review(user="bob")["allowed"])
        valid = self.issue("bob", "ops")
        status = self.review(user="bob", verb="create", path=EXEC)
        self.assertEqual((status["allowed"], status["policies"]), (True, []))
        self.assertEqual((status["user"], status["groups"]), ("bob", ["ops"]))
        self.assertNotIn("reason", status)
        (credential,) = status["credentials"]
        self.assertEqual((credential["name"], credential["allowed"]), (valid, True))
        self.clock.advance(601)
        self.assertFalse(self.review(user="bob")["allowed"])

    def test_many_credentials(self) -> None:
        """An answer has the newest credentials."""
        names = []
        for _ in range(CREDENTIAL_LIMIT + 1):
            names.append(self.issue("bob"))
            self.clock.advance(1)
        self.assertEqual([each["name"] for each in self.review(user="bob")["credentials"]], names[1:])

    def test_policies_before_credentials(self) -> None:
        """If a policy admits the user, the answer has the user's names by the policy."""
        self.put("full")
        self.issue("jane", "ops")
        status = self.review()
        self.assertEqual((status["policies"], status["groups"]), (["p"], ["dev"]))
        self.assertEqual(len(status["credentials"]), 1)


class ReviewModeTests(ReviewTestCase):
    """Reviews with ``--authorization-mode``."""

    def setUp(self) -> None:
        """Let the group dev read."""
        clock: Any = Clock()
        self.rules = ModeAuthorization(DecisionCache(Readers()), "ABAC", clock)
        super().setUp()

    def test_credentials(self) -> None:
        """A credential needs a rule for the user and the groups in it."""
        self.issue("bob", "ops")
        status = self.review(user="bob", verb="list", resource="pods")
        self.assertIn("bob is not admitted", status["reason"])
        self.assertIn("--authorization-mode ABAC", status["credentials"][0]["reason"])
        second = self.issue("bob", "dev")
        status = self.review(user="bob", verb="list", resource="pods")
        self.assertEqual((status["allowed"], status["groups"]), (True, ["dev"]))
        allowed = {each["name"] for each in status["credentials"] if each["allowed"]}
        self.assertEqual(allowed, {second})

    def test_commands(self) -> None:
        """A command needs the rule to create it, as its request does."""
        self.put("full")
        self.assertTrue(self.review(verb="get", path="/api/v1/namespaces/d/pods/p")["allowed"])
        status = self.review(verb="get", path=EXEC)
        self.assertIn('cannot create resource "pods/exec"', status["reason"])

"""Tests of `tower.cli.policies.commands`."""

from __future__ import annotations

import json

from tests.fakes.api import BASE
from tests.fakes.cli import CommandTestCase


class AccessCommandTests(CommandTestCase):
    """The commands ``tower access``."""

    def setUp(self) -> None:
        """Add a cluster."""
        super().setUp()
        self.add("alpha")

    def put(self, **more: object) -> None:
        """Add a policy for the group dev."""
        subjects = [{"kind": "Group", "name": "dev"}]
        spec = {"subjects": subjects, "clusters": {"names": ["alpha"]}, **more}
        self.ask("POST", f"{BASE}/accesspolicies", {"metadata": {"name": "dev"}, "spec": spec})

    def test_list(self) -> None:
        """The list is a table; an empty one explains that no user enters."""
        self.assertIn("there are no access policies", self.good("access", "list"))
        self.put()
        out = self.good("access", "list")
        self.assertIn("Group:dev", out)
        self.assertIn("always", out)

    def test_explain(self) -> None:
        """The explanation names the policy and the user's names, or the reason with exit code 1."""
        self.put(access="read-only", timeWindow={"timeZone": "UTC"}, ttl="8h")
        out = self.good("access", "explain", "jane", "alpha", "--group", "dev")
        self.assertIn("jane enters cluster alpha by access policy dev", out)
        self.assertIn("groups in the cluster: dev", out)
        self.assertIn(
            "read-only access to kubernetes, daily 00:00-24:00 UTC (open now), for 8h at a time", out
        )
        error = self.bad("access", "explain", "jane", "alpha")
        self.assertIn("jane is not admitted to cluster alpha", error)
        words = ("--group", "dev", "--verb", "create", "--resource", "pods/exec", "--namespace", "d")
        error = self.bad("access", "explain", "jane", "alpha", *words)
        self.assertIn("must not create pods/exec in cluster alpha", error)
        self.assertTrue(error.endswith(" (open now), for 8h at a time)\n"), error)
        out = self.good("access", "explain", "jane", "alpha", "--group", "dev", "-o", "json")
        self.assertTrue(json.loads(out)["status"]["allowed"])
        code, out, error = self.run_tower("access", "explain", "jane", "alpha", "-o", "json")
        self.assertEqual((code, json.loads(out)["status"]["allowed"]), (1, False))
        self.assertIn("jane is not admitted to cluster alpha", error)

    def test_all_namespaces(self) -> None:
        """The error mentions that a request was for all namespaces, unless no policy concerns the user."""
        self.put(access="edit")
        words = ("access", "explain", "jane", "alpha", "--verb", "create", "--resource", "pods")
        self.assertNotIn("--namespace", self.bad(*words))
        error = self.bad(*words, "--group", "dev")
        self.assertIn("; checked for all namespaces; to check one, add --namespace NAME (", error)
        self.good(*words, "--group", "dev", "--namespace", "d")

    def test_credentials(self) -> None:
        """The explanation names the kubeconfigs of the user that Tower issued for the cluster."""
        issuing = self.credentials.issue_token("alpha", "bob", ["ops"], 600.0)
        credential, _ = self.successResultOf(issuing)
        out = self.good("access", "explain", "bob", "alpha")
        self.assertIn(f"bob enters cluster alpha by credential {credential.id}, without", out)
        self.assertIn("groups in the cluster: ops", out)
        self.assertIn(f"credential {credential.id}: kubeconfig of Tower, groups ops, expires 20", out)

    def test_wrong_use(self) -> None:
        """Options that make no sense together are rejected with the cure."""
        for words, text in (
            (("--resource", "pods"), "require --verb"),
            (("--verb", "create"), "--verb requires --resource or --path"),
            (("--name", "web"), "require --verb"),
            (("--verb", "get", "--path", "/x", "--name", "web"), "--name requires --resource"),
            (("--verb", "get", "--resource", "pods", "--path", "/x"), "mutually exclusive"),
            (("--claim", "x"), "must be KEY=VALUE"),
        ):
            self.assertIn(text, self.wrong("access", "explain", "jane", "alpha", *words))
        self.assertIn("cluster nope not found", self.bad("access", "explain", "jane", "nope"))

"""Tests for `tower.web.api.credentials`."""

from __future__ import annotations

from tests.fakes.api import BASE, TABLE, ApiTestCase


class CredentialTests(ApiTestCase):
    """Credentials."""

    path = f"{BASE}/credentials"

    def issue(self, cluster: str, user: str, ttl: float = 3600.0) -> str:
        """Return the ID of a new credential."""
        credential, _ = self.successResultOf(self.credentials.issue_token(cluster, user, ["dev"], ttl))
        self.clock.advance(1)
        return str(credential.id)

    def test_list(self) -> None:
        """Valid credentials are listed, the oldest first; cluster and user are supported in selectors."""
        self.add("alpha")
        short = self.issue("alpha", "joe", 60)
        first, second = self.issue("alpha", "jane"), self.issue("", "admin")
        self.clock.advance(60)
        names = [item["metadata"]["name"] for item in self.get(self.path)["items"]]
        self.assertEqual(names, [first, second])
        self.assertNotIn(short, names)
        for selector in ("spec.cluster=alpha", "spec.user=jane", f"metadata.name={first}"):
            (item,) = self.get(self.path, fieldSelector=selector)["items"]
            self.assertEqual(item["spec"]["user"], "jane")
        self.assertEqual(self.get(self.path, labelSelector="a=b")["items"], [])
        rows = self.get(self.path, accept=TABLE)["rows"]
        self.assertEqual(rows[0]["cells"][1:5], ["alpha", "jane", "dev", "token"])
        self.assertIn("left)", rows[0]["cells"][5])
        (row, _) = self.get(self.path, accept=TABLE, includeObject="Object")["rows"]
        self.assertEqual(row["object"]["spec"]["user"], "jane")
        self.assertEqual(rows[1]["cells"][1], "(Tower's API)")

    def test_no_secrets(self) -> None:
        """No object contains a token or a digest."""
        credential, token = self.successResultOf(self.credentials.issue_token("", "admin", [], 60))
        text = str(self.get(self.path)) + str(self.get(f"{self.path}/{credential.id}"))
        self.assertNotIn(token, text)
        self.assertNotIn(credential.digest, text)

    def test_revoke(self) -> None:
        """A revoked one is not listed any more, so that `kubectl delete` ends; a dry run revokes none."""
        name = self.issue("", "admin")
        self.stays(f"{self.path}/{name}")
        self.assertEqual(len(self.get(self.path)["items"]), 1)
        self.ask("DELETE", f"{self.path}/{name}")
        self.assertEqual(self.get(self.path)["items"], [])
        self.refused(404, "GET", f"{self.path}/{name}")
        self.refused(404, "DELETE", f"{self.path}/{name}")
        credential = self.credentials.get(name)
        assert credential is not None
        self.assertTrue(credential.revoked)

    def test_revoke_an_administrators(self) -> None:
        """Only administrators may revoke an administrator's credential."""
        admin, _ = self.successResultOf(self.credentials.issue_token("", "root", ["tower:admins"], 60))
        self.add("alpha")
        other = self.issue("alpha", "joe")
        self.user = ("jane", ("operators",))
        error = self.refused(403, "DELETE", f"{self.path}/{admin.id}")
        self.assertEqual(
            error.message,
            f'credentials.cluster.kubesphere.io "{admin.id}" is forbidden: User "jane" cannot delete '
            'resource "credentials" in API group "cluster.kubesphere.io" at the cluster scope: it is an '
            "administrator's: only the group tower:admins may revoke it; ask a member of that group",
        )
        self.ask("DELETE", f"{self.path}/{other}")
        self.user = ("root", ("tower:admins",))
        self.ask("DELETE", f"{self.path}/{admin.id}")
        self.assertEqual(self.get(self.path)["items"], [])

    def test_one_as_table(self) -> None:
        """One credential as a table."""
        name = self.issue("", "admin")
        (row,) = self.get(f"{self.path}/{name}", accept=TABLE)["rows"]
        self.assertEqual(row["cells"][0], name)

    def test_other_methods(self) -> None:
        """Credentials cannot be created or watched here."""
        self.refused(405, "POST", self.path, {})
        self.refused(405, "GET", self.path, watch="1")
        self.refused(404, "GET", f"{self.path}/a/b")

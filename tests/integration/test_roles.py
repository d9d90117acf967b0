"""Roles for Tower itself, and users who act as others, with real programs: proxy, agent, kubectl."""

from __future__ import annotations

import json
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from tests.integration import harness
from tests.integration.matrix import Matrix
from tests.integration.member import kubectls, member
from tests.integration.person import Person
from tests.integration.programs import run, wait_for

SOON = 3.0  # s from a change to the end of a watch: 2 s, and the machine's delays
TOKENS = """t-jane,jane,7,dev
t-joe,joe,8,qa
"""
GROUP = "rbac.authorization.k8s.io"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
PODS = "/api/v1/namespaces/default/pods"

# Fields that claim an identity in other spellings than Kubernetes' own.
SMUGGLED = (
    ("Impersonate_User", "bob"),
    ("impersonate-user_", "bob"),
    ("Impersonate-Foo", "bob"),
    ("X-Remote-User", "bob"),
    ("X_Remote_Group", "system:masters"),
    ("Impersonate-Extra-", "bob"),
    ("Impersonate-Extra_scopes", "bob"),
)


class RoleTests(harness.TowerTestCase):
    """Alpha is an API server where the group dev has all rights."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy that knows the users of a token file."""
        tower = super().new_tower()
        tokens = self.folder / "tokens.csv"
        tokens.write_text(TOKENS)
        tokens.chmod(0o600)
        self.audit = self.folder / "audit.log"
        tower.proxy = tower.proxy_program(
            harness.PATIENT, f"--token-auth-file={tokens}", f"--audit-log-path={self.audit}"
        )
        return tower

    def setUp(self) -> None:
        """Put the member behind the proxy, and admit jane."""
        self.member = member()
        super().setUp()
        self.tower.add("alpha", self.member.agent)
        self.admin = self.tower.state / "admin.kubeconfig"
        self.admit("full")

    def admit(self, access: str, **names: Any) -> None:
        """Admit the group dev to alpha; *names* is ``as``."""
        self.apply(
            {
                "apiVersion": "cluster.kubesphere.io/v1alpha1",
                "kind": "AccessPolicy",
                "metadata": {"name": "dev"},
                "spec": {
                    "subjects": [{"kind": "Group", "name": "dev"}],
                    "clusters": {"names": ["alpha"]},
                    "access": access,
                    "as": names,
                },
            }
        )

    def user(self, token: str, cluster: str = "") -> Path:
        """Return the kubeconfig of a user for a cluster, or for Tower's own API."""
        config = yaml.safe_load(self.admin.read_text())
        path = f"/clusters/{cluster}" if cluster else ""
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.tower.secure_port}{path}"
        config["users"][0]["user"] = {"token": token}
        file = self.folder / f"{token}-{cluster}.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    def kubectl(self, kubeconfig: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        """Run kubectl; return its exit code and its output, or its error."""
        done = run([str(kubectls()[-1]), f"--kubeconfig={kubeconfig}", *arguments], stdin=stdin)
        return done.returncode, (done.stderr if done.returncode and done.stderr else done.stdout).decode()

    def works(self, kubeconfig: Path, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl, which must succeed; return its output."""
        code, text = self.kubectl(kubeconfig, *arguments, stdin=stdin)
        self.assertEqual(code, 0, text)
        return text

    def refused(self, kubeconfig: Path, *arguments: str) -> str:
        """Run kubectl, which must be refused; return its error."""
        code, text = self.kubectl(kubeconfig, *arguments)
        self.assertNotEqual(code, 0, text)
        return text

    def apply(self, value: dict[str, Any]) -> None:
        """Apply an object as an administrator."""
        self.works(self.admin, "apply", "-f", "-", stdin=json.dumps(value).encode())

    def test_roles(self) -> None:
        """A binding lets a user read Tower's own API, and its end cuts the user's watch."""
        jane = self.user("t-jane")
        text = self.refused(jane, "get", "clusters")
        self.assertIn(
            'User "jane" cannot list resource "clusters" in API group "cluster.kubesphere.io"', text
        )
        self.assertIn("tower:viewer", text)
        self.assertEqual(self.kubectl(jane, "auth", "can-i", "list", "clusters")[0], 1)
        bind = ("create", "clusterrolebinding", "viewers", "--clusterrole=tower:viewer", "--group=dev")
        self.works(self.admin, *bind)
        self.assertIn("alpha", self.works(jane, "get", "clusters"))
        self.assertIn("yes", self.works(jane, "auth", "can-i", "list", "clusters"))
        self.assertIn("no", self.refused(jane, "auth", "can-i", "delete", "clusters"))
        self.assertIn("clusters.cluster.kubesphere.io", self.works(jane, "auth", "can-i", "--list"))
        self.refused(jane, "get", "accesspolicies")
        self.refused(jane, "delete", "cluster", "alpha")
        self.refused(self.user("t-joe"), "get", "clusters")
        self.assertIn("jane", self.works(jane, "auth", "whoami"))
        person = Person(jane)
        connection = person.connect()
        self.addCleanup(connection.close)
        watch = person.ask(connection, "/apis/cluster.kubesphere.io/v1alpha1/clusters?watch=1")
        self.assertEqual(watch.status, 200)
        self.works(self.admin, "delete", "clusterrolebinding", "viewers")
        began = time.monotonic()
        self.ends(watch)
        self.assertLess(time.monotonic() - began, SOON)
        self.refused(jane, "get", "clusters")

    def test_acting(self) -> None:
        """A user with the right acts as another one, in the cluster and at Tower's own API."""
        jane = self.user("t-jane", "alpha")
        text = self.refused(jane, "get", "pods", "--as=bob")
        self.assertIn(
            'users "bob" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at '
            "the cluster scope",
            text,
        )
        rules = [
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups"]},
            {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["*"]},
        ]
        meta = {"name": "acting", "annotations": {"tower.kubesphere.io/clusters": "alpha,@tower"}}
        self.apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "acting"},
                "rules": rules,
            }
        )
        self.apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "acting"},
                "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "jane"}],
            }
        )
        who = json.loads(self.works(jane, "auth", "whoami", "-o", "json", "--as=bob", "--as-group=team"))
        info = who["status"]["userInfo"]
        self.assertEqual(
            (info["username"], "team" in info["groups"], "dev" in info["groups"]), ("bob", True, False)
        )
        self.assertIn("yes", self.works(jane, "auth", "can-i", "create", "pods"))
        self.assertIn("no", self.refused(jane, "auth", "can-i", "create", "pods", "--as=bob"))
        self.assertIn('User "bob" cannot list', self.refused(jane, "get", "pods", "--as=bob"))
        self.works(jane, "get", "pods", "--as=bob", "--as-group=dev")
        own = self.user("t-jane")
        self.assertIn("bob", self.works(own, "auth", "whoami", "--as=bob"))
        self.assertIn('User "bob" cannot list', self.refused(own, "get", "clusters", "--as=bob"))
        self.assertIn("which no cluster accepts", self.refused(jane, "get", "pods", "--as=tower:root"))
        self.check_connection()
        self.check_audit()
        for each in SMUGGLED:
            self.assertEqual(self.asked(("Impersonate-User", "bob"), each)[0], 403, each)
        self.assertEqual(self.asked(("Impersonate-Group", "dev"))[0], 400)
        self.assertEqual(self.asked(("Impersonate-User", "a"), ("Impersonate-User", "b"))[0], 403)
        self.assertEqual(self.asked(("Impersonate-User", "system:admin"))[0], 403)
        watch = self.watched(jane)
        self.works(self.admin, "delete", "clusterrolebinding", "acting")
        began = time.monotonic()
        self.ends(watch)
        self.assertLess(time.monotonic() - began, SOON)
        self.refused(jane, "get", "pods", "--as=bob", "--as-group=dev")

    def ends(self, watch: Any) -> None:
        """Wait for the end of a watch, also a sudden one."""
        try:
            while watch.read1(65536):
                pass
        except (OSError, HTTPException):
            pass

    def test_listed_rights(self) -> None:
        """`kubectl auth can-i --list` shows only the verbs that the access policy permits."""
        self.admit("read-only")
        listed = self.works(self.user("t-jane", "alpha"), "auth", "can-i", "--list")
        self.assertRegex(listed, r"\*\.\* +\[\] +\[\] +\[get list watch\]")
        self.assertNotRegex(listed, r"\[\*\]\n")  # no rule with all verbs

    def test_facts(self) -> None:
        """The cluster gets the UID of an admitted user, and that of the user that another one acts as."""
        rights = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "agent-facts"},
            "rules": [{"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["*"]}],
        }
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(rights).encode())
        account = "--serviceaccount=tower-system:tower-agent"
        self.member.kubectl(
            "create", "clusterrolebinding", "agent-facts", "--clusterrole=agent-facts", account
        )
        self.addCleanup(self.member.kubectl, "delete", "clusterrolebinding", "agent-facts")
        self.admit("full", uid=True)
        bind = ("create", "clusterrolebinding", "acting", "--clusterrole=cluster-admin", "--user=jane")
        self.works(self.admin, *bind)
        for fields, uid in (((), "7"), (("--as=bob", "--as-uid=5"), "5")):
            who = json.loads(
                self.works(self.user("t-jane", "alpha"), "auth", "whoami", "-o", "json", *fields)
            )
            self.assertEqual(who["status"]["userInfo"]["uid"], uid)
        _, found = self.asked(("Impersonate-User", "bob"), ("Impersonate-Extra-Acme.org%2fTeam", "sea"))
        self.assertEqual(found["status"]["userInfo"]["extra"], {"acme.org/team": ["sea"]})

    def test_matrix(self) -> None:
        """The operations of kubectl that act as others work as at the API server itself."""
        bind = ("create", "clusterrolebinding", "acting", "--clusterrole=cluster-admin", "--user=jane")
        self.works(self.admin, *bind)
        names = (
            "auth can-i",
            "auth whoami",
            "errors: not found, forbidden, unknown path",
            "--as is obeyed or refused, never dropped",
        )
        matrix = Matrix(self.folder, self.member, kubectls()[-1], self.user("t-jane", "alpha"), only=names)
        self.addCleanup(matrix.stop)
        matrix.start()
        self.assertEqual(matrix.failed(), [])

    def watched(self, kubeconfig: Path) -> Any:
        """Return a watch that jane sends as bob."""
        person = Person(kubeconfig)
        connection = person.connect()
        self.addCleanup(connection.close)
        fields = {"Impersonate-User": "bob", "Impersonate-Group": "dev"}
        path = f"/clusters/alpha{PODS}?watch=1&resourceVersion=0&fieldSelector=metadata.name=none"
        watch = person.ask(connection, path, headers=fields)
        self.assertEqual(watch.status, 200)
        return watch

    def asked(self, *fields: tuple[str, str]) -> tuple[int, Any]:
        """Send a review with these fields to alpha; return status and object."""
        person = Person(self.user("t-jane", "alpha"))
        connection = person.connect()
        self.addCleanup(connection.close)
        connection.putrequest("POST", f"/clusters/alpha{WHOAMI}")
        for name, value in (*person.headers().items(), *fields):
            connection.putheader(name, value)
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "2")
        connection.endheaders(b"{}")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def check_connection(self) -> None:
        """On one connection, requests with and without the fields have different users."""
        person = Person(self.user("t-jane", "alpha"))
        connection = person.connect()
        self.addCleanup(connection.close)
        seen = []
        for fields in ({}, {"Impersonate-User": "bob"}, {}, {"Impersonate-User": "eve"}, {}):
            headers = {"Content-Type": "application/json", **fields}
            answer = person.ask(connection, f"/clusters/alpha{WHOAMI}", "POST", b"{}", headers)
            seen.append(json.loads(answer.read())["status"]["userInfo"]["username"])
        self.assertEqual(seen, ["jane", "bob", "jane", "eve", "jane"])

    def events_of_bob(self) -> list[dict[str, Any]]:
        """Return the complete events of requests that another user sent as bob."""
        lines = self.audit.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each for each in events if each.get("impersonatedUser", {}).get("username") == "bob"]

    def check_audit(self) -> None:
        """The audit log has both users."""
        found = wait_for("bob's events", self.events_of_bob)
        self.assertEqual({each["user"]["username"] for each in found}, {"jane"})

    def test_united_answers(self) -> None:
        """`kubectl auth can-i` has the answer of the access policies, and then that of the cluster."""
        jane = self.user("t-jane", "alpha")
        self.assertIn("yes", self.works(jane, "auth", "can-i", "create", "pods"))
        self.admit("read-only")
        self.assertIn("yes", self.works(jane, "auth", "can-i", "list", "pods"))
        text = self.refused(jane, "auth", "can-i", "create", "pods")
        self.assertIn("no - jane must not create pods in cluster alpha: access policy dev permits only", text)
        self.assertIn("no", self.refused(jane, "auth", "can-i", "*", "*"))
        self.assertIn("*.*", self.works(jane, "auth", "can-i", "--list"))

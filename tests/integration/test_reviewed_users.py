"""Users whose tokens a webhook or the API server of a cluster reviews, and anonymous ones, in a cluster."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.person import Person
from tests.integration.programs import run, wait_for
from tests.integration.review_webhook import ReviewWebhook, reviewed_user
from tests.integration.token_users import PODS, anybody

VERSION = "/clusters/alpha/version"

#: Time until a live connection ends after a change of its user, s: the interval of reviews, and load.
SOON = 25.0

CONFIGURATION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "anonymous": {"enabled": True, "conditions": [{"path": VERSION}]},
}


def _slow_failure(_review: dict[str, Any]) -> tuple[int, bytes]:
    time.sleep(4)
    return 500, b"{}"


class ReviewedUserTests(harness.TowerTestCase):
    """Alpha's API server also reviews tokens, after the webhook."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy with all options."""
        tower = super().new_tower()
        self.hook = ReviewWebhook(self.folder, self.answer)
        self.addCleanup(self.stop_hook)
        self.lost = False
        self.configuration = self.folder / "authentication.yaml"
        self.configuration.write_text(yaml.safe_dump(CONFIGURATION))
        tower.proxy = tower.proxy_program(
            harness.PATIENT,
            f"--authentication-token-webhook-config-file={self.hook.kubeconfig}",
            "--authentication-token-webhook-version=v1",
            "--authentication-token-webhook-cache-ttl=1s",
            f"--authentication-kubeconfig={self.member.admin}",
            f"--authentication-config={self.configuration}",
        )
        return tower

    def stop_hook(self) -> None:
        """Stop the current webhook."""
        self.hook.stop()

    def answer(self, review: dict[str, Any]) -> dict[str, Any]:
        """Return the webhook's answer: after a loss, it rejects all tokens."""
        found = reviewed_user(review)
        user = found["status"].get("user")
        if user is not None:
            user["groups"] = ["dev"]
        return {**review, "status": {"authenticated": False}} if self.lost else found

    def setUp(self) -> None:
        """Put the member behind the proxy."""
        self.member = member()
        super().setUp()
        self.tower.add("alpha", self.member.agent)
        self.person = anybody(self.tower)
        self.running: list[subprocess.Popen[bytes]] = []
        self.addCleanup(self.end)

    def end(self) -> None:
        """End the commands that still run."""
        for each in self.running:
            each.kill()
            each.communicate()

    def apply(self, name: str, subject: dict[str, str], **spec: Any) -> None:
        """Create an access policy for a subject."""
        admin = self.tower.state / "admin.kubeconfig"
        value = {
            "apiVersion": "cluster.kubesphere.io/v1alpha1",
            "kind": "AccessPolicy",
            "metadata": {"name": name},
            "spec": {"subjects": [subject], "clusters": {"names": ["alpha"]}, **spec},
        }
        content = json.dumps(value).encode()
        done = run([str(kubectls()[-1]), f"--kubeconfig={admin}", "apply", "-f", "-"], stdin=content)
        self.assertEqual(done.returncode, 0, done.stderr)

    def status(self, token: str, path: str = PODS) -> int:
        """Return the status of a request with a token, or without one."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.person.request("GET", path, headers=headers).status

    def watch(self, token: str) -> subprocess.Popen[bytes]:
        """Return a watch, once it has begun."""
        config = yaml.safe_load(self.person.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] += "/clusters/alpha"
        config["users"][0]["user"] = {"token": token}
        path = Path(self.folder / "user.kubeconfig")
        path.write_text(yaml.safe_dump(config))
        argv = [str(kubectls()[-1]), f"--kubeconfig={path}", "get", "--raw"]
        started = subprocess.Popen(
            [*argv, "/api/v1/namespaces?watch=true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.running.append(started)
        assert started.stdout is not None
        self.assertIn(b"ADDED", started.stdout.readline())
        return started

    def test_webhook(self) -> None:
        """A webhook's user works in a cluster; its failures, faults and changes have their effects."""
        self.apply("dev", {"kind": "Group", "name": "dev"})
        self.assertEqual(self.status("hook-jane"), 200)
        watch = self.watch("hook-jane")

        began = time.monotonic()
        self.hook.faults.append(_slow_failure)
        slow = Person(self.person.kubeconfig)
        connection = slow.connect()
        connection.request("GET", PODS, headers={"Authorization": "Bearer hook-slow"})
        self.assertEqual(self.status("hook-joe"), 200)
        self.assertLess(time.monotonic() - began, 4)
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

        port, right = self.hook.port, self.hook.kubeconfig.read_text()
        self.hook.stop()
        self.assertEqual(self.status("hook-new"), 401)
        self.hook = ReviewWebhook(self.folder, self.answer, port)
        changed = self.hook.kubeconfig.read_text()
        self.hook.kubeconfig.write_text(right)
        self.assertEqual(self.status("hook-new"), 401)
        self.assertEqual(self.hook.reviews, [])  # it has another certificate
        self.hook.kubeconfig.write_text(changed)
        wait_for("the new certificate", lambda: self.status("hook-new") == 200, 10)
        self.assertIsNone(watch.poll())

        self.lost = True
        wait_for("the end of the watch", lambda: watch.poll() is not None, SOON)
        self.assertEqual(self.status("hook-jane"), 401)
        self.assertNotRegex(self.tower.proxy.output(), "(?<!web)hook-")

    def test_delegated(self) -> None:
        """A service account of the cluster that reviews tokens has the policy's prefix in a member."""
        kubectl = self.member.kubectl
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        kubectl("apply", "-f", "-", stdin=json.dumps(account).encode())
        token = kubectl("create", "token", "robot").strip()
        self.assertEqual(self.status(token), 403)
        self.apply("robots", {"kind": "Group", "name": "system:serviceaccounts:default"})
        self.assertEqual(self.status(token, VERSION), 200)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
        path = "/clusters/alpha/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = self.person.request("POST", path, body=body, headers=headers)
        user = json.loads(answer.body)["status"]["userInfo"]
        self.assertEqual(user["username"], "door:serviceaccount:default:robot")
        self.assertIn("door:serviceaccounts:default", user["groups"])
        self.assertEqual(self.status(token + "x", VERSION), 401)
        self.assertEqual(self.status(f"{token[:-6]}AAAAAA", VERSION), 401)

        kubectl("delete", "serviceaccount", "robot")
        wait_for("the end of the user", lambda: self.status(token, VERSION) == 401, SOON)
        page = self.person.request("GET", "/metrics", headers=self.tower.admin().headers())
        self.assertIn(page.status, (200, 401, 403))

    def test_anonymous(self) -> None:
        """Only the configured paths are open, without any credential, where a policy admits the user."""
        self.assertEqual((self.status("", VERSION), self.status("")), (403, 401))
        guest = {"user": "guest", "groups": []}
        self.apply("guests", {"kind": "User", "name": "system:anonymous"}, **{"as": guest})
        connection = self.person.connect()
        for path, status in ((VERSION, 200), (PODS, 401), (VERSION, 200), (VERSION + "/", 401)):
            answer = self.person.ask(connection, path)
            self.assertEqual((answer.status, bool(answer.read())), (status, True))
        connection.close()
        self.assertEqual(self.status("bad", VERSION), 401)
        headers = {"X-Remote-User": "admin"}
        self.assertEqual(self.person.request("GET", VERSION, headers=headers).status, 403)

        changed = {**CONFIGURATION, "anonymous": {"enabled": True}}
        self.configuration.write_text(yaml.safe_dump(changed))
        wait_for("the error", lambda: "changed from initial configuration" in self.tower.proxy.output(), 10)
        self.assertEqual(self.status(""), 401)

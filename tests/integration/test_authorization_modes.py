"""Modes of authorization with real programs: proxy, agent, API server, webhook and users."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from tests.integration import harness
from tests.integration.authorizer_cases import binding, role, user
from tests.integration.member import member
from tests.integration.person import Answer, Person
from tests.integration.programs import run, wait_for
from tests.integration.review_webhook import ReviewWebhook

PODS = "/api/v1/namespaces/default/pods"
SOON = 2.5  # s: 2 s, and the machine's delays
ABAC = "abac.authorization.kubernetes.io/v1beta1"


def line(**spec: Any) -> str:
    """Return a line of the policy file."""
    return json.dumps({"apiVersion": ABAC, "kind": "Policy", "spec": spec}) + "\n"


READER = line(user="reader", namespace="default", resource="pods", readonly=True)


class AuthorizationModeTests(harness.TowerTestCase):
    """Alpha is the API server whose roles and bindings count, and where the group dev has all rights."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy with three modes."""
        tower = super().new_tower()
        self.hook = ReviewWebhook(self.folder)
        self.addCleanup(self.hook.stop)
        self.policies = self.folder / "policies.jsonl"
        self.policies.write_text(READER)
        tower.proxy = tower.proxy_program(
            harness.PATIENT,
            "--authorization-mode=ABAC,RBAC,Webhook",
            f"--authorization-policy-file={self.policies}",
            f"--authorization-kubeconfig={self.member.admin}",
            f"--authorization-webhook-config-file={self.hook.kubeconfig}",
            "--authorization-webhook-version=v1",
        )
        return tower

    def setUp(self) -> None:
        """Put the member behind the proxy."""
        self.member = member()
        self.annotate("tower.kubesphere.io/clusters=elsewhere")
        self.addCleanup(self.annotate, "tower.kubesphere.io/clusters-")
        super().setUp()
        self.tower.add("alpha", self.member.agent)

    def annotate(self, annotation: str) -> None:
        """Change an annotation of the binding for the group dev."""
        self.member.kubectl("annotate", "--overwrite", "clusterrolebinding", "developers", annotation)

    def person(self, name: str) -> Person:
        """Return a user of the group dev."""
        return self.tower.person("alpha", name, "--group", "dev")

    def get(self, person: Person, path: str = PODS) -> Answer:
        """Get a path of the cluster."""
        return person.get(path)

    def message(self, answer: Answer, code: int = 403) -> str:
        """Return the message of a rejection."""
        self.assertEqual(answer.status, code, answer.body[:300])
        return str(json.loads(answer.body)["message"])

    def becomes(self, what: str, is_so: Callable[[], bool]) -> None:
        """Check that a change counts soon."""
        began = time.monotonic()
        wait_for(what, is_so, SOON * 4)
        self.assertLess(time.monotonic() - began, SOON)

    def test_modes(self) -> None:
        """Policies, bindings, the webhook, and starts with wrong options."""
        self.policies_count()
        self.bindings_count()
        self.webhook_counts()
        self.wrong_starts()

    def policies_count(self) -> None:
        """A policy allows its requests; its end cuts a watch; a wrong file changes nothing."""
        reader = self.person("reader")
        self.assertEqual(self.get(reader).status, 200)
        answer = reader.request("DELETE", f"{reader.prefix}{PODS}/none")
        self.assertIn(
            'pods "none" is forbidden: User "reader" cannot delete resource "pods" in API group "" in the '
            'namespace "default": No policy matched.; this is a rule of Tower (--authorization-mode '
            "ABAC,RBAC,Webhook), not of cluster alpha: ask an administrator of Tower",
            self.message(answer),
        )
        other = self.message(self.get(reader, "/api/v1/namespaces/default/pods/shell/exec?command=a"))
        self.assertIn('cannot create resource "pods/exec"', other)
        connection = reader.connect()
        self.addCleanup(connection.close)
        watch = reader.ask(connection, f"{reader.prefix}{PODS}?watch=1")
        self.assertEqual(watch.status, 200)
        self.policies.write_text("{")
        time.sleep(1.5)
        self.assertEqual(self.get(reader).status, 200)
        self.policies.write_text(line(user="other", namespace="*", resource="*"))
        began = time.monotonic()
        try:
            while watch.read1(65536):
                pass
        except (OSError, HTTPException):
            pass
        self.assertLess(time.monotonic() - began, SOON)
        self.assertEqual(self.get(reader).status, 403)

    def bindings_count(self) -> None:
        """Bindings of the other cluster count within 2 s, those for other clusters not at all."""
        bob = self.person("bob")
        rule = {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(role("modes-pods", rule)).encode())
        self.addCleanup(self.member.kubectl, "delete", "clusterrole", "modes-pods")
        granted = binding("modes-bob", "modes-pods", user("bob"), namespace="default")
        self.addCleanup(
            self.member.kubectl, "-n", "default", "delete", "rolebinding", "--ignore-not-found", "modes-bob"
        )
        self.message(self.get(bob))
        self.assertEqual(self.get(bob, "/version").status, 200)  # by a default role of all users

        granted["metadata"]["annotations"] = {"tower.kubesphere.io/clusters": "beta"}
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(granted).encode())
        time.sleep(2)
        self.message(self.get(bob))
        granted["metadata"]["annotations"] = {"tower.kubesphere.io/clusters": "al*"}
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(granted).encode())
        self.becomes("bob's right", lambda: self.get(bob).status == 200)
        self.message(self.get(bob, "/api/v1/namespaces/default/secrets"))
        self.member.kubectl("-n", "default", "delete", "rolebinding", "modes-bob")
        self.becomes("its end", lambda: self.get(bob).status == 403)

    def webhook_counts(self) -> None:
        """The webhook decides last; without it the answer is an error."""
        self.assertEqual(self.get(self.person("hook-allow")).status, 200)
        self.assertIn(
            "the hook denies; this is a rule of Tower", self.message(self.get(self.person("hook-deny")))
        )
        spec = self.hook.reviews[-1][1]["spec"]
        self.assertEqual(spec["extra"], {"tower.kubesphere.io/cluster": ["alpha"]})
        self.assertEqual(spec["groups"], ["dev", "system:authenticated"])
        self.hook.faults.append(lambda _: (403, b"{}"))
        text = self.message(self.get(self.person("joe")), 500)
        self.assertIn("Internal error occurred: the authorization webhook failed: ", text)
        self.assertEqual(self.get(self.person("hook-allow")).status, 200)

    def wrong_starts(self) -> None:
        """Wrong options and a wrong file end the program with upstream's texts."""
        self.tower.proxy.stop()
        self.policies.write_text("{}\n{\n")
        for options, texts in (
            (
                ("--authorization-mode=ABAC,Foo,ABAC", "--authorization-webhook-config-file=x"),
                (
                    "authorization-mode ABAC's authorization policy file not passed",
                    'authorization-mode "Foo" is not a valid mode',
                    'authorization-mode ["ABAC" "Foo" "ABAC"] has mode specified more than once',
                    "cannot specify --authorization-webhook-config-file without mode Webhook",
                ),
            ),
            (
                ("--authorization-mode=ABAC", f"--authorization-policy-file={self.policies}"),
                (f"error reading policy file {self.policies}, line 2: {{: couldn't get version/kind",),
            ),
        ):
            argv = self.tower.proxy_program(*options).argv
            argv = [each.replace(str(self.tower.state), str(self.folder / "other")) for each in argv]
            done = run(argv, folder=self.folder)
            self.assertEqual(done.returncode, 1, done.stderr)
            for text in texts:
                self.assertIn(text, done.stderr.decode())

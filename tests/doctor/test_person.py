"""Tests for `tower.doctor.person` and `tower.doctor.api`."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from tests.doctor.kit import SERVING, DoctorTestCase
from tests.fakes.certificates import NOW, authority
from tower.doctor import person
from tower.doctor.findings import Finding
from tower.doctor.person import examine_kubeconfig
from tower.kube.kubeconfig import KubeAccess, kubeconfig
from tower.kube.rest.kubeconfig_files import KubeconfigFiles

SERVER = "https://tower.example:8443/clusters/alpha"
VERSION = ("GET", "/clusters/alpha/version")
REVIEW = ("POST", "/clusters/alpha/apis/authentication.k8s.io/v1/selfsubjectreviews")


class PersonTests(DoctorTestCase):
    """A user's kubeconfig, with one thing broken."""

    def setUp(self) -> None:
        """Write a kubeconfig, and answer as the cluster."""
        super().setUp()
        self.file = Path(self.mktemp())
        issued = authority("users").client_certificate("jane", [], "alpha", "u", 3600, NOW)
        self.write(certificate=(issued.certificate_pem, issued.key_pem))
        self.network.answers[VERSION] = (200, {"gitVersion": "v1.36.2"})
        info = {"username": "jane", "groups": ["dev", "system:authenticated"]}
        self.network.answers[REVIEW] = (201, {"status": {"userInfo": info}})

    def write(self, **credential: object) -> None:
        """Write the kubeconfig with a credential."""
        text = kubeconfig(server=SERVER, ca_pem=SERVING.pem, cluster="alpha", user="jane", **credential)  # type: ignore[arg-type]
        self.file.write_text(text)
        self.file.chmod(0o600)

    def look(self, now: float = NOW) -> dict[str, Finding]:
        """Return the findings."""
        return self.found(
            examine_kubeconfig(self.network, KubeconfigFiles((self.file,)), None, {}, lambda: now)
        )

    def test_sound(self) -> None:
        """Nothing is wrong; version and user are shown."""
        findings = self.look()
        self.assertEqual(self.grades(findings), {"ok"})
        self.assertIn("version v1.36.2", findings["login"].line)
        self.assertIn("jane, groups dev, system:authenticated", findings["user"].line)

    def test_file(self) -> None:
        """A missing or damaged file is the only finding; one that others can read is a warning."""
        self.file.chmod(0o644)
        self.assertIn(f"chmod 600 {self.file}", self.look()["kubeconfig"].line)
        self.file.write_text("{}")
        self.assertIn("current-context", self.failed(self.look()))
        self.file.unlink()
        self.assertIn("No such file", self.failed(self.look()))

    def test_plugin(self) -> None:
        """The credential of a plugin is checked, and its cure is a login."""

        def run_plugin(access: KubeAccess, _environ: object) -> tuple[KubeAccess, float]:
            return evolve(access, plugin={"command": "tower"}, token="a.b.c", client_certificate=None), 0.0

        self.patch(person, "with_credential", run_plugin)
        self.write(token="x")
        self.assertIn("a token of the credential plugin", self.look()["credential"].line)
        self.network.answers[VERSION] = (401, {"message": "this login session has ended"})
        self.assertIn("tower login https://tower.example:8443", self.failed(self.look()))

    def test_expired(self) -> None:
        """An expired certificate is found without a login."""
        line = self.failed(self.look(NOW + 7200 - 3600 + 1))
        self.assertIn("clock: ", line)
        self.network.http[True] = type(self.network.http[True])(401, NOW + 7200, b"HTTP/")
        self.assertIn("credential: the client certificate expired on", self.failed(self.look(NOW + 7200)))
        self.assertEqual(self.network.asked, [])

    def test_no_credential(self) -> None:
        """A kubeconfig without a credential is a failure."""
        self.write()
        self.assertIn("no token and no client certificate", self.failed(self.look()))

    def test_token(self) -> None:
        """A bearer token is sent."""
        self.write(token="t0ken")
        self.assertEqual(self.grades(self.look()), {"ok"})
        self.assertEqual(self.network.asked[0][3], "t0ken")

    def test_login(self) -> None:
        """Each rejection has its cure; a refusal of the server itself is for its log."""
        for code, cure in (
            (401, "tower kubeconfig CLUSTER --user USER"),
            (403, "a kubeconfig for this cluster"),
            (404, "tower cluster list"),
            (500, "check the server's log"),
        ):
            self.network.answers[VERSION] = (code, {"message": "the reason"})
            line = self.failed(self.look())
            self.assertIn(f'login: HTTP status {code}: the server reports: "the reason" -> ', line)
            self.assertIn(cure, line)

    def test_denials(self) -> None:
        """A denial by a rule has the cure of that rule; the credential is valid."""
        explain = "ask Tower's administrator to run: tower access explain USER alpha"
        for message, cure in (
            ('cannot get path "/version": this is a rule of Tower (--authorization-mode ABAC)', explain),
            ("jane is not admitted to cluster alpha: ask an administrator of Tower", explain),
            ("this is Tower's own API: ask", "ask Tower's administrator for a role, such as tower:viewer"),
            (
                "forbidden by the owner of cluster alpha: no rule",
                "ask the owner of cluster alpha to change the policy of its agent",
            ),
        ):
            self.network.answers[VERSION] = (403, {"message": message})
            self.assertTrue(self.failed(self.look()).endswith(f" -> {cure}"), message)
        self.network.answers[VERSION] = (404, {"message": "this is a rule of Tower"})
        self.assertIn("tower cluster list", self.failed(self.look()))

    def test_cluster_without_an_answer(self) -> None:
        """A cluster that does not answer is not a failure of the login; the cure is the administrator's."""
        ask = "-> ask Tower's administrator to run: tower doctor alpha"
        for code in (502, 503, 504):
            self.network.answers[VERSION] = (code, {"message": "the API server is frozen"})
            findings = self.look()
            seen = f'HTTP status {code}: the server reports: "the API server is frozen"'
            text = f"cluster: {seen}; whether the credential is valid is unknown {ask}"
            self.assertEqual(self.failed(findings), f"FAIL  {text}")
            self.assertEqual(findings["login"].verdict.grade, "skip")
        del self.network.answers[VERSION]
        self.assertIn("connection lost", self.failed(self.look()))
        self.network.slow.add(VERSION[1])
        self.assertIn("version: no answer within 8 s; whether the credential is", self.failed(self.look()))
        self.assertIn(ask, self.failed(self.look()))
        self.network.slow.clear()
        self.network.answers[VERSION] = (200, {})
        self.network.answers[REVIEW] = (503, {"message": "frozen"})
        self.assertIn(f'user: HTTP status 503: the server reports: "frozen" {ask}', self.failed(self.look()))
        self.network.slow.add(REVIEW[1])
        self.assertIn(f"no answer within 8 s {ask}", self.failed(self.look()))

    def test_old_server(self) -> None:
        """An API server without reviews does not name the user."""
        self.network.answers[REVIEW] = (404, {"message": "not found"})
        self.assertEqual(self.look()["user"].verdict.grade, "ok")

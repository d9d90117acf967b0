"""The agent's manifest in a real cluster: from nothing to kubectl through Tower, and removed again."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import yaml

from tests.integration import harness
from tests.integration.host import ABSENT, host
from tests.integration.member import kubectls
from tests.integration.programs import run, wait_for

NAMESPACE = "tower-system"
AGENTS = "app.kubernetes.io/name=tower-agent"
LIMIT = 90.0  # s, from nothing to a request through Tower


class ManifestTests(harness.TowerTestCase):
    """Manifests of ``tower join``, whose Deployment gets pods that run this tree's agent."""

    timeout = 600

    def setUp(self) -> None:
        """Start a proxy, which the pods reach, and a cluster."""
        super().setUp()
        self.host = host()
        self.host.offer(self.tower.secure_port)
        self.tower.tower("cluster", "add", "alpha")

    def new_tower(self) -> harness.Tower:
        """Return a proxy with an access log."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(f"--access-log={self.folder / 'access.log'}")
        return tower

    def apply(self, manifest: str, *options: str) -> str:
        """Apply a manifest; remove its objects at the end of the test."""
        self.addCleanup(self.delete, manifest)
        return self.host.kubectl("apply", *options, "-f", "-", stdin=manifest.encode())

    def delete(self, manifest: str) -> None:
        """Delete the objects of a manifest; return when the last one is removed."""
        self.host.delete("--ignore-not-found", "-f", "-", stdin=manifest.encode())

    def wait_until_rolled_out(self) -> None:
        """Return when all replicas are ready."""
        self.host.roll_out("deployment/tower-agent", NAMESPACE)

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the entries of a Secret."""
        data = self.host.get("secret", name, NAMESPACE)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def tunnels(self) -> list[tuple[str, str]]:
        """Return key and address of each tunnel."""
        listed = json.loads(self.tower.tower("cluster", "agents", "alpha", "-o", "json"))
        return [
            (item["metadata"]["name"], tunnel["address"])
            for item in listed["items"]
            for tunnel in item["status"]["tunnels"]
        ]

    def rotated(self) -> bool:
        """Return whether the rotation is finished: all agents have confirmed the next key."""
        (found,) = json.loads(self.tower.tower("rotate", "status", "-o", "json"))["items"]
        return bool(found["status"]["phase"] == "Finished")

    def through_tower(self, *arguments: str, group: str) -> tuple[int, str]:
        """Return exit code and output of kubectl through Tower by jane of a group."""
        kubeconfig = self.tower.kubeconfig("alpha", "jane", "--group", group)
        argv = [str(kubectls()[-1]), f"--kubeconfig={kubeconfig}", *arguments]
        done = run(argv, environment={"KUBECACHEDIR": str(self.folder / "cache")})
        return done.returncode, (done.stdout + done.stderr).decode()

    def test_life(self) -> None:
        """Late rights, two replicas with one key, replaced pods without a token, and the removal."""
        manifest = self.tower.tower("join", "alpha", "--format", "manifest", "--impersonate-groups", "weak")
        objects: list[dict[str, Any]] = list(yaml.safe_load_all(manifest))
        self.apply(yaml.safe_dump(objects[0]))
        dry = self.apply(manifest, "--dry-run=server", "-o", "name")
        self.assertEqual(len(dry.split()), len(objects), dry)
        # without the right to its Secret, each replica waits, with the cure in its log
        self.apply(yaml.safe_dump_all(item for item in objects if item["kind"] != "RoleBinding"))
        denied = "not allowed to get Secret tower-system/tower-agent-key"

        def waiting() -> set[str]:
            pods = self.host.objects("pods", NAMESPACE, AGENTS)
            if {pod["status"]["phase"] for pod in pods} != {"Running"}:
                return set()
            log = self.host.logs(AGENTS, NAMESPACE)
            return {line.split()[0] for line in log.splitlines() if denied in line}

        wait_for("two replicas without rights", lambda: len(waiting()) == 2, every=0.5)
        self.assertEqual(self.tunnels(), [])
        self.apply(manifest)
        self.wait_until_rolled_out()
        # both have the key in the Secret, whose enrolment used the token up
        key = self.secret("tower-agent-key")["agent-key"]
        tunnels = self.tunnels()
        self.assertEqual((len(tunnels), len({fingerprint for fingerprint, _ in tunnels})), (2, 1), tunnels)
        code, output = self.through_tower("get", "namespaces", "-o", "name", group="weak")
        self.assertIn('User "jane" cannot list resource "namespaces"', output)
        code, output = self.through_tower("get", "namespaces", "-o", "name", group="ops")
        self.assertIn("impersonate group ops", output)
        self.assertNotEqual(code, 0)
        token = self.secret("tower-agent-join")["token"].decode()
        self.assertNotIn(token, self.host.logs(AGENTS, NAMESPACE))
        doctor = ("exec", "deployment/tower-agent", "--", "tower", "doctor", "--agent")
        self.assertIn("is enrolled for cluster alpha", self.host.kubectl("-n", NAMESPACE, *doctor))
        # the proxy's next host key is announced, and only the Secret has it
        self.tower.tower("rotate", "host-key")
        wait_for("the end of the rotation", self.rotated)
        # pods come back without a token; the manifest does not replace the key
        self.host.kubectl("-n", NAMESPACE, "delete", "secret", "tower-agent-join")
        self.host.delete("-n", NAMESPACE, "pods", "-l", AGENTS)
        self.wait_until_rolled_out()
        wait_for("new tunnels", lambda: not set(tunnels) & set(self.tunnels()) and len(self.tunnels()) == 2)
        self.apply(manifest)
        self.assertEqual({fingerprint for fingerprint, _ in self.tunnels()}, {tunnels[0][0]})
        self.assertEqual(self.secret("tower-agent-key")["agent-key"], key)
        self.delete(manifest)
        for item in objects:
            left = self.host.get(item["kind"], item["metadata"]["name"], NAMESPACE)
            self.assertEqual(left, ABSENT)

    def test_url(self) -> None:
        """An import URL is applied once by a kubectl that trusts the proxy's CA; no log has its secret."""
        ca = self.folder / "ca.crt"
        url = self.tower.tower("join", "alpha", "--output-url", "--ca-file", str(ca)).strip()
        argv = [str(kubectls()[0]), f"--kubeconfig={self.host.kubeconfig}", "apply", "-f", url]

        def apply(**environment: str) -> tuple[int, str]:
            done = run(argv, environment={"KUBECACHEDIR": str(self.folder / "cache"), **environment})
            return done.returncode, (done.stdout + done.stderr).decode()

        self.assertIn("x509", apply()[1])
        head = run(["curl", "-fsS", "--head", "--cacert", str(ca), url])
        self.assertIn(b"no-store", head.stdout)
        self.addCleanup(self.remove_namespace)
        start = time.monotonic()
        code, output = apply(SSL_CERT_FILE=str(ca))
        self.assertEqual(code, 0, output)
        binding = "agent-viewers"
        self.host.kubectl("create", "clusterrolebinding", binding, "--clusterrole=view", "--group=viewers")
        self.addCleanup(self.host.kubectl, "delete", "clusterrolebinding", binding)
        self.wait_until_rolled_out()
        code, output = self.through_tower("-n", NAMESPACE, "get", "pods", "-o", "name", group="viewers")
        self.assertEqual(output.count("pod/tower-agent-"), 2, output)
        self.assertLess(time.monotonic() - start, LIMIT)
        code, output = apply(SSL_CERT_FILE=str(ca))
        self.assertNotEqual(code, 0)
        self.assertIn("410", output)
        self.assertTrue(self.tower.proxy.stop())
        log = (self.folder / "access.log").read_text()
        self.assertEqual(log.count('"path":"/import/..."'), 3, log)
        for text in (log, self.tower.proxy.output()):
            self.assertNotIn(Path(url).name, text)

    def test_ended_urls(self) -> None:
        """A URL that has expired with its token, or was revoked, creates nothing."""
        ca = self.folder / "ca.crt"
        argv = ("join", "alpha", "--output-url", "--ca-file", str(ca))
        expired, revoked = self.tower.tower(*argv, "--ttl", "1ms"), self.tower.tower(*argv)
        (row,) = self.tower.tower("join-token", "list", "--cluster", "alpha").splitlines()[1:]
        self.tower.tower("join-token", "revoke", row.split()[0])
        for url, answer in ((expired, "410"), (revoked, "404")):
            apply = [str(kubectls()[0]), f"--kubeconfig={self.host.kubeconfig}", "apply", "-f", url.strip()]
            done = run(apply, environment={"SSL_CERT_FILE": str(ca)})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(answer, done.stderr.decode())
        self.assertEqual(self.host.get("namespace", NAMESPACE), ABSENT)

    def remove_namespace(self) -> None:
        """Remove what the manifest created, without it."""
        self.host.delete("namespace", NAMESPACE)
        self.host.kubectl("delete", "clusterrole,clusterrolebinding", "tower-agent")

"""The agent's manifest at a real API server: from nothing to kubectl through Tower, and removed again."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.integration import harness
from tests.integration.manifest_pods import ManifestPod
from tests.integration.member import Running, kubectls
from tests.integration.programs import run

NAMESPACE = "tower-system"


class ManifestTests(harness.TowerTestCase):
    """Manifests of ``tower join`` with a Deployment whose pods the test runs as processes."""

    timeout = 300

    def setUp(self) -> None:
        """Start a proxy and an API server."""
        super().setUp()
        folder = Path(tempfile.mkdtemp(prefix="tower-member-"))
        self.addCleanup(shutil.rmtree, folder, True)
        running = Running(folder, "--bare")
        self.addCleanup(running.halt)
        running.start()
        self.member = running.member
        self.tower.tower("cluster", "add", "alpha")
        self.count = 0

    def get(self, *arguments: str) -> Any:
        """Return objects, read without Tower."""
        return json.loads(self.member.kubectl("-n", NAMESPACE, "get", *arguments, "-o", "json"))

    def start_pod(self) -> ManifestPod:
        """Start another pod of the Deployment."""
        self.count += 1
        number = os.getpid() * 8 + self.count
        address = f"127.{64 + (number >> 16) % 64}.{(number >> 8) % 256}.{number % 256}"
        deployment = self.get("deployment", "tower-agent")
        pod = ManifestPod(self.member, deployment, self.folder, f"agent-{self.count}", address)
        self.addCleanup(pod.program.stop)
        pod.program.start()
        return pod

    def keys(self) -> dict[str, int]:
        """Return the number of tunnels of each enrolled key."""
        listed = json.loads(self.tower.tower("cluster", "agents", "alpha", "-o", "json"))
        return {item["metadata"]["name"]: len(item["status"].get("tunnels", ())) for item in listed["items"]}

    def through_tower(self, group: str) -> tuple[int, str]:
        """Return exit code and output of kubectl through Tower by jane of a group."""
        kubeconfig = self.tower.kubeconfig("alpha", "jane", "--group", group)
        argv = [str(kubectls()[-1]), f"--kubeconfig={kubeconfig}", "get", "namespaces", "-o", "name"]
        done = run(argv, environment={"KUBECACHEDIR": str(self.folder / "cache")})
        return done.returncode, (done.stdout + done.stderr).decode()

    def new_tower(self) -> harness.Tower:
        """Return a proxy with an access log."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(f"--access-log={self.folder / 'access.log'}")
        return tower

    def test_url(self) -> None:
        """An import URL is applied once by kubectl that trusts the proxy's CA; no log has its secret."""
        ca = self.folder / "ca.crt"
        url = self.tower.tower("join", "alpha", "--output-url", "--ca-file", str(ca)).strip()
        oldest = str(kubectls()[0])

        def apply(**environment: str) -> tuple[int, str]:
            argv = [oldest, f"--kubeconfig={self.member.admin}", "apply", "-f", url]
            done = run(argv, environment={"KUBECACHEDIR": str(self.folder / "cache"), **environment})
            return done.returncode, (done.stdout + done.stderr).decode()

        self.assertIn("x509", apply()[1])
        head = run(["curl", "-fsS", "--head", "--cacert", str(ca), url])
        self.assertIn(b"no-store", head.stdout)
        code, output = apply(SSL_CERT_FILE=str(ca))
        self.assertEqual(code, 0, output)
        self.start_pod().wait_until_ready()
        code, output = apply(SSL_CERT_FILE=str(ca))
        self.assertNotEqual(code, 0)
        self.assertIn("410", output)
        self.assertTrue(self.tower.proxy.stop())
        log = (self.folder / "access.log").read_text()
        self.assertEqual(log.count('"path":"/import/..."'), 3, log)
        for text in (log, self.tower.proxy.output()):
            self.assertNotIn(url.rsplit("/", 1)[1], text)

    def test_life(self) -> None:
        """Late rights, two replicas with one key, a replaced pod without a token, and the removal."""
        manifest = self.tower.tower("join", "alpha", "--format", "manifest", "--impersonate-groups", "dev")
        objects = [item for item in yaml.safe_load_all(manifest) if item is not None]
        dry = self.member.kubectl(
            "apply", "--dry-run=server", "-o", "name", "-f", "-", stdin=manifest.encode()
        )
        self.assertEqual(len(dry.split()), len(objects), dry)
        # without the rights to the Secret, both replicas wait, with the cure
        early = [item for item in objects if item["kind"] != "RoleBinding"]
        self.member.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(early).encode())
        pods = [self.start_pod() for _ in range(self.get("deployment", "tower-agent")["spec"]["replicas"])]
        for pod in pods:
            pod.wait_for_log("not allowed to get Secret")
            self.assertIn("tower join alpha --format manifest", pod.program.output())
            self.assertTrue(pod.live())
            self.assertFalse(pod.ready())
        self.member.kubectl("apply", "-f", "-", stdin=manifest.encode())
        for pod in pods:
            pod.wait_until_ready()
        # both have the key in the Secret, which used the token up
        data = self.get("secret", "tower-agent-key")["data"]
        self.assertIn(b"OPENSSH PRIVATE KEY", base64.b64decode(data["agent-key"]))
        ((key, tunnels),) = self.keys().items()
        self.assertEqual(tunnels, 2)
        code, output = self.through_tower("dev")
        self.assertEqual(code, 0, output)
        self.assertIn("namespace/tower-system", output)
        code, output = self.through_tower("ops")
        self.assertNotEqual(code, 0)
        self.assertIn("impersonate group ops", output)
        # a deleted pod comes back without a token; applying again keeps the key
        token = self.get("secret", "tower-agent-join")["data"]["token"]
        for pod in pods:
            self.assertNotIn(base64.b64decode(token).decode(), pod.program.output())
            pod.program.kill()
        self.member.kubectl("apply", "-f", "-", stdin=manifest.encode())
        self.member.kubectl("-n", NAMESPACE, "delete", "secret", "tower-agent-join")
        pod = self.start_pod()
        pod.wait_until_ready()
        self.assertEqual(list(self.keys()), [key])
        self.assertEqual(self.get("secret", "tower-agent-key")["data"]["agent-key"], data["agent-key"])
        self.assertTrue(pod.program.stop())
        # nothing is left, not even a Secret
        self.member.kubectl(
            "delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=manifest.encode()
        )
        left = {
            (item["kind"], item["metadata"]["name"])
            for item in self.get(
                "serviceaccounts,secrets,roles,rolebindings,deployments,networkpolicies,poddisruptionbudgets"
            )["items"]
        }
        self.assertEqual(left, {("ServiceAccount", "mighty-agent")})
        names = self.member.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
        self.assertNotIn("/tower-agent", names)

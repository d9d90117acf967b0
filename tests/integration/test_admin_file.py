"""The administrator's kubeconfig of the state directory, with real programs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.programs import run, wait_for

PODS = "/api/v1/namespaces/default/pods"


class AdminFileTests(harness.TowerTestCase):
    """A proxy whose modes of authorization allow nothing."""

    def new_tower(self) -> harness.Tower:
        """Return the proxy."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(harness.PATIENT, "--authorization-mode=AlwaysDeny")
        return tower

    def kubectl(self, file: Path, *arguments: str) -> str:
        """Run kubectl, which must succeed; return its output."""
        done = run([str(kubectls()[-1]), f"--kubeconfig={file}", *arguments])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def differs(self, file: Path, content: bytes) -> bool:
        """Return whether a file has another content."""
        return file.read_bytes() != content

    def test_always_works(self) -> None:
        """The file works if all requests into clusters are denied, and again after each revocation."""
        self.tower.add("alpha", member().agent)
        file = self.tower.state / "admin.kubeconfig"
        answer = self.tower.person("alpha", "jane", "--group", "dev").get(PODS)
        self.assertEqual(answer.status, 403)
        self.assertIn(b"Everything is forbidden.", answer.body)
        self.assertIn("alpha", self.kubectl(file, "get", "clusters"))
        for _ in range(2):
            before = file.read_bytes()
            replaced = partial(self.differs, file, before)
            listed = json.loads(self.kubectl(file, "get", "credentials", "-o", "json"))["items"]
            own = [each["metadata"]["name"] for each in listed if each["spec"]["user"] == "tower-admin"]
            run([str(kubectls()[-1]), f"--kubeconfig={file}", "delete", "credential", own[-1]])
            wait_for("the new file", replaced, 2)
            self.kubectl(file, "label", "--overwrite", "cluster", "alpha", "env=test")

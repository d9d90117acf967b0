"""Installation of Tower's CRDs and rights in a real host cluster, and their removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.member import Running, oldest_and_newest
from tests.integration.programs import run, script

NAMESPACE = "kubesphere-system"
TOKENS = "jointokens.tower.kubesphere.io"
CLUSTERS = "clusters.cluster.kubesphere.io"
REVISION = "tower.kubesphere.io/crd-revision"


class CRDTests(SynchronousTestCase):
    """``tower-proxy --install-crds`` with the least rights, and ``tower crds``."""

    def setUp(self) -> None:
        """Start an API server with the proxy's namespace and account."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        running = Running(self.folder, "--bare")
        self.addCleanup(running.halt)
        running.start()
        self.member = running.member
        self.member.kubectl("create", "namespace", NAMESPACE)
        self.member.kubectl("-n", NAMESPACE, "create", "serviceaccount", "tower")
        self.kubeconfig = self.member.access("tower", NAMESPACE).kubeconfig

    def install(self, code: int = 0) -> str:
        """Run the proxy for it; return its log."""
        done = run([script("tower-proxy"), "--install-crds", f"--kubeconfig={self.kubeconfig}"])
        log = done.stderr.decode()
        self.assertEqual(done.returncode, code, log)
        self.assertNotIn("Traceback", log)
        return log

    def tower(self, *arguments: str) -> bytes:
        """Return the output of the command."""
        done = run([script("tower"), *arguments])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def crds(self) -> dict[str, Any]:
        """Return the CRDs by name."""
        listed = json.loads(self.member.kubectl("get", "crd", "-o", "json"))["items"]
        return {each["metadata"]["name"]: each for each in listed}

    def change(self, name: str, revision: str | None, columns: list[dict[str, str]]) -> None:
        """Change a CRD as another version of Tower would."""
        patch = [
            {
                "op": "replace",
                "path": "/metadata/annotations",
                "value": {REVISION: revision} if revision else {},
            },
            {"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns},
        ]
        self.member.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps(patch))

    def columns(self, name: str) -> list[str]:
        """Return the columns of a CRD."""
        return [each["name"] for each in self.crds()[name]["spec"]["versions"][0]["additionalPrinterColumns"]]

    def test_crds(self) -> None:
        """CRDs are created and updated with the documented rights; newer ones and KubeSphere's are kept."""
        log = self.install(1)
        self.assertIn("grant the rights of 'tower rbac crds', or install the CRDs as an administrator", log)
        self.member.kubectl("apply", "-f", "-", stdin=self.tower("rbac", "crds"))
        log = self.install()
        self.assertIn(f"CRD {TOKENS} created", log)
        names = sorted(self.crds())
        self.assertIn(f"{len(names)} CRDs at {self.member.service}: {len(names)} installed or updated", log)
        self.member.kubectl("get", "clusters,jointokens", "-A")

        wanted = self.columns(TOKENS)
        other = [{"name": "Other", "type": "string", "jsonPath": ".spec.other"}]
        self.change(TOKENS, "0", other)
        self.change(CLUSTERS, None, other)
        self.change("settings.tower.kubesphere.io", "99", other)
        log = self.install()
        self.assertIn(f"CRD {TOKENS} updated to revision", log)
        self.assertEqual(self.columns(TOKENS), wanted)
        self.assertIn(f"CRD {CLUSTERS} of KubeSphere is kept", log)
        self.assertEqual(self.columns(CLUSTERS), ["Other"])
        self.assertIn("CRD settings.tower.kubesphere.io is newer (revision 99", log)
        self.assertEqual(self.columns("settings.tower.kubesphere.io"), ["Other"])

        self.printed(names, wanted)

    def printed(self, names: list[str], wanted: list[str]) -> None:
        """Let the oldest kubectl apply the printed CRDs over the installed ones, and remove all."""
        oldest = [str(oldest_and_newest()[0]), f"--kubeconfig={self.member.admin}"]
        for arguments in (("apply", "-f", "-"), ("apply", "--server-side", "--force-conflicts", "-f", "-")):
            applied = run([*oldest, *arguments], stdin=self.tower("crds", "--without-clusters"))
            self.assertEqual(applied.returncode, 0, applied.stderr)
        self.assertEqual(self.columns(TOKENS), wanted)
        self.assertEqual(self.columns(CLUSTERS), ["Other"])
        self.assertIn(f"{len(names)} CRDs at {self.member.service}: none installed", self.install())
        self.member.kubectl("delete", "-f", "-", stdin=self.tower("crds"))
        self.assertEqual(self.crds(), {})
        applied = run([*oldest, "apply", "-f", "-"], stdin=self.tower("crds"))
        self.assertEqual(applied.returncode, 0, applied.stderr)
        self.assertEqual(sorted(self.crds()), names)

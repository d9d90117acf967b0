"""Tower's own API with gitops-engine, the library with which Argo CD syncs, compares and prunes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from benchmarks.processes import build
from tests.integration import harness
from tests.integration.programs import wait_for

API_VERSION = "cluster.kubesphere.io/v1alpha1"


def manifest(name: str, *, enable: bool = True, **labels: str) -> dict[str, Any]:
    """Return the manifest of a cluster."""
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": {"enable": enable}}


class GitOpsTests(harness.TowerTestCase):
    """An application controller with the watch cache of Argo CD."""

    timeout = 900  # s; it is built once

    def setUp(self) -> None:
        """Start Tower and the controller."""
        super().setUp()
        program = build("tests/integration/gitops")
        admin = self.tower.state / "admin.kubeconfig"
        wait_for("the administrator's kubeconfig", admin.exists)
        self.log = self.folder / "gitops.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(program), f"--tower={admin}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
            )
        self.addCleanup(self.end)

    def end(self) -> None:
        """End the controller."""
        self.process.communicate(timeout=30)

    def answer(self, op: str, *manifests: dict[str, Any], server: bool = False) -> dict[str, Any]:
        """Run a command of the controller; return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        command = {"op": op, "manifests": manifests, "serverSide": server}
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.assertTrue(line, self.log.read_text())
        found: dict[str, Any] = json.loads(line)
        self.assertNotIn("error", found, found)
        return found

    def compared(self, *manifests: dict[str, Any], server: bool, synced: bool) -> None:
        """Wait until the controller has seen that the clusters are as in the manifests, or not."""

        def is_shown() -> bool:
            return bool(self.answer("compare", *manifests, server=server)["synced"] == synced)

        wait_for(f"a comparison with synced {synced}", is_shown)

    def cluster(self, name: str) -> dict[str, Any]:
        """Return a cluster as `tower` shows it."""
        found: dict[str, Any] = json.loads(self.tower.tower("cluster", "show", name, "-o", "json"))
        return found

    def test_application(self) -> None:
        """Sync, comparison, drift and pruning, with client-side and server-side apply."""
        for server in (False, True):
            alpha, beta = manifest("alpha", env="prod"), manifest("beta")
            for one in (alpha, beta):
                self.compared(one, server=server, synced=False)
            results = self.answer("sync", alpha, beta, server=server)["results"]
            self.assertEqual({result.split(":")[0] for result in results.values()}, {"Synced"}, results)
            self.compared(alpha, beta, server=server, synced=True)
            self.assertEqual(self.cluster("alpha")["metadata"]["labels"], {"env": "prod"})
            # another administrator changes a cluster: the controller's watch shows it
            self.tower.tower("cluster", "disable", "alpha")
            self.compared(alpha, beta, server=server, synced=False)
            self.answer("sync", alpha, beta, server=server)
            self.compared(alpha, beta, server=server, synced=True)
            self.assertTrue(self.cluster("alpha")["spec"]["enable"])
            # an invalid manifest fails in the dry run, and names the field
            wrong = self.answer("sync", alpha, beta, manifest("Gamma"), server=server)["results"]
            self.assertIn("cluster name 'Gamma'", wrong["Gamma"])
            # clusters without a manifest are pruned
            results = self.answer("sync", beta, server=server)["results"]
            self.assertEqual(results["alpha"], "Pruned: pruned")
            self.assertEqual(self.answer("sync", server=server)["results"]["beta"], "Pruned: pruned")
            self.assertEqual(json.loads(self.tower.tower("cluster", "list", "-o", "json"))["items"], [])

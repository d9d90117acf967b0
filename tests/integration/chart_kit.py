"""A chart rendered by Helm, checked by Helm, and accepted by a real API server."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

import tower
from tests.integration.helm import CHARTS, rendered, run_helm
from tests.integration.member import member

Objects = dict[tuple[str, str], dict[str, Any]]

#: The Prometheus operator's kind, without its schema.
SERVICE_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


class ChartCase(SynchronousTestCase):
    """Renders a chart."""

    def text(self, chart: str, values: dict[str, Any]) -> str:
        """Return the manifest."""
        done = rendered(chart, values)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def objects(self, chart: str, values: dict[str, Any], **more: Any) -> Objects:
        """Return the objects by kind and name, with *more* values."""
        found = [item for item in yaml.safe_load_all(self.text(chart, {**values, **more})) if item]
        by_name = {(item["kind"], item["metadata"]["name"]): item for item in found}
        self.assertEqual(len(by_name), len(found))
        for (kind, name), item in by_name.items():
            self.assertEqual(item["metadata"]["labels"]["app.kubernetes.io/part-of"], "tower")
            if not kind.startswith("Cluster"):
                # events of objects without a namespace are in this one
                namespace = "default" if name.endswith("-events") else "system"
                self.assertEqual(item["metadata"]["namespace"], namespace)
        return by_name

    def rejected(self, chart: str, values: dict[str, Any]) -> str:
        """Return the error about the values."""
        done = rendered(chart, values)
        self.assertNotEqual(done.returncode, 0, values)
        self.assertEqual(done.stdout, b"")
        return done.stderr.decode()

    def pod(self, objects: Objects, name: str) -> dict[str, Any]:
        """Return the pod of a Deployment, whose selector must select it."""
        spec = objects["Deployment", name]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        self.assertLessEqual(spec["selector"]["matchLabels"].items(), labels.items())
        pod: dict[str, Any] = spec["template"]["spec"]
        (container,) = pod["containers"]
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertEqual(
            container["securityContext"],
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        )
        self.assertEqual({volume["name"] for volume in pod.get("volumes", [])}, self.mounted(container))
        return pod

    def mounted(self, container: dict[str, Any]) -> set[str]:
        """Return the names of the mounted volumes."""
        return {mount["name"] for mount in container.get("volumeMounts", [])}

    def ports(self, service: dict[str, Any]) -> dict[str, int]:
        """Return the ports of a Service by name."""
        return {port["name"]: port["port"] for port in service["spec"]["ports"]}

    def versions(self, chart: str) -> None:
        """Check that the chart installs this version of Tower, and has the same version in Helm's form."""
        about = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())
        number, _, development = tower.__version__.partition(".dev")
        self.assertEqual(about["appVersion"], tower.__version__)
        self.assertEqual(about["version"], f"{number}-dev.{development}" if development else number)

    def lint(self, chart: str, values: dict[str, Any]) -> None:
        """Check that Helm finds nothing to improve."""
        home = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, home, True)
        (home / "values.yaml").write_text(json.dumps(values))
        words = ("lint", "--strict", str(CHARTS / chart), f"--values={home / 'values.yaml'}")
        done = run_helm(*words, home=home)
        self.assertEqual(done.returncode, 0, done.stdout.decode() + done.stderr.decode())

    def accepted(self, chart: str, *combinations: dict[str, Any]) -> None:
        """Check that a real API server accepts all objects with each of some values; it stores none."""
        cluster = member()
        for item in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}},
            SERVICE_MONITORS,
        ):
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(item).encode())
        cluster.kubectl("wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com")
        manifests = [self.text(chart, values) for values in combinations]
        whole = "\n---\n".join(manifests)
        words = ("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
        names = cluster.kubectl(*words, stdin=whole.encode()).split()
        self.assertEqual(len(names), len([item for item in yaml.safe_load_all(whole) if item]))
        self.assertGreater(len(names), 4 * len(combinations))
        self.assertEqual(cluster.kubectl("-n", "system", "get", "deployments", "-o", "name"), "")

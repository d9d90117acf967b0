"""Tower's own API with real clients: kubectl, and a controller written with controller-runtime."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import build
from tests.integration import harness
from tests.integration.member import oldest_and_newest
from tests.integration.programs import Program, run, wait_for

GROUP = "cluster.kubesphere.io"
NAMED = f"cluster.{GROUP}/alpha"
KINDS = (
    "clusters",
    "agents",
    "jointokens",
    "kubeconfigs",
    "credentials",
    "nodes",
    "hostkeys",
    "rotations",
    "accesspolicies",
    "loginsessions",
    "accessreviews",
    "events",
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
)
CONTROLLER = "tests/integration/controller"


def manifest(name: str = "alpha", *, enable: bool = True, **labels: str) -> bytes:
    """Return the manifest of a cluster."""
    metadata = {"name": name, "labels": labels}
    spec = {"enable": enable}
    return json.dumps(
        {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Cluster", "metadata": metadata, "spec": spec}
    ).encode()


class ToolsTestCase(harness.TowerTestCase):
    """Runs kubectl as Tower's administrator."""

    def setUp(self) -> None:
        """Start Tower without clusters."""
        super().setUp()
        self.admin = self.tower.state / "admin.kubeconfig"
        wait_for("the administrator's kubeconfig", self.admin.exists)

    def argv(self, kubectl: Path, *arguments: str) -> list[str]:
        """Return a command line of kubectl."""
        cache = self.folder / f"cache-{kubectl.name}"
        return [str(kubectl), f"--kubeconfig={self.admin}", f"--cache-dir={cache}", *arguments]

    def attempt(self, kubectl: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run kubectl; return exit code and both outputs."""
        done = run(self.argv(kubectl, *arguments), folder=self.folder, stdin=stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def kubectl(self, kubectl: Path, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl, which must succeed; return its output."""
        code, out, error = self.attempt(kubectl, *arguments, stdin=stdin)
        self.assertEqual(code, 0, f"{kubectl} {arguments}: {error}{out}{self.tower.proxy.tail()}")
        return out

    def cluster(self, kubectl: Path, *options: str) -> dict[str, Any]:
        """Return the object of alpha."""
        found: dict[str, Any] = json.loads(
            self.kubectl(kubectl, "get", "cluster", "alpha", "-o", "json", *options)
        )
        return found


class KubectlAdminTests(ToolsTestCase):
    """The commands of kubectl that change and explain clusters."""

    def everything(self, kubectl: Path) -> None:
        """Run all commands."""
        self.apply(kubectl)
        self.edit(kubectl)
        self.follow(kubectl)
        self.remove(kubectl)
        self.look(kubectl)

    def apply(self, kubectl: Path) -> None:
        """Apply on the server: conflicts, force, diff, dry run."""
        apply = ("apply", "--server-side", "-f", "-")
        out = self.kubectl(kubectl, *apply, "--dry-run=server", stdin=manifest(env="prod"))
        self.assertIn("server dry run", out)
        self.assertIn(
            f"{NAMED} serverside-applied", self.kubectl(kubectl, *apply, stdin=manifest(env="prod"))
        )
        code, out, error = self.attempt(
            kubectl, "diff", "--server-side", "-f", "-", stdin=manifest(env="prod")
        )
        self.assertEqual((code, out), (0, ""), error)
        code, out, _ = self.attempt(kubectl, "diff", "--server-side", "-f", "-", stdin=manifest(env="dev"))
        self.assertEqual(code, 1)
        self.assertIn("+    env: dev", out)
        code, _, error = self.attempt(
            kubectl, *apply, "--field-manager=other", stdin=manifest(env="test", more="1")
        )
        self.assertEqual(code, 1)
        self.assertIn('conflict with "kubectl": .metadata.labels.env', error)
        self.kubectl(
            kubectl,
            *apply,
            "--field-manager=other",
            "--force-conflicts",
            stdin=manifest(env="test", more="1"),
        )
        found = self.cluster(kubectl, "--show-managed-fields")["metadata"]
        self.assertEqual(found["labels"], {"env": "test", "more": "1"})
        self.assertEqual({each["manager"] for each in found["managedFields"]}, {"kubectl", "other"})

    def edit(self, kubectl: Path) -> None:
        """Replace, JSON patch, merge patch, labels, client-side apply, dry runs, unknown fields."""
        value = self.cluster(kubectl)
        value["metadata"]["labels"] = {"replaced": "yes"}
        self.kubectl(kubectl, "replace", "-f", "-", stdin=json.dumps(value).encode())
        code, _, error = self.attempt(kubectl, "replace", "-f", "-", stdin=json.dumps(value).encode())
        self.assertEqual(code, 1)
        self.assertIn("Conflict", error)
        patch = json.dumps(
            [
                {"op": "test", "path": "/metadata/labels/replaced", "value": "yes"},
                {"op": "replace", "path": "/spec/enable", "value": False},
            ]
        )
        self.kubectl(kubectl, "patch", "cluster", "alpha", "--type=json", "-p", patch)
        self.kubectl(kubectl, "patch", "cluster", "alpha", "--type=merge", "-p", '{"spec":{"enable":true}}')
        code, _, error = self.attempt(kubectl, "patch", "cluster", "alpha", "-p", "{}")
        self.assertEqual(code, 1)
        self.assertIn("application/strategic-merge-patch+json is not supported", error)
        self.kubectl(kubectl, "label", "cluster", "alpha", "a=1", "replaced-")
        self.kubectl(kubectl, "annotate", "cluster", "alpha", "note=x")
        self.kubectl(kubectl, "apply", "-f", "-", stdin=manifest(applied="yes"))
        found = self.cluster(kubectl)
        self.assertEqual(found["metadata"]["labels"], {"a": "1", "applied": "yes"})
        self.assertEqual(found["metadata"]["generation"], 3)
        self.kubectl(kubectl, "label", "cluster", "alpha", "b=1", "--dry-run=server")
        self.assertEqual(self.cluster(kubectl), found)
        wrong = json.dumps({**json.loads(manifest("beta")), "spec": {"enabled": True}}).encode()
        code, _, error = self.attempt(kubectl, "create", "-f", "-", stdin=wrong)
        self.assertEqual(code, 1)
        self.assertIn('unknown field "spec.enabled"', error)

    def follow(self, kubectl: Path) -> None:
        """Watch with types of events, wait for a condition, subresource of the status."""
        watching = Program(
            f"watch-{kubectl.name}",
            self.argv(kubectl, "get", "clusters", "-w", "--output-watch-events"),
            self.folder,
        )
        watching.start()
        self.addCleanup(watching.stop)
        wait_for("the first event", lambda: "ADDED" in watching.output())
        self.kubectl(kubectl, "label", "cluster", "alpha", "c=1")
        wait_for("the change", lambda: "MODIFIED" in watching.output())
        condition = "--for=condition=KubernetesAPIServerPortOpen"
        self.kubectl(kubectl, "wait", condition, "cluster/alpha", "--timeout=30s")
        patch = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}}
        self.kubectl(
            kubectl,
            "patch",
            "cluster",
            "alpha",
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps(patch),
        )
        self.kubectl(kubectl, "wait", "--for=condition=Ready", "cluster/alpha", "--timeout=30s")

    def remove(self, kubectl: Path) -> None:
        """Delete with finalizers, with each propagation, with selectors; chunks and field selectors."""
        for name in ("beta", "gamma", "delta"):
            self.kubectl(kubectl, "create", "-f", "-", stdin=manifest(name, spare="yes"))
        out = self.kubectl(kubectl, "get", "clusters", "-o", "name", "--chunk-size=1")
        self.assertEqual(len(out.split()), 4)
        out = self.kubectl(kubectl, "get", "clusters", "-o", "name", "--field-selector=metadata.name=beta")
        self.assertEqual(out.split(), [f"cluster.{GROUP}/beta"])
        patch = '{"metadata":{"finalizers":["example.org/x"]}}'
        self.kubectl(kubectl, "patch", "cluster", "beta", "--type=merge", "-p", patch)
        self.kubectl(kubectl, "delete", "cluster", "beta", "--wait=false")
        found = self.kubectl(
            kubectl, "get", "cluster", "beta", "-o", "jsonpath={.metadata.deletionTimestamp}"
        )
        self.assertTrue(found)
        patch = '[{"op":"remove","path":"/metadata/finalizers"}]'
        self.kubectl(kubectl, "patch", "cluster", "beta", "--type=json", "-p", patch)
        self.kubectl(kubectl, "wait", "--for=delete", "cluster/beta", "--timeout=30s")
        self.kubectl(kubectl, "delete", "cluster", "gamma", "--cascade=foreground")
        self.kubectl(kubectl, "delete", "clusters", "-l", "spare=yes", "--cascade=orphan")
        out = self.kubectl(kubectl, "get", "clusters", "-o", "name")
        self.assertEqual(out.split(), [NAMED])
        self.revoke(kubectl)

    def revoke(self, kubectl: Path) -> None:
        """Delete credentials and join tokens: a dry run revokes none."""
        self.tower.tower("join", "alpha")
        for kind in ("credentials", "jointokens"):
            names = self.kubectl(kubectl, "get", kind, "-o", "name")
            self.assertTrue(names)
            out = self.kubectl(kubectl, "delete", kind, "--all", "--dry-run=server")
            self.assertIn("server dry run", out)
            self.assertEqual(self.kubectl(kubectl, "get", kind, "-o", "name"), names)
        self.kubectl(kubectl, "delete", "jointokens", "--all")
        self.assertEqual(self.kubectl(kubectl, "get", "jointokens", "-o", "name"), "")

    def look(self, kubectl: Path) -> None:
        """Explain all kinds, events, the user's identity and rights, kinds without a name."""
        for kind in KINDS:
            out = self.kubectl(kubectl, "explain", kind, "--recursive")
            self.assertIn("metadata", out, kind)
        out = self.kubectl(kubectl, "explain", "events", "--api-version=events.k8s.io/v1")
        self.assertIn("regarding", out)
        out = self.kubectl(kubectl, "explain", "clusters.spec.connection.ssh.user")
        self.assertIn("SSH user on the nodes.", out)
        self.assertRegex(self.kubectl(kubectl, "get", "events"), r"PortAssigned +cluster/alpha")
        self.assertRegex(self.kubectl(kubectl, "describe", "cluster", "alpha"), r"PortAssigned .*tower-proxy")
        self.assertIn("tower:admins", self.kubectl(kubectl, "auth", "whoami"))
        self.assertIn("yes", self.kubectl(kubectl, "auth", "can-i", "update", "clusters"))
        code, out, _ = self.attempt(kubectl, "auth", "can-i", "create", "pods")
        self.assertEqual((code, out.split()[0]), (1, "no"))
        self.assertIn(f"credentials.{GROUP}", self.kubectl(kubectl, "auth", "can-i", "--list"))
        self.assertIn("tower-admin", self.kubectl(kubectl, "get", "credentials"))
        self.kubectl(kubectl, "get", "agents,nodes,hostkeys")
        body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "JoinToken", "spec": {"cluster": "alpha"}}
        made = self.kubectl(
            kubectl, "create", "-f", "-", "-o", "json", "--validate=false", stdin=json.dumps(body).encode()
        )
        self.assertTrue(json.loads(made)["status"]["token"])

    def test_oldest(self) -> None:
        """The oldest kubectl that users may have."""
        self.everything(oldest_and_newest()[0])

    def test_newest(self) -> None:
        """The newest kubectl."""
        self.everything(oldest_and_newest()[1])


class ControllerTests(ToolsTestCase):
    """A controller with a cache, updates, applies, status writes and a finalizer."""

    timeout = 900  # s; it is built once

    def test_controller(self) -> None:
        """It brings each cluster to its desired state, follows changes, and finalizes deletions."""
        program = build(CONTROLLER)
        _, newest = oldest_and_newest()
        self.kubectl(newest, "create", "-f", "-", stdin=manifest())
        controller = Program("controller", [str(program), f"--tower={self.admin}"], self.folder)
        controller.start()
        self.addCleanup(controller.stop)
        self.kubectl(newest, "create", "-f", "-", stdin=manifest("beta"))
        for name in ("alpha", "beta"):
            wait_for(
                f"the status of {name}",
                lambda name=name: (
                    self.steps(controller, name)[-1:] == ["applied"]  # type: ignore[misc]
                    and "status updated" in self.steps(controller, name)
                ),
            )
            steps = self.steps(controller, name)
            self.assertLessEqual(
                {"updated", "applied", "patched", "status patched", "status updated"}, set(steps), steps
            )
        found = self.cluster(newest, "--show-managed-fields")
        self.assertEqual(found["metadata"]["labels"], {"example.org/seen": "true"})
        self.assertEqual(found["metadata"]["annotations"], {"example.org/noted": "true"})
        self.assertEqual(found["metadata"]["finalizers"], ["example.org/registered"])
        conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        self.assertEqual((conditions["Registered"], conditions["Inventoried"]), ("True", "True"))
        self.assertIn("KubernetesAPIServerPortOpen", conditions)
        owners = {
            (each["manager"], each.get("subresource", "")) for each in found["metadata"]["managedFields"]
        }
        self.assertIn(("example-controller", ""), owners)
        self.check_events(newest, controller)
        wait_for("the last change", lambda: self.has_settled(newest), 10)
        self.kubectl(newest, "delete", "cluster", "alpha", "--timeout=60s")
        wait_for("the end of alpha", lambda: self.steps(controller, "alpha")[-1] == "gone")
        self.assertIn("finalized", self.steps(controller, "alpha"))

    def has_settled(self, kubectl: Path) -> bool:
        """Return whether no program changes the cluster for a while."""
        before = self.cluster(kubectl)["metadata"]["resourceVersion"]
        time.sleep(1)
        return bool(self.cluster(kubectl)["metadata"]["resourceVersion"] == before)

    def check_events(self, kubectl: Path, controller: Program) -> None:
        """Check that the events of both recorders are listed, counted, and selected by the cluster."""

        def recorded() -> dict[str, dict[str, Any]]:
            selector = "involvedObject.kind=Cluster,involvedObject.name=alpha,source=example-controller"
            text = self.kubectl(kubectl, "get", "events", f"--field-selector={selector}", "-o", "json")
            return {item["reason"]: item for item in json.loads(text)["items"]}

        wait_for("the events of the controller", lambda: {"Adopted", "Unlabeled"} <= set(recorded()))
        events = recorded()
        self.assertEqual(events["Adopted"]["message"], "The controller has adopted alpha.")
        self.assertEqual((events["Unlabeled"]["type"], events["Adopted"]["type"]), ("Warning", "Normal"))
        self.assertRegex(
            self.kubectl(kubectl, "describe", "cluster", "alpha"), "Warning +Unlabeled .*example-controller"
        )
        for problem in ("Server rejected event", "unable to record", "Unable to write event"):
            self.assertNotIn(problem, controller.output())

    def steps(self, controller: Program, name: str) -> list[str]:
        """Return the steps that the controller has reported for a cluster."""
        lines = [line for line in controller.output().splitlines() if line.startswith('{"name"')]
        return [each["step"] for each in map(json.loads, lines) if each["name"] == name]

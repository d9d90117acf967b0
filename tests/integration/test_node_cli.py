"""The command line, and kubectl, with clusters that are reached by SSH to their nodes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import yaml

from tests.integration import harness
from tests.integration.member import kubectls
from tests.integration.node_fleet_kit import CLUSTER
from tests.integration.programs import run

TOKEN = "a-token-that-nobody-may-see"
FLAGS = (
    ("--ssh-host-keys", "accept-new"),
    ("--ssh-port", "2222"),
    ("--nodes", "node1,[fd00::2]:22,10.0.0.3"),
    ("--node-address-types", "InternalIP,Hostname"),
    ("--kubelet-port", "0"),
    ("--target", "web=10.0.0.9:80"),
)


class CommandTests(harness.TowerTestCase):
    """A proxy alone: there is no node."""

    def setUp(self) -> None:
        """Write a kubeconfig for a member."""
        super().setUp()
        self.member = self.kubeconfig({"token": TOKEN})
        self.addCleanup(self.check_secrets)

    def kubeconfig(self, user: dict[str, object]) -> Path:
        """Write the kubeconfig of a user of the member."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": "https://10.0.0.1:6443"}}],
            "users": [{"name": "tower", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "tower"}}],
            "current-context": "it",
        }
        path = self.folder / "member.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def words(self, *extra: str) -> list[str]:
        """Return the arguments that add the cluster."""
        words = ["cluster", "add", CLUSTER, "--type", "ssh", "--ssh-user", "core"]
        words += ["--ssh-keyfile", "id", "--member-kubeconfig", str(self.member)]
        return [*words, *extra]

    def refusal(self, *words: str) -> str:
        """Run a command that fails with one line, and exit code 1 or 2; return that line."""
        code, out, error = self.tower.try_tower(*words)
        self.assertIn(code, (1, 2), error)
        self.assertEqual(out, "", error)
        self.assertEqual(error.count("\n"), 1, error)
        return error

    def check_secrets(self) -> None:
        """The member's credential is in no log, and in no file of the proxy."""
        files = [self.tower.proxy.log, *(path for path in self.tower.state.rglob("*") if path.is_file())]
        for secret in (TOKEN.encode(), base64.b64encode(TOKEN.encode())[:-4]):
            self.assertEqual([path for path in files if secret in path.read_bytes()], [])
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def ssh(self) -> dict[str, object]:
        """Return how the cluster is reached."""
        spec: dict[str, object] = self.tower.status(CLUSTER)["spec"]["connection"]["ssh"]
        return spec

    def test_flags(self) -> None:
        """The flags of `cluster add` are in the cluster's object, and can be changed one by one."""
        self.tower.tower(*self.words(*(word for pair in FLAGS for word in pair)))
        first = self.ssh()
        self.assertEqual(first["user"], "core")
        self.assertEqual(first["hostKeys"], "accept-new")
        self.assertEqual(first["nodes"], ["node1", "[fd00::2]:22", "10.0.0.3"])
        self.assertEqual(first["targets"], {"web": "10.0.0.9:80"})
        listed = self.tower.node_files / "nodes"
        listed.write_text("node1\n")
        self.tower.tower("cluster", "set", CLUSTER, "--nodes-file", str(listed))
        second = self.ssh()
        self.assertEqual(second["nodesFile"], str(listed))
        kept = {name: value for name, value in first.items() if name != "nodes"}
        self.assertEqual({name: second.get(name) for name in kept}, kept)
        self.assertNotIn("nodes", second)
        shown = self.tower.tower("cluster", "show", CLUSTER)
        for text in ("node1:2222", "core", "10.0.0.1:6443"):
            self.assertIn(text, shown)

    def test_refused(self) -> None:
        """An invalid flag is rejected with one line that names it, and nothing is added."""
        nodes = self.tower.node_files / "nodes"
        for extra, word in (
            (("--nodes", "node1,node1:22"), "node1"),
            (("--nodes", "core@node1"), "user"),
            (("--nodes", "node1", "--nodes-file", str(nodes)), "--nodes-file"),
            (("--cloud-provider", "clouds-r-us"), "clouds-r-us"),
            (("--cloud-config", str(nodes)), "--cloud-provider"),
            (("--ssh-host-keys", "maybe"), "maybe"),
            (("--target", "kubernetes=10.0.0.1:1"), "kubernetes"),
        ):
            self.assertIn(word, self.refusal(*self.words(*extra)), extra)
        helper = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "helper"}}
        self.kubeconfig(dict(helper))
        self.assertIn("exec", self.refusal(*self.words("--nodes", "node1")))
        self.assertNotIn(CLUSTER, self.tower.tower("cluster", "list"))
        self.tower.tower("cluster", "add", "alpha")
        self.assertIn("alpha", self.refusal("cluster", "set", "alpha", "--nodes", "node1"))

    def test_no_agents(self) -> None:
        """Agents cannot join such a cluster, and an unknown node has no host key to forget."""
        self.tower.tower(*self.words("--nodes", "node1"))
        self.assertIn("ssh", self.refusal("join", CLUSTER))
        self.assertIn("node9", self.refusal("cluster", "forget-host-key", CLUSTER, "node9"))

    def test_kubectl(self) -> None:
        """The same with kubectl: the credential goes in, and does not come out again."""
        kubectl = [str(kubectls()[-1]), f"--kubeconfig={self.tower.admin().kubeconfig}"]
        ssh = {"user": "core", "keyFile": str(self.tower.node_files / "id"), "nodes": ["node1"]}
        access = base64.b64encode(self.member.read_bytes()).decode()
        manifest = {
            "apiVersion": "cluster.kubesphere.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": CLUSTER},
            "spec": {"connection": {"type": "ssh", "ssh": ssh, "kubeconfig": access}},
        }
        for nodes in (["node1"], ["node1", "node2"]):
            ssh["nodes"] = nodes
            done = run([*kubectl, "apply", "-f", "-"], stdin=json.dumps(manifest).encode())
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.ssh()["nodes"], nodes)
        shown = run([*kubectl, "get", "clusters", CLUSTER, "-o", "json"]).stdout.decode()
        self.assertEqual(json.loads(shown)["metadata"]["name"], CLUSTER)
        self.assertNotIn(access, shown)
        self.assertNotIn(TOKEN, shown)

"""The policy of a member's owner with real programs: proxy, agent, API server and kubectl."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.programs import LOOPBACK, run, wait_for

SOON = 3.0  # s from a change to the end of watches and commands: 2 s, and the machine's delays
BIG = 500_000  # B, more than the window of a stream
EXEC = ("exec", "-i", "shell", "-c", "main", "--")
PODS = ("get", "pods")
MAP = "agent-policy"
OWNER = "forbidden by the owner of cluster alpha: "


def document(*rules: dict[str, Any]) -> str:
    """Return a policy with these rules."""
    return json.dumps(
        {"apiVersion": "tower.kubesphere.io/v1alpha1", "kind": "AgentPolicy", "spec": {"allow": rules}}
    )


class OwnerPolicyTests(harness.TowerTestCase):
    """Jane, in the group dev, may do everything in the cluster, and more than its owner's agent allows."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower whose proxy is patient."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(harness.PATIENT)
        return tower

    def setUp(self) -> None:
        """Find the API server and kubectl."""
        self.member = member()
        super().setUp()
        self.program = str(kubectls()[-1])
        self.running: list[subprocess.Popen[bytes]] = []
        self.addCleanup(self.end)

    def end(self) -> None:
        """End the commands that still run."""
        for each in self.running:
            each.kill()
            each.communicate()

    def begin(self, *options: str) -> None:
        """Start the agent with these options."""
        self.agent = self.tower.add("alpha", self.member.agent, *options)
        self.jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")

    def kubectl(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run kubectl as Jane; return its exit code and both outputs."""
        done = run([self.program, f"--kubeconfig={self.jane}", *arguments], stdin=stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def works(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl, which must succeed; return its output."""
        code, out, error = self.kubectl(*arguments, stdin=stdin)
        self.assertEqual(code, 0, error)
        return out

    def refused(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl, which the owner's policy must forbid; return the reason."""
        code, _, error = self.kubectl(*arguments, stdin=stdin)
        self.assertNotEqual(code, 0)
        self.assertIn(OWNER, error)
        return error.partition(OWNER)[2].splitlines()[0]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of kubectl that does not end by itself."""
        started = subprocess.Popen(
            [self.program, f"--kubeconfig={self.jane}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.running.append(started)
        return started

    def exec(self) -> subprocess.Popen[bytes]:
        """Start an exec; return it once it works."""
        command = self.start(*EXEC, "cat")
        assert command.stdin is not None and command.stdout is not None  # noqa: PT018
        command.stdin.write(b"hello\n")
        command.stdin.flush()
        self.assertEqual(command.stdout.readline(), b"hello\n")
        return command

    def page(self) -> str:
        """Return the agent's verbose health page."""
        try:
            with urlopen(f"http://{LOOPBACK}:{self.agent.health_port}/readyz?verbose") as answer:
                text: bytes = answer.read()
        except HTTPError as e:
            text = e.read()
        except OSError:
            return ""  # it does not listen yet
        return text.decode()

    def test_file(self) -> None:
        """Levels, namespaces and streams by a file, which is followed; a broken file changes nothing."""
        policy = self.folder / "policy.yaml"
        policy.write_text("kind: AgentPolicy\n")
        self.tower.tower("cluster", "add", "broken")
        broken = self.tower.agent("broken", self.member.agent, f"--policy-file={policy}")
        broken.program.start()
        wait_for("the end of the agent", lambda: not broken.program.running())
        self.assertIn(f"--policy-file {policy}: apiVersion: None: must be", broken.program.output())

        policy.write_text(document({"access": "read-only"}))
        self.begin(f"--policy-file={policy}")
        self.assertIn("shell", self.works(*PODS))
        self.assertIn("yes", self.works("auth", "can-i", "delete", "pods"))
        text = 'user "jane" must not delete pods in namespace "default": the agent\'s policy permits only'
        self.assertEqual(self.refused("delete", "pod", "shell"), f"{text} read-only access")
        self.assertIn("pods/exec", self.refused(*EXEC, "true"))
        big = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "big"},
            "data": {"a": "b" * BIG},
        }
        text = self.refused("create", "-f", "-", stdin=json.dumps(big).encode())
        self.assertIn("must not create configmaps", text)

        policy.write_text(document({"access": "no-exec", "namespaces": ["default"]}, {"targets": ["db"]}))
        self.until_refused("in the namespace default", "get", "nodes")
        self.works("create", "configmap", "owner-policy")
        self.works("delete", "configmap", "owner-policy")
        self.assertIn("pods/exec", self.refused(*EXEC, "true"))
        self.assertIn("list pods", self.refused(*PODS, "--all-namespaces"))
        self.assertIn("kube-system", self.refused(*PODS, "-n", "kube-system"))

        policy.write_text(document({"subjects": [{"kind": "User", "name": "jane"}]}))
        wait_for("the new policy", lambda: self.kubectl("get", "nodes")[0] == 0)
        watch, command = self.start(*PODS, "--watch"), self.exec()
        assert watch.stdout is not None
        self.assertIn(b"NAME", watch.stdout.readline())
        policy.write_text(document({"access": "no-exec"}))
        command.wait(SOON)
        self.assertIsNone(watch.poll())

        policy.write_text("kind: [")
        wait_for("the warning", lambda: "is not YAML" in self.page())
        self.assertIn("[+]policy ok, warning: --policy-file", self.page())
        self.assertIn("its last content stays in use", self.agent.program.output())
        self.works(*PODS)
        self.refused(*EXEC, "true")
        policy.write_text(document({"subjects": [{"kind": "User", "name": "joe"}]}))
        self.until_refused('is for user "jane"', *PODS)
        wait_for("the end of the watch", lambda: watch.poll() is not None)
        self.assertIn("[+]policy ok\n", self.page())

    def until_refused(self, reason: str, *arguments: str) -> None:
        """Wait until the owner's policy forbids a command for this reason, soon."""

        def is_refused() -> bool:
            _, _, error = self.kubectl(*arguments)
            return OWNER in error and reason in error

        wait_for(reason, is_refused, 5 * SOON, 0.1)

    def test_config_map(self) -> None:
        """A ConfigMap of the member: everything is forbidden before it exists; changes count soon."""
        owner = self.member.kubectl
        name = f"{MAP}-{os.getpid()}"
        account = "tower-system:tower-agent"
        self.addCleanup(owner, "delete", "configmap,role,rolebinding", name, "--ignore-not-found")
        self.tower.tower("cluster", "add", "alpha")
        self.agent = self.tower.agent("alpha", self.member.agent, f"--policy-config-map=default/{name}")
        self.agent.program.start()
        wait_for("the tunnel", lambda: "[+]tunnel ok" in self.page())
        wait_for("the lack of rights", lambda: "grant get, list and watch" in self.page())
        self.assertIn("[-]policy failed: ConfigMap", self.page())
        self.jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        self.assertIn("the agent has not read its policy yet", self.refused(*PODS))
        self.assertIn("has not read its policy yet", self.refused("version"))
        verbs = "--verb=get,list,watch"
        owner("create", "role", name, verbs, "--resource=configmaps", f"--resource-name={name}")
        owner("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={account}")
        wait_for("the lack of the ConfigMap", lambda: "does not exist: create it" in self.page(), 60)
        own = {"access": "no-exec", "namespaces": ["default"]}
        owner("create", "configmap", name, f"--from-literal=policy.yaml={document({}, own)}")
        wait_for("the policy", lambda: "[+]policy ok" in self.page())
        self.assertIn("shell", self.works(*PODS))

        owner("apply", "-f", "-", stdin=self.map_of(name, document({})))
        self.until_refused("no rule of the policy names the namespace", "delete", "configmap", name)
        command = self.start(*PODS, "--all-namespaces", "--watch")
        assert command.stdout is not None
        self.assertIn(b"NAME", command.stdout.readline())
        owner("apply", "-f", "-", stdin=self.map_of(name, document(own)))
        command.wait(SOON)
        self.assertIn("in the namespace default", self.refused("get", "nodes"))
        owner("apply", "-f", "-", stdin=self.map_of(name, "spec: 1"))
        wait_for("the warning", lambda: "policy.yaml: apiVersion: None: must be" in self.page())
        owner("delete", "configmap", name)
        wait_for("the warning", lambda: "was deleted: create it again" in self.page())
        self.assertIn("shell", self.works(*PODS))
        self.assertIn("the last policy stays in use", self.agent.program.output())

    def map_of(self, name: str, text: str) -> bytes:
        """Return the ConfigMap with a policy."""
        metadata = {"name": name, "namespace": "default"}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": text}}
        return json.dumps(value).encode()

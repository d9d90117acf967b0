"""The main job with real programs: kubectl through proxy and agent to a real API server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration import harness
from tests.integration.kubernetes_tower import CRDS, NAMESPACE, KubernetesTower
from tests.integration.matrix import Matrix
from tests.integration.member import kubectls, member
from tests.integration.programs import run


class MatrixTestCase(harness.TowerTestCase):
    """The agent runs with the rights of ``deploy/agent-rbac.yaml`` and nothing else."""

    def setUp(self) -> None:
        """Put the real cluster behind the proxy as alpha."""
        self.member = member()
        super().setUp()
        self.tower.add("alpha", self.member.agent)

    def matrix(self, kubectl: Path, via: str, auth: str) -> None:
        """Run every kubectl operation; all must be ok or have a reason to be skipped."""
        options = ("--via", via, "--auth", auth)
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev", *options)
        weak = self.tower.kubeconfig("alpha", "jane", "--group", "team", *options)
        since = self.member.audit_size()
        matrix = Matrix(self.folder, self.member, kubectl, jane, weak)
        matrix.start()
        self.addCleanup(matrix.stop)
        self.assertEqual(matrix.failed(), [], f"{kubectl} via {via} with {auth}")
        self.assertEqual(self.member.acted(self.member.least, since), {"jane"})


class KubectlTests(MatrixTestCase):
    """The proxy keeps its records in SQLite."""

    def test_front_door_newest(self) -> None:
        """The newest kubectl here works through the front door with a certificate."""
        self.matrix(kubectls()[-1], "front-door", "cert")

    def test_port_oldest(self) -> None:
        """The oldest kubectl here works through the cluster's own port with a token."""
        self.matrix(kubectls()[0], "port", "token")

    def test_agent_cannot_act_for_itself(self) -> None:
        """The documented rights let the agent impersonate, and nothing more."""
        argv = [str(kubectls()[-1]), f"--kubeconfig={self.member.agent}", "auth", "can-i"]
        self.assertEqual(run([*argv, "impersonate", "users"]).stdout.strip(), b"yes")
        for right in (["list", "pods", "-A"], ["get", "secrets"], ["impersonate", "serviceaccounts"]):
            self.assertEqual(run([*argv, *right]).stdout.strip(), b"no", right)

    def test_token_stays_with_the_agent(self) -> None:
        """The member's token is neither in the proxy's memory, nor in its log, nor on its disk (hole 3)."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        for _ in range(20):
            self.assertEqual(jane.get("/api/v1/namespaces/default/pods").status, 200)
        secret = self.member.least.token.encode()
        self.assertTrue(self.tower.agents[0].program.holds(secret))  # so the search finds what is there
        self.assertFalse(self.tower.proxy.holds(secret))
        for path in self.tower.state.rglob("*"):
            self.assertFalse(path.is_file() and secret in path.read_bytes(), path)
        self.assertNotIn(self.member.least.token, self.tower.proxy.output())

    def test_join_token_is_nowhere(self) -> None:
        """The join token is not in the arguments of any running process, nor in any log."""
        agent = self.tower.agents[0]
        (token,) = (value for name, value in agent.environment.items() if name == "TOWER_TOKEN")
        for program in (self.tower.proxy, agent.program):
            self.assertNotIn(token.encode(), Path(f"/proc/{program.pid}/cmdline").read_bytes())
            self.assertNotIn(token, program.output())

    def test_restarted_agent_needs_no_token(self) -> None:
        """An agent that is enrolled connects by its key; the token is spent."""
        agent = self.tower.agents[0]
        agent.program.stop()
        agent.forget_token()
        agent.program.start()
        agent.wait_until_ready()
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.assertEqual(jane.get("/version").status, 200)


class HostStoreTests(MatrixTestCase):
    """The proxy keeps its records in the real cluster, which is also behind it.

    With each store, both kubectls, paths and credentials are used.
    """

    def new_tower(self) -> harness.Tower:
        """Prepare the host cluster; return the proxy."""
        self.member.kubectl("apply", "-f", str(CRDS))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(namespace).encode())
        return KubernetesTower(self.folder, self.member.admin)

    def setUp(self) -> None:
        """Remove the record in the end."""
        super().setUp()
        self.addCleanup(self.tower.tower, "cluster", "remove", "alpha", "--yes")

    def test_port_newest(self) -> None:
        """The newest kubectl here works through the cluster's own port with a certificate."""
        self.matrix(kubectls()[-1], "port", "cert")

    def test_front_door_oldest(self) -> None:
        """The oldest kubectl here works through the front door with a token."""
        self.matrix(kubectls()[0], "front-door", "token")

"""The proxy's view of broken members, with an agent, with an old agent and by SSH: list, conditions, log."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from tests.integration import harness
from tests.integration.member import AGENT_RIGHTS, Running
from tests.integration.node_fleet_kit import CLUSTER as NODES
from tests.integration.node_fleet_kit import NodeFleet
from tests.integration.old_peers import OldAgent
from tests.integration.ports import free_port
from tests.integration.programs import wait_for

NOTICED = 30.0  # s until a change shows
AGENT, OLD = "alpha", "gamma"
CLUSTERS = (AGENT, NODES, OLD)


class ClusterHealthTests(harness.TowerTestCase):
    """Three clusters with the same real API server."""

    def setUp(self) -> None:
        """Start the API server, a node, and both agents."""
        super().setUp()
        folder = Path(tempfile.mkdtemp(prefix="tower-member-"))
        self.addCleanup(shutil.rmtree, folder, True)
        self.cluster = Running(folder, "--bare")
        self.cluster.start()
        self.addCleanup(self.cluster.halt)
        self.member = self.cluster.member
        self.kubeconfig = self.folder / "agent.kubeconfig"
        self.write_token(self.kubeconfig, self.member.least.token)
        self.tower.tower("cluster", "add", AGENT)
        self.tower.agent(AGENT, self.kubeconfig).program.start()
        self.fleet = NodeFleet(self.tower.node_files, 1, port=free_port())
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        self.fleet.add_to(self.tower, self.member.least.kubeconfig)
        self.tower.tower("cluster", "add", OLD)
        self.old = self.old_agent(self.member.least.token_file)
        self.wait("True", *(("Ready", ""),) * 3)

    def write_token(self, path: Path, token: str) -> None:
        """Write a kubeconfig with *token*."""
        config = json.loads(self.member.least.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = token
        new = path.with_suffix(".new")
        new.touch(0o600)
        new.write_text(json.dumps(config))
        new.replace(path)

    def old_agent(self, token: Path) -> OldAgent:
        """Start an old agent; return when it is connected."""
        words = shlex.split(self.tower.tower("join", OLD, "--protocol", "v1"))
        flags = dict(zip(words[1::2], words[2::2], strict=True))
        agent = OldAgent(
            self.folder,
            flags["--proxy-server"],
            flags["--name"],
            flags["--token"],
            self.member.service,
            ca=self.member.ca,
            bearer=token,
        )
        self.addCleanup(agent.program.stop)
        agent.program.start()
        agent.wait_until_ready()
        return agent

    def rows(self) -> dict[str, dict[str, str]]:
        """Return the cells of `tower cluster list` by cluster and column."""
        head, *lines = self.tower.tower("cluster", "list", "-o", "wide").splitlines()
        names = [name for name in head.split("   ") if name]
        starts = [head.index(name) for name in names]
        ends = [*starts[1:], None]
        cells = [
            {name.strip(): line[a:b].strip() for name, a, b in zip(names, starts, ends, strict=True)}
            for line in lines
        ]
        return {row["NAME"]: row for row in cells}

    def condition(self, cluster: str, kind: str) -> dict[str, Any]:
        """Return a condition; empty if there is none yet."""
        conditions = self.tower.status(cluster)["status"]["conditions"]
        return next((dict(each) for each in conditions if each["type"] == kind), {})

    def wait(self, available: str, *expected: tuple[str, str]) -> None:
        """Return once each cluster has this status, reason and part of a cure, and the list has them, too."""
        wanted = dict(zip(CLUSTERS, expected, strict=True))
        found: dict[str, tuple[str, str, str]] = {}

        def is_shown() -> bool:
            for name in CLUSTERS:
                sum_ = self.condition(name, "Available")
                found[name] = sum_.get("status", ""), sum_.get("reason", ""), sum_.get("message", "")
            return all(
                found[name][0] == available and found[name][1] in reason.split("|") and cure in found[name][2]
                for name, (reason, cure) in wanted.items()
            )

        try:
            wait_for("the conditions", is_shown, NOTICED, 0.2)
        except AssertionError as e:
            raise AssertionError(f"{e}: {wanted} expected, {found} found") from e
        rows = self.rows()
        for name, (status, reason, message) in found.items():
            shown = ("<none>", "<none>") if reason == "Ready" else (reason, message)
            row = rows[name]
            self.assertEqual((row["AVAILABLE"], row["REASON"], row["MESSAGE"]), (status, *shown))

    def log_has(self, text: str) -> None:
        """Assert that the proxy's log has *text* for each cluster."""
        log = self.tower.proxy.output()
        for name in CLUSTERS:
            self.assertIn(f"cluster {name} is {text}", log)

    def test_breakages(self) -> None:
        """Each problem shows in time with its cure, and so does each repair."""
        for name, row in self.rows().items():
            self.assertRegex(row["VERSION"], r"^v1\.[0-9]+\.[0-9]+$")
            self.assertEqual(row["LAST SEEN"], "now")
            for kind in ("APIServerReachable", "MemberCredential", "ImpersonationAllowed"):
                self.assertEqual(self.condition(name, kind)["status"], "True")
        self.log_has("available: Ready")
        self.break_credentials()
        self.stop_server()

    def break_credentials(self) -> None:
        """Delete the right to impersonate, which one cluster needs, and replace the tokens of the others."""
        wrong, config = self.folder / "wrong.token", self.folder / "wrong.kubeconfig"
        wrong.write_text("wrong")
        self.write_token(config, "wrong")
        good = self.member.least
        self.member.kubectl("delete", "clusterrolebinding", "tower-agent")
        self.wait("False", *(("ImpersonationDenied", "-rbac.yaml"),) * 3)
        self.log_has("not available: ImpersonationDenied: ")
        for name in CLUSTERS:
            self.assertEqual(self.condition(name, "ImpersonationAllowed")["status"], "False")
            self.assertEqual(self.condition(name, "MemberCredential")["status"], "True")
        self.use_token(wrong, config)
        cures = ("renew the agent's token", f"cluster set {NODES} --member-kubeconfig", "restart the agent")
        self.wait("False", *(("CredentialRejected", cure) for cure in cures))
        self.log_has("not available: CredentialRejected: ")
        self.member.kubectl("apply", "-f", str(AGENT_RIGHTS))
        self.use_token(good.token_file, good.kubeconfig)
        self.wait("True", *(("Ready", ""),) * 3)

    def use_token(self, token: Path, kubeconfig: Path) -> None:
        """Replace the token of each cluster; the old agent is started again, as its cure demands."""
        self.write_token(self.kubeconfig, token.read_text())
        self.tower.tower("cluster", "set", NODES, "--member-kubeconfig", str(kubeconfig))
        self.old.program.stop()
        self.old = self.old_agent(token)

    def stop_server(self) -> None:
        """Stop the API server from running, then end it, and start it again."""
        process = self.member.info["pids"]["kube-apiserver"]
        os.kill(process, signal.SIGSTOP)
        try:
            self.wait("False", *(("Timeout", "frozen"),) * 3)
            self.log_has("not available: Timeout: ")
        finally:
            os.kill(process, signal.SIGCONT)
        self.cluster.halt()
        self.ask(502, 503)
        self.wait("False", *(("ConnectionRefused|Unreachable", ""),) * 3)
        for row in self.rows().values():
            self.assertEqual((row["VERSION"][:3], row["LAST SEEN"]), ("v1.", "now"))
        self.cluster.resume()
        self.ask(200)
        self.wait("True", *(("Ready", ""),) * 3)

    def ask(self, *codes: int) -> None:
        """Send a user's request to each cluster, whose outcome is a reason to check it at once."""
        for name in CLUSTERS:
            self.assertIn(self.tower.person(name, "jane", "--group", "dev").get("/version").status, codes)

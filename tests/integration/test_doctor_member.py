"""``tower doctor`` with a real API server: sound set-ups, and broken ones on the agent's machine."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.chains import family, pem
from tests.integration import harness
from tests.integration.guide import Guide
from tests.integration.member import AGENT_RIGHTS, member
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, run, script, wait_for

CLOCKWORK = Path(__file__).resolve().parent / "clockwork"
HOUR = 3600.0  # s


class DoctorMemberTests(harness.TowerTestCase):
    """A running agent of a real cluster."""

    def setUp(self) -> None:
        """Start the agent."""
        super().setUp()
        self.member = member()
        self.path = self.tower.folder / "alpha.kubeconfig"
        self.path.touch(0o600)
        self.path.write_bytes(self.member.agent.read_bytes())
        self.agent = self.tower.add("alpha", self.path)

    def doctor(self, *words: str, environment: dict[str, str] | None = None) -> list[str]:
        """Return the lines that are not fine."""
        done = run([script("tower"), "doctor", *words], folder=self.tower.folder, environment=environment)
        lines = done.stdout.decode().splitlines()
        self.assertGreater(len(lines), 10, done.stderr)
        failed = [line for line in lines if line.startswith("FAIL")]
        self.assertEqual(done.returncode, int(bool(failed)), lines)
        return [line for line in lines if not line.startswith(("ok", "skip"))]

    def on_agent(self, **variables: str) -> list[str]:
        """Return the lines of the agent's machine that are not fine."""
        words = self.agent.argv[self.agent.argv.index("--name") :]
        return self.doctor("--agent", *words, environment={**self.agent.environment, **variables})

    def changed(self, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
        """Change cluster and user of the agent's kubeconfig."""
        config = json.loads(self.member.agent.read_text())
        change(config["clusters"][0]["cluster"], config["users"][0]["user"])
        self.path.write_text(json.dumps(config))

    def test_sound(self) -> None:
        """A cluster, its agent and its user have no findings."""
        state = ("--state-dir", str(self.tower.state))
        wait_for("the doctor's consent", lambda: not self.doctor("alpha", *state))
        self.assertEqual(self.on_agent(), [])
        user = self.tower.kubeconfig("alpha", "jane")
        self.assertEqual(self.doctor("--kubeconfig", str(user)), [])
        self.assertEqual(len(self.tower.tower("cluster", "agents", "alpha").splitlines()), 2)

    def test_broken(self) -> None:
        """Each broken access to the API server is one line with its cure."""
        other = base64.b64encode(pem(family()[0][0])).decode()
        port = free_port()
        for change, texts in (
            (lambda _, user: user.update(token="wrong"), ("credential: ", "create token")),
            (
                lambda cluster, _: cluster.update({"certificate-authority-data": other}),
                ("API server: ", "certificate-authority"),
            ),
            (
                lambda cluster, _: cluster.update(server=f"https://{LOOPBACK}:{port}"),
                ("API server: ", "refuses connections", "--kubernetes-service"),
            ),
        ):
            self.changed(change)
            (line,) = self.on_agent()
            for text in texts:
                self.assertIn(text, line)
            if "create token" in texts:
                self.apply(line)
                self.assertEqual(self.on_agent(), [])
        self.changed(lambda *_: None)
        step = self.tower.folder / "step"
        step.write_text(str(HOUR))
        places = os.pathsep.join([str(CLOCKWORK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        (line,) = self.on_agent(PYTHONPATH=places, CLOCK_STEP=str(step))
        self.assertRegex(line, "clock: this machine is (59|60|61)m ahead")
        self.assertIn("timedatectl set-ntp true", line)

    def apply(self, line: str) -> None:
        """Run the commands of a cure as an administrator of the cluster does."""
        self.as_administrator("; ".join(re.findall("'((?:tower|kubectl) [^']+)'", line)))

    def as_administrator(self, commands: str) -> None:
        """Run *commands* in a shell with the administrator's kubeconfig."""
        places = os.pathsep.join([str(Path(script("tower")).parent), os.environ["PATH"]])
        environment = {"KUBECONFIG": str(self.member.admin), "PATH": places}
        done = run(["sh", "-e", "-c", commands], environment=environment, folder=self.tower.folder)
        self.assertEqual(done.returncode, 0, (commands, done.stderr))

    def test_guide(self) -> None:
        """The commands of the guide make a kubeconfig that an agent can use, without the administrator's."""
        blocks = Guide("install.md", self.tower.folder, {}, {}).blocks["A cluster"]
        self.as_administrator(next(block for block in blocks if "config unset users" in block))
        made = self.tower.folder / "agent.kubeconfig"
        self.assertEqual(made.stat().st_mode & 0o777, 0o600)
        self.assertEqual(
            [user["name"] for user in yaml.safe_load(made.read_text())["users"]], ["tower-agent"]
        )
        self.path.write_bytes(made.read_bytes())
        self.assertEqual(self.on_agent(), [])

    def test_no_rights(self) -> None:
        """Missing rights are one line, on the agent's machine and for the cluster."""
        self.member.kubectl("delete", "clusterrolebinding", "tower-agent")
        self.addCleanup(self.member.kubectl, "apply", "-f", str(AGENT_RIGHTS))
        (line,) = self.on_agent()
        self.assertIn("impersonation: ", line)
        self.assertIn("tower rbac agent | kubectl apply -f -", line)
        self.apply(line)
        self.assertEqual(self.on_agent(), [])

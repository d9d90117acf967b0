"""The agent's health page and log while its member is broken, and after repairs."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fakes.chains import family, pem
from tests.integration import harness
from tests.integration.member import AGENT_RIGHTS, Running
from tests.integration.programs import LOOPBACK, Program, wait_for

CLOCKWORK = Path(__file__).resolve().parent / "clockwork"
NOTICED = 30.0  # s until a change shows
HOUR = 3600.0  # s


class Watched:
    """An agent with its own kubeconfig, which the test changes.

    :ivar config: the content of the kubeconfig, when everything works.
    """

    def __init__(self, tower: harness.Tower, cluster: str, kubeconfig: Path, step: Path) -> None:
        self.tower, self.cluster = tower, cluster
        self.path = tower.folder / f"{cluster}.kubeconfig"
        self.path.touch(0o600)
        self.path.write_bytes(kubeconfig.read_bytes())
        self.config: dict[str, Any] = json.loads(kubeconfig.read_text())
        self.step = step
        tower.tower("cluster", "add", cluster)
        self.agent = tower.agent(cluster, self.path)
        places = os.pathsep.join([str(CLOCKWORK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**self.agent.environment, "PYTHONPATH": places, "CLOCK_STEP": str(step)}
        self.agent.program = Program(self.agent.name, self.agent.argv, tower.folder, environment)
        self.agent.program.start()

    def write(self, *, token: str = "", authority: bytes = b"") -> None:
        """Write the kubeconfig, with changes."""
        config = json.loads(json.dumps(self.config))
        if token:
            config["users"][0]["user"]["token"] = token
        if authority:
            data = base64.b64encode(authority).decode()
            config["clusters"][0]["cluster"]["certificate-authority-data"] = data
        new = self.path.with_suffix(".new")
        new.touch(0o600)
        new.write_text(json.dumps(config))
        new.replace(self.path)

    def page(self, path: str = "/readyz") -> tuple[int, str]:
        """Return status and text of the health page."""
        connection = http.client.HTTPConnection(LOOPBACK, self.agent.health_port, timeout=NOTICED)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def available(self) -> tuple[str, str]:
        """Return status and message of the cluster's condition ``Available``."""
        conditions = self.tower.status(self.cluster)["status"]["conditions"]
        (found,) = (each for each in conditions if each["type"] == "Available")
        return found["status"], found["message"]

    def fails(self, *parts: str, cure: str = "") -> bool:
        """Return whether page, log and the proxy's condition name a problem and its cure.

        :param cure: of the agent; that of the condition is the proxy's own.
        """
        code, text = self.page()
        if code != 503 or any(part not in text for part in (*parts, cure)):
            return False
        status, message = self.available()
        log = self.agent.program.output()
        return status == "False" and cure in log and all(part in log and part in message for part in parts)

    def works(self) -> bool:
        """Return whether the page and the proxy's condition show that the cluster can be used."""
        return self.page()[0] == 200 and self.available()[0] == "True"


class MemberHealthTests(harness.TowerTestCase):
    """Three agents of one real API server, with different problems, then the same."""

    def setUp(self) -> None:
        """Start an API server and the agents."""
        super().setUp()
        folder = Path(tempfile.mkdtemp(prefix="tower-member-"))
        self.addCleanup(shutil.rmtree, folder, True)
        self.cluster = Running(folder, "--bare")
        self.cluster.start()
        self.addCleanup(self.cluster.halt)
        self.member = self.cluster.member
        self.step = self.folder / "step"
        self.step.touch()
        self.agents = [
            Watched(self.tower, "alpha", self.member.least.kubeconfig, self.step),
            Watched(self.tower, "beta", self.member.cluster_admin.kubeconfig, self.step),
            Watched(self.tower, "gamma", self.member.cluster_admin.kubeconfig, self.step),
        ]
        self.users = [
            self.tower.person(name, "jane", "--group", "dev") for name in ("alpha", "beta", "gamma")
        ]
        self.every("ready", Watched.works)

    def every(self, what: str, check: Callable[[Watched], bool]) -> None:
        """Return once *check* is true of all agents, in time."""
        wait_for(what, lambda: all(check(each) for each in self.agents), NOTICED, 0.2)

    def test_breakages(self) -> None:
        """Each problem shows in time with its cure, on the page and in the log, and so does each repair."""
        self.break_credentials()
        self.freeze_server()
        self.stop_server()

    def break_credentials(self) -> None:
        """Delete the rights of one agent, and give the others a wrong token and a wrong CA.

        Finally their clocks are wrong: everything works, with a warning.
        """
        no_rights, wrong_token, wrong_authority = self.agents
        self.member.kubectl("delete", "clusterrolebinding", "tower-agent")
        wrong_token.write(token="wrong")
        wrong_authority.write(authority=pem(family()[0][0]))
        cures = {
            no_rights: ("impersonate users and groups", "kubectl apply -f deploy/agent-rbac.yaml"),
            wrong_token: ("(401)", "create token"),
            wrong_authority: ("CA that is not trusted", "gamma.kubeconfig"),
        }
        self.every("the problems", lambda each: each.fails(cures[each][0], cure=cures[each][1]))
        self.assertIn(cures[no_rights][1], no_rights.available()[1])
        self.assertIn("renew the agent's token", wrong_token.available()[1])
        code, text = no_rights.page("/readyz?verbose")
        self.assertEqual(code, 503)
        self.assertEqual(text.splitlines()[:3], ["[+]tunnel ok", "[+]api-server ok", "[+]credential ok"])
        self.assertIn("[-]impersonation failed: ", text)
        self.step.write_text(str(HOUR))
        self.member.kubectl("apply", "-f", str(AGENT_RIGHTS))
        for watched in (wrong_token, wrong_authority):
            watched.write()
        self.every("the repairs", Watched.works)
        self.every("a warning about the clocks", lambda each: "60m ahead" in each.page()[1])
        log = no_rights.agent.program.output()
        self.assertEqual(log.count("(ImpersonationDenied)"), 1)
        self.assertEqual(log.count("(ImpersonationAllowed)"), 2)

    def freeze_server(self) -> None:
        """Stop the API server from running, for a time."""
        self.step.write_text("0")
        process = self.member.info["pids"]["kube-apiserver"]
        os.kill(process, signal.SIGSTOP)
        try:
            self.every("the frozen server", lambda each: each.fails("in time", "frozen"))
        finally:
            os.kill(process, signal.SIGCONT)
        self.ask(200)
        self.every("its answers", lambda each: each.page() == (200, "ok\n"))

    def stop_server(self) -> None:
        """End the API server and start it again."""
        self.cluster.halt()
        self.ask(502, 503)
        self.every("the end", lambda each: each.fails("refuses connections", "start the API server"))
        self.cluster.resume()
        self.ask(200)
        self.every("the start", lambda each: each.page() == (200, "ok\n"))

    def ask(self, *codes: int) -> None:
        """Send a user's request through each agent, which shows the agents the state of the API server."""
        for user in self.users:
            self.assertIn(user.get("/version").status, codes)

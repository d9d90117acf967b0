"""The reason in the output of kubectl if a stream cannot begin, and the end of a stream that breaks."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.integration import harness
from tests.integration.member import member, oldest_and_newest
from tests.integration.person import Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run, wait_for
from tests.integration.relay import Relay

MAIN = ("shell", "-c", "main")
BEGINNINGS = (
    ("exec", *MAIN, "--", "echo", "x"),
    ("attach", *MAIN),
    ("port-forward", "shell", ":80"),
    ("cp", "/etc/hostname", "shell:/tmp/x", "-c", "main"),
)
REASON = re.compile(
    r'cluster alpha: the agent cannot reach the API server: the agent of alpha reports: "[^"]+": '
    r"check that the API server runs, and its address in the kubeconfig of the agent "
    r"\(request [0-9a-f-]{36}\)"
)
SOON = 8.0  # s


class StreamErrorTests(harness.TowerTestCase):
    """Kubectl 1.27, which uses SPDY, and the newest, which uses WebSockets."""

    def setUp(self) -> None:
        """Start an agent whose API server is behind a relay."""
        super().setUp()
        self.kubectls = oldest_and_newest()
        self.server = int(member().service.rpartition(":")[2])
        self.relay = Relay(self.server)
        self.addCleanup(self.relay.close)
        kubeconfig = self.folder / "relayed.kubeconfig"
        kubeconfig.touch(0o600)
        text = member().agent.read_text()
        kubeconfig.write_text(text.replace(member().service, f"{LOOPBACK}:{self.relay.port}"))
        self.agent = self.tower.add("alpha", kubeconfig)
        self.jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")

    def argv(self, kubectl: Path, *arguments: str) -> list[str]:
        """Return a command line."""
        cache = self.folder / f"cache-{kubectl.name}"
        return [str(kubectl), f"--kubeconfig={self.jane}", f"--cache-dir={cache}", *arguments]

    def test_refused(self) -> None:
        """A stream that cannot begin has the reason and the cure of Tower's answer once, and soon."""
        for kubectl in self.kubectls:
            for command in BEGINNINGS:
                self.relay.target = self.server
                done = run(self.argv(kubectl, "get", "pods"))  # leaves an idle connection
                self.assertEqual(done.returncode, 0, done.stderr)
                self.relay.target = free_port()
                began = time.monotonic()
                done = run(self.argv(kubectl, *command))
                text = (done.stdout + done.stderr).decode()
                self.assertEqual((done.returncode, len(REASON.findall(text))), (1, 1), f"{command}: {text}")
                self.assertEqual(text.count("API server"), 2, text)
                self.assertLess(time.monotonic() - began, SOON, f"{kubectl} {command}")

    def test_broken(self) -> None:
        """Streams end soon after the agent, and with an error, except those of kubectl's SPDY."""
        oldest, newest = self.kubectls
        endless = ("exec", *MAIN, "--", "sh", "-c", "while true; do echo line; sleep 0.1; done")
        follow = ("logs", "-f", "shell", "-c", "sidecar", "--tail=1")
        forward = ("port-forward", "shell", ":80")
        commands = [
            (newest, endless, "line", "error reading from error stream"),
            (newest, follow, "line", "error: "),
            (newest, forward, "Forwarding", "lost connection to pod"),
            (oldest, follow, "line", "error: "),
            (oldest, forward, "Forwarding", "lost connection to pod"),
            (oldest, endless, "line", ""),
        ]
        programs = [
            Program(f"stream-{number}", self.argv(kubectl, *command), self.folder)
            for number, (kubectl, command, *_) in enumerate(commands)
        ]
        for program, (_, _, begin, _) in zip(programs, commands, strict=True):
            program.start()
            self.addCleanup(program.stop)
            wait_for(f"the beginning of {program.argv}", lambda: begin in program.output())  # noqa: B023
        self.assertEqual(Person(self.jane).get("/api").status, 200)
        self.agent.program.kill()
        for program, (_, command, _, text) in zip(programs, commands, strict=True):
            code = program.wait(SOON)
            self.assertEqual(code, 1 if text else 0, f"{command}: {program.tail()}")
            self.assertIn(text, program.output())

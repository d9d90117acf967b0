"""Starts that are refused when the program runs already: one line, and an exit code."""

from __future__ import annotations

import yaml

from tests.integration.harness import TowerTestCase
from tests.integration.programs import LOOPBACK, Program, script

#: A proxy that loses its port between its check and its opening.
LATE = f"""
import socket
import sys

from twisted.application.service import Application

from tower.proxy import Options, makeService

application = Application("late")
options = Options()
options.parseOptions({{arguments!r}})
makeService(options).setServiceParent(application)
sys.taken = socket.create_server(("{LOOPBACK}", options["secure-port"]))
"""


class StartTests(TowerTestCase):
    """A proxy that has run once, and is started again."""

    def setUp(self) -> None:
        """Stop the proxy that ran; write a kubeconfig for a member."""
        super().setUp()
        self.member = self.folder / "member.kubeconfig"
        config = {
            "clusters": [{"name": "it", "cluster": {"server": "https://10.0.0.1:6443"}}],
            "users": [{"name": "tower", "user": {"token": "a-token"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "tower"}}],
            "current-context": "it",
        }
        self.member.write_text(yaml.safe_dump(config))

    def ssh(self, *extra: str) -> tuple[str, ...]:
        """Return the options of a cluster that is reached by SSH."""
        key = self.folder / "id"
        return ("--ssh-user=core", f"--ssh-keyfile={key}", "--nodes=127.0.0.1:1", *extra)

    def refusal(self, program: Program) -> str:
        """Start a program that ends by itself; return the line with the reason."""
        program.start()
        self.assertEqual(program.wait(), 1, program.tail())
        self.assertNotIn("Traceback", program.output())
        (line,) = (line for line in program.output().splitlines() if "cannot start" in line)
        return line

    def test_given_cluster(self) -> None:
        """A store that contradicts ``--ssh-user`` ends the start; the next start without it works."""
        self.tower.tower("cluster", "add", "alpha")
        self.tower.proxy.stop()
        for number, (extra, words) in enumerate(
            (
                ((), "cluster default does not exist yet: give --member-kubeconfig"),
                (("--ssh-cluster=alpha", f"--member-kubeconfig={self.member}"), "cluster alpha has an agent"),
            )
        ):
            program = self.tower.proxy_program(*self.ssh(*extra), name=f"refused-{number}")
            self.assertIn(words, self.refusal(program))
        self.tower.start()
        self.assertNotIn("default", self.tower.tower("cluster", "list"))

    def test_damaged_key(self) -> None:
        """A damaged file of secrets that is noticed late also gives one line."""
        self.tower.proxy.stop()
        (self.tower.state / "secrets.key").write_text("no key\n")
        program = self.tower.proxy_program(
            *self.ssh(f"--member-kubeconfig={self.member}"), name="refused-key"
        )
        self.assertIn("secrets.key", self.refusal(program))

    def test_port_taken_meanwhile(self) -> None:
        """A port that was free when the proxy looked, and is taken when it opens it, is one line."""
        self.tower.proxy.stop()
        script_file = self.folder / "late.tac"
        argv = self.tower.proxy_program().argv
        arguments = argv[1:]
        script_file.write_text(LATE.format(arguments=arguments))
        program = Program("late", [script("twistd"), "-n", "--pidfile=", "-y", str(script_file)], self.folder)
        self.assertIn(f"port {self.tower.secure_port}", self.refusal(program))

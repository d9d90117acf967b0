"""Tests for `tower.cli.login.chosen_context`, and for the commands that use contexts of a user."""

from __future__ import annotations

from pathlib import Path

import yaml
from attrs import evolve

from tests.fakes.cli import CommandTestCase, FakeConnection, FakeResponse
from tower.cli import doctor
from tower.cli.arguments import parser
from tower.cli.client import UsageFailed
from tower.cli.command import find_access
from tower.cli.login.chosen_context import ChosenContext, choose_context
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest import plugin_once

ADMIN = "https://127.0.0.1:8443"


class ChosenContextTests(CommandTestCase):
    """A command without --kubeconfig and --state-dir."""

    def setUp(self) -> None:
        """Write a kubeconfig with contexts of two Towers, an administrator's, and that of another server."""
        super().setUp()
        self.file = Path(self.mktemp()).absolute()
        self.environ["KUBECONFIG"] = str(self.file)
        self.write("tower/alpha")

    def write(self, current: str) -> None:
        """Write the file."""
        servers = {
            "mine": "https://127.0.0.1:6443",
            "tower": ADMIN,
            "tower/alpha": f"{ADMIN}/clusters/alpha",
            "tower/beta": f"{ADMIN}/clusters/beta",
            "other/beta": "https://other/clusters/beta",
        }
        entries = {name: {"cluster": name, "user": name} for name in servers}
        content = {
            "current-context": current,
            "clusters": [{"name": name, "cluster": {"server": server}} for name, server in servers.items()],
            "users": [{"name": name, "user": {"token": name}} for name in servers],
            "contexts": [{"name": name, "context": entry} for name, entry in entries.items()],
        }
        self.file.write_text(yaml.safe_dump(content))

    def chosen(self, *words: str) -> ChosenContext | None:
        """Return what is chosen for a command line."""
        return choose_context(parser(self.environ).parse_args(words), self.environ)

    def forwarded(self, *words: str) -> str:
        """Return the server of a forward to a cluster."""
        options = parser(self.environ).parse_args(words)
        return find_access(options, self.environ).server

    def test_forward(self) -> None:
        """The current context is used if it is for the cluster, else the only one that is, else --context."""
        line = ("pg", "--listen", "0")
        self.assertEqual(self.forwarded("forward", "alpha", *line), f"{ADMIN}/clusters/alpha")
        self.write("tower/beta")
        self.assertEqual(self.forwarded("forward", "beta", *line), f"{ADMIN}/clusters/beta")
        self.assertEqual(self.forwarded("forward", "alpha", *line), f"{ADMIN}/clusters/alpha")
        self.write("mine")
        said = self.wrong("forward", "beta", *line, state=False)
        self.assertIn("give --context with one of tower/beta, other/beta", said)
        server = self.forwarded("--context", "other/beta", "forward", "beta", *line)
        self.assertEqual(server, "https://other/clusters/beta")
        self.write("tower/alpha")
        said = self.wrong("forward", "gamma", *line, state=False)
        self.assertIn(f"{self.file} has no context for cluster gamma: log in with 'tower login", said)
        said = self.wrong("--context", "tower/alpha", "forward", "gamma", *line, state=False)
        self.assertIn(f"for cluster alpha only: {self.file} --context tower/alpha", said)

    def test_plugin(self) -> None:
        """The credential is that of the context's plugin."""
        content = yaml.safe_load(self.file.read_text())
        content["users"][2]["user"] = {"exec": {"command": "tower", "args": ["credential", "get"]}}
        self.file.write_text(yaml.safe_dump(content))

        def run_plugin(access: KubeAccess, environ: object) -> tuple[KubeAccess, float]:
            self.assertIs(environ, self.environ)
            return evolve(access, token="plugin"), 0.0

        self.patch(plugin_once, "with_credential", run_plugin)
        options = parser(self.environ).parse_args(["forward", "alpha", "pg", "--listen", "0"])
        self.assertEqual(find_access(options, self.environ).token, "plugin")

    def test_administrator(self) -> None:
        """Commands of administrators use the current context; a user's, or another server, is an error."""
        self.write("tower")
        code, out, err = self.run_tower("cluster", "add", "delta", state=False)
        self.assertEqual((code, err), (0, ""), out)
        code, out, _ = self.run_tower("--context", "tower", "cluster", "list", "-o", "name", state=False)
        self.assertEqual((code, out), (0, "delta\n"))
        self.write("tower/alpha")
        said = self.wrong("cluster", "add", "epsilon", state=False)
        self.assertIn("this kubeconfig is for cluster alpha only", said)
        self.write("mine")
        self.connection = FakeConnection(lambda *_: FakeResponse(200, b'{"resources": []}'))
        said = self.wrong("cluster", "add", "epsilon", state=False)
        self.assertIn("is a cluster's API server, not a Tower proxy", said)
        for code in (403, 503):
            self.connection = FakeConnection(lambda *_, code=code: FakeResponse(code, b"{}"))
            self.assertEqual(self.run_tower("cluster", "remove", "delta", "-y", state=False)[0], 1)
            self.assertEqual([method for method, *_ in self.connection.requests], ["GET"])
        self.write("")
        said = self.wrong("cluster", "add", "epsilon", state=False)
        self.assertIn("give --context with one of tower/alpha, tower/beta, other/beta", said)

    def test_state_directory(self) -> None:
        """With --state-dir, the kubeconfig of the user is not read."""
        self.file.write_text("{")
        self.assertIn("cluster alpha added", self.good("cluster", "add", "alpha"))

    def test_doctor(self) -> None:
        """A user's context is checked where no proxy is given; that of another server is not."""
        self.patch(doctor, "DEFAULT_STATE_DIR", str(self.file.parent / "none"))

        def examined(*words: str) -> ChosenContext | None:
            return doctor._person(parser(self.environ).parse_args(words), self.environ)

        expected = self.chosen("doctor")
        assert expected is not None
        self.assertEqual((expected.context, expected.cluster), (None, "alpha"))
        self.assertEqual(examined("doctor"), expected)
        self.assertEqual(examined("doctor", "alpha"), expected)
        beta = examined("--context", "tower/beta", "doctor")
        assert beta is not None
        self.assertEqual((beta.context, beta.cluster), ("tower/beta", "beta"))
        self.assertRaises(UsageFailed, examined, "doctor", "beta")
        self.assertIsNone(examined("--context", "tower", "doctor", "alpha"))
        self.assertIsNone(examined("--state-dir", self.state, "doctor"))
        self.assertIsNone(examined("--state-dir", self.state, "doctor", "alpha"))
        self.write("mine")
        self.assertIsNone(examined("doctor"))
        self.patch(doctor, "DEFAULT_STATE_DIR", self.state)
        self.write("tower/alpha")
        self.assertIsNone(examined("doctor"))
        self.assertEqual(examined("doctor", "alpha"), expected)

"""A long-lived program with client-go and a context of ``tower login``: the plugin is run again in time."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.processes import build
from tests.integration import dex
from tests.integration.harness import Tower
from tests.integration.member import Running
from tests.integration.person_login import PersonAtMachine, follower
from tests.integration.programs import Program, wait_for
from tests.integration.shared_clock import SharedClock, set_clock
from tests.integration.token_users import allow
from tower.cli.login.plugin import SPARE
from tower.trust.session_tokens import LIFETIME

#: A step of the clock, s: longer than client-go uses a token, and shorter than the proxy accepts it.
STEP = int(LIFETIME - SPARE) + 10


class ClientGoTests(SynchronousTestCase):
    """A Tower with Dex as identity provider, one real cluster, and a program of a user."""

    timeout = 300

    def setUp(self) -> None:
        """Start all, and log in."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.cluster = Running(self.folder, "--bare")
        self.addCleanup(self.cluster.stop)
        self.cluster.run()
        provider = dex.Dex(self.folder)
        self.addCleanup(provider.stop)
        provider.start()
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.proxy = self.tower.proxy_program(
            f"--oidc-issuer-url={provider.url}",
            f"--oidc-client-id={dex.CLIENT}",
            f"--login-client-id={provider.url}={dex.PUBLIC_CLIENT}",
            f"--oidc-ca-file={provider.ca}",
            "--oidc-username-claim=email",
            "--oidc-groups-claim=groups",
        )
        self.tower.start()
        wait_for("the keys", lambda: "its keys are in use" in self.tower.proxy.output(), 30)
        self.tower.add("alpha", self.cluster.member.admin)
        allow(self.tower, "authors", {"kind": "Group", "name": "authors"}, "alpha")
        admin = self.cluster.member.kubectl
        admin("create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=namespaces,configmaps")
        admin("create", "clusterrolebinding", "authors", "--clusterrole=reader", "--group=authors")
        self.clock = SharedClock(self.folder)
        self.jane = PersonAtMachine(self.folder, follower(), self.clock.environment)
        ca = str(self.tower.state / "serving-ca.pem")
        self.jane.tower("login", f"https://127.0.0.1:{self.tower.secure_port}", "--certificate-authority", ca)
        program = build("tests/integration/clientgo")
        self.client = Program(
            "clientgo", [str(program), "--context=tower/alpha"], self.folder, self.jane.environ
        )

    def lines(self, step: str) -> list[str]:
        """Return what the program has reported for a step."""
        lines = [line for line in self.client.output().splitlines() if line.startswith('{"name"')]
        return [each["name"] for each in map(json.loads, lines) if each["step"] == step]

    def token(self) -> str:
        """Return the token that the plugin has returned last."""
        (path,) = self.jane.home.rglob("*.token")
        kept: dict[str, Any] = json.loads(path.read_text())
        return str(kept["token"])

    def works(self, name: str) -> None:
        """Wait until the program's watch reports a new object, and more requests are answered."""
        self.cluster.member.kubectl("create", "configmap", name)
        wait_for(f"the watch of {name}", lambda: name in self.lines("added"))
        before = len(self.lines("answered"))
        wait_for(f"requests after {name}", lambda: len(self.lines("answered")) > before + 5)

    def test_expiry(self) -> None:
        """The program gets new tokens before the old ones expire, and no request or watch fails."""
        self.client.start()
        self.addCleanup(self.client.stop)
        self.works("first")
        tokens = [self.token()]
        for name in ("second", "third"):
            self.clock.advance(STEP, self.tower, [self.client.pid])
            wait_for("the next token", lambda: self.token() not in tokens)
            tokens.append(self.token())
            self.works(name)
        self.assertEqual((self.lines("failed"), self.lines("watch failed")), ([], []))
        self.assertEqual(self.lines("added").count("first"), 1)

    def test_slow_clock(self) -> None:
        """On a machine whose clock is behind, a 401 makes client-go run the plugin; then all goes on."""
        self.client.start()
        self.addCleanup(self.client.stop)
        self.works("first")
        before = self.token()
        set_clock(self.tower, int(LIFETIME) + 10)
        wait_for("the next token", lambda: self.token() != before)
        self.works("second")
        failed = self.lines("failed")
        self.assertTrue(failed)
        self.assertEqual([text for text in failed if "Unauthorized" not in text], [])
        self.works("third")
        self.assertEqual(self.lines("failed"), failed)

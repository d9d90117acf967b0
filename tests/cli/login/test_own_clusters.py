"""Tests of `tower.cli.login.own_clusters`."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from tower.cli.login import login_file, own_clusters, sessions, signing
from tower.cli.login.exchange import Reply
from tower.cli.login.login_file import LoginFile
from tower.cli.login.signing import private_text

NOW = 1_700_000_000.0
SERVER = "https://tower.example.org"


class OwnClustersTests(SynchronousTestCase):
    """A workload that is logged in to a Tower, which has one cluster for it."""

    def setUp(self) -> None:
        """Log in."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.token_file = Path(folder.name) / "token"
        self.token_file.write_text("a.b.c\n")
        self.patch(login_file, "folder_of", lambda: Path(folder.name) / "logins")
        self.now = NOW
        self.patch(own_clusters, "time", SimpleNamespace(time=lambda: self.now))
        self.patch(signing, "reachable", lambda *_: Reply(200, {}))
        self.begun = 0
        for module in (own_clusters, sessions):
            self.patch(
                module, "door_of", lambda *_: SimpleNamespace(call=self.call, server="https://t", ca_text="")
            )
        self.key = private_text(Ed25519PrivateKey.generate())
        kept = {"kubeconfig": "/none", "token_file": str(self.token_file)}
        content = {"session": "s-0", "key": self.key, "user": "ci", "expires": NOW + 3600, **kept}
        LoginFile(SERVER).write(content)

    def call(self, method: str, path: str, **_: Any) -> Reply:
        """Answer for the front door."""
        if path == "/login/clusters":
            return Reply(200, {"items": [{"name": "alpha", "available": "True"}]})
        self.begun += 1
        until = datetime.fromtimestamp(self.now + 3600, UTC).isoformat()
        return Reply(201, {"id": f"s-{self.begun}", "user": "ci", "expirationTimestamp": until})

    def listed(self) -> str:
        """Return the names of the contexts."""
        return own_clusters.own_clusters(Namespace(selector="", watch=False, output="json"))

    def test_sessions_of_a_workload(self) -> None:
        """Each expired session is replaced with the token in the same file, and the list goes on."""
        for number in range(3):
            self.assertIn('"name": "alpha"', self.listed())
            self.assertEqual(self.begun, number)
            kept = LoginFile(SERVER).read()
            self.assertEqual((kept["token_file"], kept["kubeconfig"]), (str(self.token_file), "/none"))
            self.now += 3600

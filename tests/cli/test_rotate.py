"""Tests of `tower.cli.rotate`, `tower.cli.backup` and their arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from twisted.internet import reactor as global_reactor
from twisted.internet.interfaces import IReactorFromThreads

from tests.fakes.cli import CommandTestCase
from tower.store.sqlite import SQLiteStore


class RotateTests(CommandTestCase):
    """`tower rotate …`."""

    def setUp(self) -> None:
        """Enrol twelve agents that are not connected."""
        super().setUp()
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha", uses=20))
        for number in range(12):
            self.successResultOf(self.tokens.enrol("alpha", token, f"SHA256:{number}", b"blob"))

    def test_life(self) -> None:
        """The output counts and names the agents without the new key, and the end."""
        self.assertIn("no rotation", self.good("rotate", "status"))
        text = self.good("rotate", "host-key", "--after", "30d")
        self.assertIn("0 agents have SHA256:", text)
        self.assertIn("12 lack it", text)
        self.assertIn("at the latest at 20", text)
        self.assertIn("agent SHA256:0 of alpha: not connected", text)
        self.assertIn("2 more agents", text)
        lines = self.good("rotate", "status").splitlines()
        self.assertEqual(lines[0].split()[:3], ["NAME", "PHASE", "READY"])
        self.assertIn("12 agents", lines[1])
        self.assertEqual(len(lines), 13)
        self.assertEqual(json.loads(self.good("rotate", "status", "-o", "json"))["kind"], "RotationList")
        self.assertIn("is in use", self.good("rotate", "host-key", "--now"))
        self.assertIn("Finished", self.good("rotate", "status"))

    def test_one(self) -> None:
        """One agent lacks the key, and several lack it."""
        for key in self.tokens.agent_keys("alpha")[1:]:
            self.successResultOf(self.tokens.revoke("alpha", key.fingerprint))
        self.assertIn("1 lacks it", self.good("rotate", "host-key"))

    def test_cancel_help(self) -> None:
        """The help names when each target can be canceled."""
        for target, text in (("host-key", "until the next one is used"), ("users-ca", "not possible")):
            self.assertIn(text, " ".join(self.good("rotate", target, "--help").split()))

    def test_cancel(self) -> None:
        """A rotation can be canceled before the switch."""
        self.good("rotate", "serving-ca")
        self.assertIn("canceled", self.good("rotate", "serving-ca", "--cancel"))
        self.assertIn("no rotation host-key", self.bad("rotate", "host-key", "--cancel"))

    def test_users(self) -> None:
        """The output for the users' CA counts certificates."""
        digest = "0" * 64
        self.successResultOf(self.credentials.register_certificate("alpha", "jane", (), 600.0, digest))
        self.clock.advance(1.0)
        self.assertIn("1 older certificate is valid", self.good("rotate", "users-ca"))


class BackupTests(CommandTestCase):
    """`tower backup` and `tower restore`."""

    def test_both(self) -> None:
        """A state directory is backed up and restored elsewhere; the output names the next step."""
        SQLiteStore(cast(IReactorFromThreads, global_reactor), Path(self.state) / "tower.db")
        file = self.mktemp()
        self.assertIn("verified", self.good("backup", file))
        self.assertIn("--force", self.bad("backup", file))
        self.assertIn("no keys", self.good("backup", file, "--without-secrets", "--force"))
        self.assertIn("not empty", self.bad("restore", file))
        self.state = self.mktemp()
        text = self.good("restore", file)
        self.assertIn("join again", text)
        self.assertIn("revoke again what you revoked since the backup", text)
        self.assertTrue((Path(self.state) / "tower.db").exists())

"""Tests of `tower.cli.rotate`, `tower.cli.backup` and their arguments."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import cast

from twisted.internet import reactor as global_reactor
from twisted.internet.interfaces import IReactorFromThreads

from tests.fakes.certificates import NOW
from tests.fakes.cli import CommandTestCase, FakeTerminal
from tower.cli.command import main
from tower.kube.timestamps import timestamp
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
        text = self.good("rotate", "host-key", "--now")
        for part in (
            "is in use; 12 agents without the new key:",
            "agent SHA256:0 of alpha",
            "tower join CLUSTER",
        ):
            self.assertIn(part, text)
        lines = self.good("rotate", "status").splitlines()
        self.assertIn("Finished", lines[1])
        self.assertIn("12 agents", lines[1])
        self.assertEqual(lines[2:], text.splitlines()[1:-1])

    def test_stranded(self) -> None:
        """The output names the join lines, kubeconfigs and agents that a rotation leaves behind."""
        self.successResultOf(self.tokens.mint("alpha", 600.0))
        credential, _ = self.successResultOf(self.credentials.issue_token("alpha", "jane", (), 600.0))
        self.clock.advance(1.0)
        text = self.good("rotate", "serving-ca", "--now")
        until = timestamp(NOW + 600.0)
        for part in (
            "12 agents, 2 join lines, 1 kubeconfig without the new key:",
            "2 more agents",
            f"serving-ca: join line of alpha, valid until {until}",
            f"kubeconfig of jane for alpha, credential {credential.id}, valid until {until}",
        ):
            self.assertIn(part, text)
        self.assertEqual(self.good("rotate", "secrets-key", "--now").count("\n"), 1)

    def test_old_agents(self) -> None:
        """Tokens of kubesphere-v1 are named as such, unused ones with the command that revokes them."""
        tokens = []
        for _ in range(2):
            token = self.successResultOf(self.v1_tokens.mint("alpha"))
            tokens.append(self.v1_tokens.check("alpha", token))
        used, unused = tokens
        self.v1_tokens.connected("alpha", used)
        for key in self.tokens.agent_keys("alpha"):
            self.successResultOf(self.tokens.revoke("alpha", key.fingerprint))
        self.clock.advance(1.0)
        text = self.good("rotate", "serving-ca", "--after=2d")
        self.assertIn(f"agents with token {used} of alpha: kubesphere-v1 agents get no announcements", text)
        self.assertIn(f"unused token {unused} of alpha, counted until", text)
        self.assertIn(f"'tower cluster revoke alpha {unused}' revokes it", text)

    def test_terminal(self) -> None:
        """On a terminal, --now asks if it affects anything, and a refusal changes nothing."""
        for answer in ("", "n\n"):
            self.stdin = FakeTerminal(answer)
            code, out, err = self.run_tower("rotate", "host-key", "--now")
            self.assertEqual((code, out), (1, ""))
            for part in (
                "agent SHA256:0 of alpha",
                "12 agents will lack the new key",
                "host-key not rotated",
            ):
                self.assertIn(part, err)
        self.assertIn("no rotation", self.good("rotate", "status"))
        self.stdin = FakeTerminal("y\n")
        self.assertEqual(self.run_tower("rotate", "host-key", "--now")[0], 0)
        self.stdin = FakeTerminal("")
        self.assertIn("is in use", self.good("rotate", "host-key", "--now", "--yes"))
        self.assertIn("is in use", self.good("rotate", "users-ca", "--now"))

    def test_revoked(self) -> None:
        """The certificates that a rotation of the users' CA revokes are named."""
        digest = "0" * 64
        self.successResultOf(self.credentials.register_certificate("alpha", "jane", (), 600.0, digest))
        self.clock.advance(1.0)
        text = self.good("rotate", "users-ca", "--now")
        self.assertIn("1 kubeconfig revoked:", text)
        self.assertIn("kubeconfig of jane for alpha", text)

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

    def test_standard_output(self) -> None:
        """Standard output gets the backup only, which a pipe restores; a full disk and a terminal fail."""
        SQLiteStore(cast(IReactorFromThreads, global_reactor), Path(self.state) / "tower.db")
        argv = ["--state-dir", self.state, "backup", "-"]
        notes = io.StringIO()
        made = self.mktemp()
        with contextlib.redirect_stderr(notes):
            with open(made, "w") as file, contextlib.redirect_stdout(file):
                self.assertEqual(main(argv), 0)
            with open("/dev/full", "w") as file, contextlib.redirect_stdout(file):
                self.assertEqual(main(argv), 1)
            with contextlib.redirect_stdout(FakeTerminal()):
                self.assertEqual(main(argv), 2)
        written, full, terminal = notes.getvalue().splitlines()
        self.assertIn("written to standard output: 1 files; it contains the proxy", written)
        self.assertIn("cannot write the backup to standard output: No space left", full)
        self.assertIn("redirect it to a file", terminal)
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(Path(made).read_bytes())
        self.state = self.mktemp()
        self.good("restore", f"/dev/fd/{read}")
        self.assertTrue((Path(self.state) / "tower.db").exists())

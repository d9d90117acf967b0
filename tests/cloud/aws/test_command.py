"""Credentials from a program."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.cloud.asking import as_reactor, logged
from tests.cloud.aws.kit import AWSTestCase
from tests.cloud.pumped import PumpedClock
from tests.cloud.standins.aws import KEY, OTHER_ROLE, SECRET
from tests.fakes.programs import FakeProgram
from tower.cloud.aws.command import OUTPUT_LIMIT, TIMEOUT, Command
from tower.cloud.aws.credentials import NoCredentials
from tower.cloud.errors import CloudError

GOOD = {"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET}


class Processes(PumpedClock):
    """A clock that runs programs: each writes what is wanted, and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[FakeProgram] = []
        self.writes: bytes | None = json.dumps(GOOD).encode()
        self.status: int | None = 0

    def spawnProcess(
        self, protocol: Any, program: str, words: list[str], environ: dict[str, str]
    ) -> FakeProgram:
        """See ``IReactorProcess``."""
        run = FakeProgram(protocol, program, words, environ)
        self.runs.append(run)
        if self.writes is not None:
            protocol.errReceived(b"stderr-secret")
            for byte in self.writes[:3]:
                protocol.outReceived(bytes((byte,)))
            protocol.outReceived(self.writes[3:])
            run.end(self.status)
        return run


class CommandTestCase(AWSTestCase):
    """A home with a program."""

    make_clock = Processes

    def setUp(self) -> None:
        """Make it."""
        super().setUp()
        assert isinstance(self.clock, Processes)
        self.processes = self.clock
        self.home = Path(self.mktemp())
        (self.home / ".aws").mkdir(parents=True)
        self.config = self.home / ".aws" / "config"
        self.environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "MINE": "1"}

    def nodes(self, line: str = sys.executable, text: str = "") -> Any:
        """Return instances with the program's credentials."""
        self.config.write_text(f"[profile node]\ncredential_process = {line}\n{text}")
        self.config.chmod(0o600)
        return self.provider("VPC = vpc-1\nProfile = node", self.environ).instances()

    def error(self, line: str = sys.executable) -> str:
        """Return the error; nothing secret is in it, nor in the log."""
        nodes = self.nodes(line)
        with logged() as lines:
            error = str(self.assertRaises(CloudError, self.finish, nodes.list_instances()))
        for each in (error, *lines):
            self.assertNotIn("secret", each)
            self.assertNotIn(SECRET, each)
        return error


class CommandTest(CommandTestCase):
    """Running it."""

    def test_words(self) -> None:
        """The line is split without a shell, by blanks and quotes; the program's standard input is empty."""
        self.finish(self.nodes(f"{sys.executable} --user  \"h $HOME;x\" 'a b'").list_instances())
        (run,) = self.processes.runs
        self.assertEqual(run.words, [sys.executable, "--user", "h $HOME;x", "a b"])
        self.assertEqual((run.program, run.environ["MINE"]), (sys.executable, "1"))
        self.assertTrue(run.stdin_closed)

    def test_path(self) -> None:
        """A program without a path is searched in the environment's PATH."""
        folder = self.home / "bin"
        folder.mkdir()
        program = folder / "give-me-keys"
        program.write_text("")
        program.chmod(0o755)
        self.environ["PATH"] = str(folder)
        self.finish(self.nodes("give-me-keys x").list_instances())
        self.assertEqual(self.processes.runs[0].program, str(program))
        self.assertIn("the program was not found in PATH", self.error("other"))

    def test_expiration(self) -> None:
        """It is run again before its credentials expire, in any time format; without expiry every 15 min."""
        for end in ("", "Z", ".123Z", "+02:00"):
            zone = 7200 if end == "+02:00" else 0
            self.processes.runs.clear()
            nodes = self.nodes()
            for _ in range(12):
                stamp = _stamp(self.clock.seconds() + 3600 + zone) + end
                self.processes.writes = json.dumps({**GOOD, "Expiration": stamp}).encode()
                self.finish(nodes.list_instances())
                self.clock.advance(600)
            self.assertEqual(len(self.processes.runs), 2)
        self.processes.runs.clear()
        self.processes.writes = json.dumps(GOOD).encode()
        nodes = self.nodes()
        for _ in range(12):
            self.finish(nodes.list_instances())
            self.clock.advance(600)
        self.assertIn(len(self.processes.runs), (6, 7, 8))

    def test_ended(self) -> None:
        """Credentials that have ended already are an error."""
        self.processes.writes = json.dumps({**GOOD, "Expiration": "2001-01-01T00:00:00Z"}).encode()
        self.assertIn("has already expired", self.error())

    def test_session(self) -> None:
        """With a session's token that is used."""
        key, made = self.aws.issue()
        said = {"AccessKeyId": key, "SecretAccessKey": made.secret, "SessionToken": made.token}
        self.processes.writes = json.dumps({"Version": 1, **said}).encode()
        self.finish(self.nodes().list_instances())

    def test_source_profile(self) -> None:
        """A role is assumed with its credentials."""
        other = f"[profile role]\nrole_arn = {OTHER_ROLE}\nsource_profile = node\n"
        self.nodes(text=other)
        nodes = self.provider("VPC = vpc-1\nProfile = role", self.environ).instances()
        self.finish(nodes.list_instances())
        self.assertEqual(self.aws.resource.count("POST", "/sts/"), 1)

    def test_wrong(self) -> None:
        """Errors name its profile, and quote no output."""
        for writes, status, wanted in (
            (b"secret", 0, "the response has no credentials"),
            (b"[]", 0, "the response has no credentials"),
            (b'{"Version": 2, "AccessKeyId": "secret", "SecretAccessKey": "secret"}', 0, "Version 1"),
            (b'{"Version": 1, "AccessKeyId": "secret"}', 0, "the response has no credentials"),
            (
                b'{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": 1}',
                0,
                "the response has no credentials",
            ),
            (json.dumps({**GOOD, "Expiration": "secret"}).encode(), 0, "the expiration is not a valid time"),
            (b"secret", 3, "it failed with status 3"),
            (b"secret", None, "it was killed"),
        ):
            self.processes.writes, self.processes.status = writes, status
            error = self.error()
            self.assertTrue(error.startswith("credential_process of profile node: "), error)
            self.assertIn(wanted, error)
        self.assertIn("no closing quotation", self.error('x "secret'))
        self.assertIn("the program was not found in PATH", self.error("/nowhere/at/all secret"))

    def test_who_may_write(self) -> None:
        """A program that another user may have configured is not run."""
        nodes = self.nodes()
        self.config.chmod(0o620)
        error = self.assertRaises(NoCredentials, self.finish, nodes.list_instances())
        self.assertIn("other users can write this file", str(error))
        self.assertEqual(self.processes.runs, [])


class BoundsTest(CommandTestCase):
    """Limits of programs."""

    def setUp(self) -> None:
        """Start a program without output."""
        super().setUp()
        self.processes.writes = None
        self.command = Command(as_reactor(self.clock), self.environ)

    def run_it(self) -> tuple[Deferred[Any], FakeProgram]:
        """Begin."""
        asked = Deferred.fromCoroutine(self.command.credentials(sys.executable, "it"))
        return asked, self.processes.runs[-1]

    def test_too_long(self) -> None:
        """It is killed after a timeout, and its later output is ignored."""
        asked, run = self.run_it()
        self.clock.advance(TIMEOUT - 1)
        self.assertNoResult(asked)
        self.clock.advance(1)
        self.assertIn("did not end within 20 s", str(self.failureResultOf(asked, NoCredentials).value))
        self.assertEqual((run.signals, run.lost), (["KILL"], True))
        run.protocol.outReceived(b"late")
        run.end(None)

    def test_too_much(self) -> None:
        """It is killed when it writes too much."""
        asked, run = self.run_it()
        for _ in range(OUTPUT_LIMIT // 1024 + 3):
            run.protocol.outReceived(b"x" * 1024)
        self.assertIn("wrote more than", str(self.failureResultOf(asked, NoCredentials).value))
        self.assertEqual((run.signals, run.lost), (["KILL"], True))
        run.end(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_not_begun(self) -> None:
        """If no process can be started, the error is as any other."""

        def refuse(*_: object) -> Any:
            raise OSError(11, "Resource temporarily unavailable")

        self.patch(self.clock, "spawnProcess", refuse)
        asked = Deferred.fromCoroutine(self.command.credentials(sys.executable, "it"))
        failure = self.failureResultOf(asked, NoCredentials)
        self.assertEqual(str(failure.value), "it: Resource temporarily unavailable")

    def test_cancelled(self) -> None:
        """It is killed when its credentials are no longer needed."""
        asked, run = self.run_it()
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual(run.signals, ["KILL"])
        self.assertEqual(self.clock.getDelayedCalls(), [])


def _stamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))

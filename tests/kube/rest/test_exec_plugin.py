"""Tests of `tower.kube.rest.exec_plugin`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.programs import SECRET, V1, PluginClock, PluginFolder
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import load_kubeconfig
from tower.kube.rest.exec_plugin import (
    OUTPUT_LIMIT,
    PAUSE,
    TIMEOUT,
    ExecCredential,
    ExecPlugin,
    read_credential,
)
from tower.kube.rest.plugin_command import PluginCommand
from tower.reactor.interfaces import IReactor

START = 1_800_000_000.0  # s since the epoch


class ReadTests(SynchronousTestCase):
    """Output of plugins."""

    def read(self, *, version: str = V1, kind: str = "ExecCredential", **status: Any) -> ExecCredential:
        """Return the credential with a status."""
        return read_credential(
            json.dumps({"kind": kind, "apiVersion": version, "status": status}).encode(), V1
        )

    def test_token(self) -> None:
        """A token with its expiry, in any time zone and with fractions."""
        for text in ("2026-11-23T10:00:00Z", "2026-11-23T11:00:00+01:00", "2026-11-23T10:00:00.123456789Z"):
            found = self.read(token=SECRET, expirationTimestamp=text)
            self.assertEqual(found.token, SECRET)
            assert found.expiry is not None
            self.assertEqual(int(found.expiry), int(datetime(2026, 11, 23, 10, tzinfo=UTC).timestamp()))
        self.assertIsNone(self.read(token=SECRET, expirationTimestamp=None).expiry)
        self.assertNotIn(SECRET, repr(found))

    def test_certificate(self) -> None:
        """A certificate with its key."""
        found = self.read(clientCertificateData="cert", clientKeyData="key")
        self.assertEqual((found.token, found.certificate, found.key), ("", b"cert", b"key"))

    def test_wrong(self) -> None:
        """Everything else is an error without secrets."""
        cases: list[Any] = [
            (b"", "no JSON"),
            (SECRET.encode(), "no JSON"),
            (b"[" * 100_000, "no JSON"),
            (b"[]", "no object of kind"),
            (b'{"kind": "Pod"}', "no object of kind"),
            (json.dumps({"kind": "ExecCredential", "apiVersion": SECRET}).encode(), f"not {V1}"),
            (json.dumps({"kind": "ExecCredential", "apiVersion": V1}).encode(), "without status"),
            (
                json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": [1]}).encode(),
                "without status",
            ),
        ]
        for data, text in cases:
            error = str(self.assertRaises(ValueError, read_credential, data, V1))
            self.assertIn(text, error)
            self.assertNotIn(SECRET, error)
        for status, text in (
            ({"expirationTimestamp": "2026-11-23T10:00:00Z"}, "neither a token nor"),
            ({"clientCertificateData": SECRET}, "only one of"),
            ({"token": [SECRET]}, "a token that is not a string"),
            ({"token": SECRET, "expirationTimestamp": SECRET}, "not a time such as"),
            ({"token": SECRET, "expirationTimestamp": "2026-11-23T10:00:00"}, "not a time such as"),
            ({"token": SECRET, "expirationTimestamp": 7}, "not a string"),
        ):
            error = str(self.assertRaises(ValueError, self.read, **status))
            self.assertIn(text, error)
            self.assertNotIn(SECRET, error)


class RunTests(SynchronousTestCase):
    """Runs of a plugin."""

    def setUp(self) -> None:
        """Make a plugin."""
        self.clock = PluginClock()
        self.folder = PluginFolder(self.mktemp())
        self.plugin = self.make()

    def make(self) -> ExecPlugin:
        """Return the plugin of the kubeconfig."""
        command = PluginCommand.of(load_kubeconfig(self.folder.kubeconfig(), allow_plugin=True))
        assert command is not None
        return ExecPlugin(
            command, cast(IReactor, self.clock), self.folder.environ, lambda: START + self.clock.seconds()
        )

    def get(self, rejected: ExecCredential | None = None) -> ExecCredential:
        """Return the credential."""
        found: ExecCredential = self.successResultOf(Deferred.fromCoroutine(self.plugin.credential(rejected)))
        return found

    def error(self) -> str:
        """Return the error: one line, without secrets."""
        failure = self.failureResultOf(Deferred.fromCoroutine(self.plugin.credential()), ConfigurationError)
        error = str(failure.value)
        self.assertNotIn(SECRET, error)
        self.assertNotIn("\n", error)
        self.assertIn("exec of user 'u'", error)
        return error

    def write(self, seconds: float) -> None:
        """Let the plugin write a credential that expires in so many seconds."""
        moment = datetime.fromtimestamp(START + self.clock.seconds() + seconds, UTC)
        self.clock.write(token=f"{SECRET}-{len(self.clock.runs)}", expirationTimestamp=moment.isoformat())

    def test_run(self) -> None:
        """The program runs without a shell and without input, and its credential is kept."""
        self.folder.entry.update(args=["a b", "$HOME"], env=[{"name": "A", "value": "1"}])
        self.plugin = self.make()
        self.assertEqual(self.get().token, SECRET)
        (run,) = self.clock.runs
        self.assertEqual(
            (run.program, run.words), (str(self.folder.program.absolute()), ["get-token", "a b", "$HOME"])
        )
        self.assertEqual((run.environ["HOME"], run.environ["A"], run.stdin_closed), ("/home/x", "1", True))
        self.assertIn("KUBERNETES_EXEC_INFO", run.environ)
        self.clock.advance(1_000_000)
        self.get()
        self.assertEqual(len(self.clock.runs), 1)

    def test_expiry(self) -> None:
        """A credential is used until it expires, and a short one at most for the pause."""
        self.write(100)
        first = self.get()
        self.clock.advance(99)
        self.assertIs(self.get(), first)
        self.clock.advance(1)
        self.write(1)
        second = self.get()
        self.assertIsNot(second, first)
        self.clock.advance(PAUSE - 1)
        self.assertIs(self.get(), second)
        self.clock.advance(1)
        self.get()
        self.assertEqual(len(self.clock.runs), 3)

    def test_rejected(self) -> None:
        """A rejected credential is replaced, but the program does not run all the time."""
        first = self.get()
        self.assertIs(self.get(first), first)
        self.clock.advance(PAUSE)
        second = self.get(first)
        self.assertIsNot(second, first)
        self.clock.advance(PAUSE)
        self.assertIs(self.get(first), second)
        self.assertEqual(len(self.clock.runs), 2)

    def test_shared(self) -> None:
        """Requests at the same time share a run; if its request is canceled, the next one runs it."""
        self.clock.writes = None
        asked = [Deferred.fromCoroutine(self.plugin.credential()) for _ in range(3)]
        self.assertEqual(len(self.clock.runs), 1)
        self.clock.write(token=SECRET)
        asked[0].cancel()
        self.failureResultOf(asked[0], CancelledError)
        self.assertEqual(self.clock.runs[0].signals, ["KILL"])
        for each in asked[1:]:
            self.assertEqual(self.successResultOf(each).token, SECRET)
        self.assertEqual((len(self.clock.runs), self.clock.getDelayedCalls()), (2, []))

    def test_not_found(self) -> None:
        """A program that is not installed is an error with the cure; it is found after its installation."""
        self.folder.program.unlink()
        self.assertIn("get-token was not found in PATH: install it, or give the user a token", self.error())
        self.folder.program.write_text("")
        self.folder.program.chmod(0o755)
        self.clock.advance(PAUSE)
        self.get()

    def test_not_started(self) -> None:
        """A program that cannot be started is an error."""
        self.clock.problem = OSError(12, "Cannot allocate memory")
        self.assertIn("get-token: Cannot allocate memory", self.error())

    def test_fails(self) -> None:
        """A failing program has its status, and does not run again at once."""
        self.clock.status = 3
        for _ in range(3):
            self.assertIn("it failed with status 3; run it manually to see why", self.error())
        self.assertEqual(len(self.clock.runs), 1)
        self.clock.status = 0
        self.clock.advance(PAUSE)
        self.get()

    def test_nonsense(self) -> None:
        """A program that writes no credential is an error."""
        self.clock.writes = SECRET.encode()
        self.assertIn("wrote no JSON; run it manually", self.error())

    def test_too_much(self) -> None:
        """A program that writes too much is killed."""
        self.clock.writes = b"x" * (OUTPUT_LIMIT + 1)
        self.assertIn(f"more than {OUTPUT_LIMIT} B", self.error())
        self.assertEqual(self.clock.runs[0].signals, ["KILL"])

    def test_too_slow(self) -> None:
        """A program that does not end is killed."""
        self.clock.writes = None
        asked = Deferred.fromCoroutine(self.plugin.credential())
        self.clock.advance(TIMEOUT)
        self.assertIn("did not end within 20 s", str(self.failureResultOf(asked).value))
        self.assertEqual(self.clock.runs[0].signals, ["KILL"])

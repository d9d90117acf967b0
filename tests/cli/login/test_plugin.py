"""Tests of `tower.cli.login.plugin`, `signing` and `login_file`."""

from __future__ import annotations

import contextlib
import io
import json
import stat
import tempfile
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from tower.cli.client import CommandFailed
from tower.cli.login import login_file, plugin, sessions, signing
from tower.cli.login.exchange import Reply
from tower.cli.login.login_file import LoginFile, NotLoggedIn, all_logins, name_of
from tower.cli.login.signing import private_text
from tower.trust.session_tokens import LIFETIME, public_text, verified_claims

NOW = 1_700_000_000.0
SERVER = "https://tower.example.org"


class PluginTests(SynchronousTestCase):
    """The plugin with a front door in memory."""

    def setUp(self) -> None:
        """Log in."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "tower" / "logins"
        self.patch(login_file, "folder_of", lambda: self.folder)
        self.key = Ed25519PrivateKey.generate()
        self.now = NOW
        self.asked: list[str] = []
        self.replies: list[Reply | None] = []
        self.caller = 100
        self.patch(signing, "reachable", self.reachable)
        self.login = LoginFile(SERVER)
        self.login.write(self.session())

    def session(self, name: str = "s-1", **more: Any) -> dict[str, Any]:
        """Return a session."""
        value = {"session": name, "key": private_text(self.key), "user": "jane", "expires": NOW + 3600}
        return {**value, "ca": "", "ahead": 0.0, **more}

    def reachable(self, _door: object, token: str) -> Reply | None:
        """Answer for the front door."""
        self.asked.append(token)
        return self.replies.pop(0) if self.replies else Reply(200, {})

    def run_plugin(self, *words: str, **environ: str) -> tuple[int, dict[str, Any], str]:
        """Return exit code, object and error for another program."""
        self.caller += 1
        return self.run_again(*words, **environ)

    def run_again(self, *words: str, **environ: str) -> tuple[int, dict[str, Any], str]:
        """Return them for the same program as before."""
        out, error = io.StringIO(), io.StringIO()
        argv = list(words) or ["--server", SERVER]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = plugin.main(argv, environ, lambda: self.now, lambda: self.caller)
        return code, json.loads(out.getvalue() or "{}"), error.getvalue()

    def good(self, *words: str) -> str:
        """Return the token."""
        code, value, error = self.run_plugin(*words)
        self.assertEqual((code, error), (0, ""))
        return str(value["status"]["token"])

    def test_token(self) -> None:
        """The token is signed once, and used until a minute before it expires."""
        first = self.good()
        times = verified_claims(first.encode(), public_text(self.key))
        self.assertEqual((times.issued, times.expires), (NOW, NOW + LIFETIME))
        self.now += 230
        self.assertEqual(self.good(), first)
        self.now += 20
        second = self.good()
        self.assertNotEqual(second, first)
        self.assertEqual(self.asked, [first, second])

    def test_versions(self) -> None:
        """The answer has the version of client-go's question."""
        for version in plugin.VERSIONS:
            info = json.dumps(
                {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
            )
            code, value, _ = self.run_plugin("--server", SERVER, KUBERNETES_EXEC_INFO=info)
            self.assertEqual((code, value["apiVersion"], value["kind"]), (0, version, "ExecCredential"))
        self.assertEqual(value["status"]["expirationTimestamp"], "2023-11-14T22:17:20Z")
        for info in ("{", "[]", '{"apiVersion": "client.authentication.k8s.io/v1alpha1"}'):
            code, _, error = self.run_plugin("--server", SERVER, KUBERNETES_EXEC_INFO=info)
            self.assertEqual(code, 1)
            self.assertIn("upgrade kubectl", error)

    def test_wrong_clock(self) -> None:
        """The clock of the machine may be wrong: the token has the proxy's time."""
        self.replies = [Reply(401, {}, 7200.0), Reply(200, {}, 7200.0)]
        times = verified_claims(self.good().encode(), public_text(self.key))
        self.assertEqual(times.issued, NOW + 7200)

    def test_unreachable(self) -> None:
        """Without an answer of the front door, kubectl reports that itself."""
        self.replies = [None]
        self.assertTrue(self.good())

    def test_ended(self) -> None:
        """The end of the session is an error in words."""
        self.replies = [Reply(401, {"message": "this login session has ended"})]
        code, _, error = self.run_plugin()
        self.assertEqual((code, error), (1, f"tower: this login session has ended (tower login {SERVER})\n"))

    def test_refused_token(self) -> None:
        """A program that asks again had a 401 for its token: the front door gives the reason."""
        first = self.good()
        self.assertEqual(self.good(), first)
        self.now += 1
        code, value, _ = self.run_again()
        second = value["status"]["token"]
        self.assertEqual((code, self.asked), (0, [first, second]))
        self.assertNotEqual(first, second)
        self.assertEqual(self.good(), second)
        self.replies = [Reply(401, {"message": "this login session has ended"})]
        code, _, error = self.run_again()
        self.assertEqual((code, error), (1, f"tower: this login session has ended (tower login {SERVER})\n"))

    def test_cluster(self) -> None:
        """A context's token is for its cluster only."""
        words = ("--server", SERVER, "--cluster")
        alpha, beta = self.good(*words, "alpha"), self.good(*words, "beta")
        found = verified_claims(alpha.encode(), public_text(self.key)).cluster
        self.assertEqual((found, self.good(*words, "alpha"), len(self.asked)), ("alpha", alpha, 2))
        self.assertNotEqual(alpha, beta)

    def test_many_programs(self) -> None:
        """The last programs that have a token are remembered."""
        for _ in range(login_file.CALLERS + 5):
            self.good()
        kept = self.login.token("s-1", self.now, 1, "")
        assert kept is not None
        self.assertEqual(len(kept["callers"]), login_file.CALLERS)
        self.run_again()
        self.assertEqual(len(self.asked), 2)

    def test_no_session(self) -> None:
        """Without a session, or with an expired one, the error is the command to log in."""
        self.now += 3601
        self.assertIn(f"has expired: run 'tower login {SERVER}'", self.run_plugin()[2])
        self.login.remove()
        self.assertIn(f"run 'tower login {SERVER}'", self.run_plugin()[2])
        self.login.folder.joinpath(self.login.path.name).write_text("{")
        self.assertEqual(self.run_plugin()[0], 1)

    def test_words(self) -> None:
        """Other words are an error."""
        for words in (["--server"], ["--other", "x"], ["x"]):
            code, _, error = self.run_plugin(*words)
            self.assertEqual((code, "kubectl runs it" in error), (1, True), words)

    def test_workload(self) -> None:
        """With a workload's token, an expired or ended session is replaced, once."""
        begun: list[str] = []

        def begin(door: Any, login: LoginFile, _key: Any, id_token: str, *_: object, **more: Any) -> None:
            begun.append(id_token)
            login.write(self.session(f"s-{len(begun) + 1}", expires=self.now + 3600, **more))

        self.patch(sessions, "begin", begin)
        path = self.folder / "token"
        path.write_text("a.b.c\n")
        words = ("--server", SERVER, "--token-file", str(path))
        self.good(*words)
        self.assertEqual(begun, [])
        self.now += 3590
        self.good(*words)
        self.assertEqual((begun, self.login.read()["session"]), (["a.b.c"], "s-2"))
        self.now += 1000
        self.replies = [Reply(401, {"message": "ended"})]
        first = self.good(*words)
        self.assertEqual(self.login.read()["session"], "s-3")
        self.assertEqual(self.good(*words), first)
        self.now += 3590
        path.write_text("no token")
        self.assertIn("has no ID token", self.run_plugin(*words)[2])
        path.unlink()
        self.assertIn("no such file", self.run_plugin(*words)[2])
        self.assertRaises(CommandFailed, sessions.read_token, str(path))


class LoginFileTests(SynchronousTestCase):
    """The files of two Towers."""

    def test_files(self) -> None:
        """Only the owner reads them; a new session forgets the token of the former one."""
        folder = Path(self.mktemp()) / "logins"
        first, second = LoginFile(SERVER, folder), LoginFile("https://[::1]:8443", folder)
        self.assertRaises(NotLoggedIn, first.read)
        first.write({"session": "s-1"})
        first.keep_token("s-1", "t", 100.0, [], "alpha")
        for path in folder.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        self.assertIsNotNone(first.token("s-1", 10.0, 60.0, "alpha"))
        for session, now in (("s-2", 10.0), ("s-1", 41.0), ("s-1", -9999.0)):
            self.assertIsNone(first.token(session, now, 60.0, "alpha"))
        first.write({"session": "s-2"})
        self.assertIsNone(first.token("s-1", 10.0, 60.0, "alpha"))
        second.write({"session": "s-3"})
        self.assertEqual([each.server for each in all_logins(folder)], ["https://[::1]:8443", SERVER])
        first.remove()
        first.remove()
        self.assertEqual([each.server for each in all_logins(folder)], ["https://[::1]:8443"])
        with second.locked():
            pass

    def test_names(self) -> None:
        """The name of the file is safe."""
        self.assertEqual(name_of("https://Tower.example.org:8443"), "tower.example.org_8443")
        self.assertEqual(name_of("https://[::1]/../x"), "___1_")

    def test_consents(self) -> None:
        """Providers that need the user's consent are remembered, also after a logout."""
        login = LoginFile(SERVER, Path(self.mktemp()) / "logins")
        self.assertEqual(login.consents(), [])
        for issuer in ("https://a", "https://b"):
            login.keep_consent(issuer)
        login.remove()
        self.assertEqual(login.consents(), ["https://a", "https://b"])

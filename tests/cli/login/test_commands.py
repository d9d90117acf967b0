"""Tests of `tower.cli.login.commands`: an administrator's, and those of a machine without logins."""

from __future__ import annotations

import contextlib
import io
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.cli import CommandTestCase
from tower.cli.client import CommandFailed
from tower.cli.login import browser, commands, login_file
from tower.cli.login.contexts import write_contexts
from tower.cli.login.exchange import Reply
from tower.cli.login.identity_provider import DeviceLogin, ProviderTokens
from tower.cli.login.login_file import LoginFile
from tower.clusters.login.login_session import LoginSession
from tower.trust.login_nonce import login_nonce
from tower.trust.session_tokens import public_text


class SessionCommandsTests(CommandTestCase):
    """Sessions of two users."""

    def setUp(self) -> None:
        """Begin three sessions."""
        super().setUp()
        now = self.clock.seconds()
        for user in ("jane", "jane", "joe"):
            session = LoginSession(
                "", user, ("dev",), "", (), "https://id", "f", user, "", now, now + 60, now, client="laptop"
            )
            adding = Deferred.fromCoroutine(self.records.login_sessions.add(session, ""))
            self.successResultOf(adding)

    def test_list(self) -> None:
        """The list has all sessions, or those of a user."""
        self.assertEqual(self.good("session", "list").count("laptop"), 3)
        found = self.good("session", "list", "--user", "joe")
        self.assertIn("joe", found)
        self.assertNotIn("jane", found)
        self.assertEqual(self.good("session", "list", "--user", "x"), "no login sessions\n")

    def test_end(self) -> None:
        """Sessions end by ID, or all of a user."""
        (joe,) = [each for each in self.records.login_sessions.list() if each.user == "joe"]
        self.assertEqual(self.good("session", "end", joe.id), f"login session {joe.id} ended\n")
        self.assertIn("there is no login session", self.bad("session", "end", joe.id))
        self.assertEqual(self.good("session", "end", "--user", "jane"), "ended 2 login sessions of jane\n")
        self.assertIn("jane has no login session", self.bad("session", "end", "--user", "jane"))
        for words in ((), ("s-1", "--user", "jane")):
            self.assertIn("give the ID of a session", self.wrong("session", "end", *words))

    def test_not_logged_in(self) -> None:
        """Without a login, errors name the command to log in; that of the plugin names kubectl."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.patch(login_file, "folder_of", lambda: Path(folder.name) / "logins")
        self.assertIn("run 'tower login https://HOST'", self.wrong("cluster", "list", state=False))
        self.assertIn("run 'tower login https://HOST'", self.bad("logout", state=False))
        self.assertIn("run 'tower login https://t'", self.bad("logout", "https://t", state=False))
        self.assertIn("kubectl runs it", self.wrong("credential", "get", state=False))
        self.assertIn("not the URL of a proxy", self.wrong("login", "http://t", state=False))


class LogoutTests(SynchronousTestCase):
    """Logins to three Towers."""

    def setUp(self) -> None:
        """Log in to all of them."""
        self.folder = Path(self.mktemp()).absolute()
        self.patch(login_file, "folder_of", lambda: self.folder / "logins")
        self.patch(commands, "credential", lambda *_: ("token", 0.0))
        self.ended: list[str] = []
        self.patch(commands, "door_of", self.door_of)
        for name in "abc":
            path = self.folder / f"{name}.kubeconfig"
            login = LoginFile(f"https://{name}")
            login.write({"session": f"s-{name}", "kubeconfig": str(path)})
            write_contexts(str(path), login.server, "", "jane", ["alpha"], {"args": []})

    def door_of(self, files: LoginFile, _: object) -> SimpleNamespace:
        """Return a front door, which ends sessions."""
        return SimpleNamespace(call=lambda *_, **__: self.ended.append(files.server))

    def logged_out(self, *, server: str | None = None) -> str:
        """Log out of one Tower, or of all; return the output."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            return out.getvalue() + commands.logout(Namespace(server=server, all=server is None))

    def test_all(self) -> None:
        """All sessions end, and their contexts and files are removed."""
        lines = self.logged_out().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual(
            lines[0], f"logged out of https://a; removed 1 contexts from {self.folder / 'a.kubeconfig'}"
        )
        self.assertEqual(self.ended, ["https://a", "https://b", "https://c"])
        self.assertEqual(list((self.folder / "logins").iterdir()), [])

    def test_failures(self) -> None:
        """A logout that fails does not affect the others; the error at the end names each one that failed."""
        (self.folder / "a.kubeconfig").write_text("{")
        LoginFile("https://b").write({"version": 99})
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            options = Namespace(server=None, all=True)
            error = str(self.assertRaises(CommandFailed, commands.logout, options))
        self.assertIn("2 of 3 logouts failed: https://a: kubeconfig ", error)
        self.assertIn("is not YAML", error)
        self.assertIn("https://b: you are not logged in to https://b: run 'tower login https://b'", error)
        self.assertIn("logged out of https://c; removed 1 contexts", out.getvalue())
        self.assertNotIn("logged out of https://a", out.getvalue())
        left = sorted(each.name for each in (self.folder / "logins").iterdir())
        self.assertEqual(left, ["a.json", "b.json"], "the user can repeat the command")

    def test_file_cannot_be_removed(self) -> None:
        """A file that cannot be removed is an error with its name."""

        def fail(_: LoginFile) -> None:
            raise PermissionError(13, "Permission denied")

        self.patch(LoginFile, "remove", fail)
        error = self.assertRaises(CommandFailed, self.logged_out, server="https://a")
        path = self.folder / "logins" / "a.json"
        self.assertEqual(str(error), f"cannot remove {path}: permission denied")


class BrowserTests(SynchronousTestCase):
    """Machines with and without a browser."""

    def test_has_browser(self) -> None:
        """$BROWSER, a screen, or a desktop system is enough; in an SSH session, only $BROWSER is."""
        for platform, environ, expected in (
            ("linux", {}, False),
            ("linux", {"DISPLAY": ":0"}, True),
            ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
            ("linux", {"DISPLAY": "", "BROWSER": ""}, False),
            ("linux", {"BROWSER": "firefox"}, True),
            ("linux", {"DISPLAY": ":0", "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}, False),
            ("linux", {"DISPLAY": ":0", "SSH_TTY": "/dev/pts/0", "BROWSER": "lynx"}, True),
            ("darwin", {}, True),
            ("darwin", {"SSH_TTY": "/dev/ttys0"}, False),
            ("win32", {}, True),
        ):
            self.patch(browser, "sys", SimpleNamespace(platform=platform))
            self.assertIs(browser.has_browser(environ), expected, (platform, environ))

    def test_choice(self) -> None:
        """Without a browser, a login is by device code if the provider supports it; options decide first."""
        used: list[str] = []

        def use(name: str, *_: object, **__: object) -> ProviderTokens:
            used.append(name)
            return ProviderTokens("i", "r")

        self.patch(commands, "by_browser", partial(use, "browser"))
        self.patch(commands, "_by_device", partial(use, "device"))
        files = LoginFile("https://t", Path(self.mktemp()) / "logins")
        for has_browser, has_devices, option, expected in (
            (True, True, "", "browser"),
            (False, True, "", "device"),
            (False, False, "", "browser"),
            (False, True, "browser", "browser"),
            (True, False, "device", "device"),
        ):
            self.patch(commands, "has_browser", lambda found=has_browser: found)
            provider: Any = SimpleNamespace(url="https://id", has_devices=has_devices)
            given = {name: name == option for name in ("browser", "device")}
            commands._tokens(files, provider, Namespace(callback_port=0, **given))
            self.assertEqual(used.pop(), expected)


class ConsentTests(SynchronousTestCase):
    """A provider that gives a refresh token, or not."""

    def logged_in(self, *, device: bool, needed: bool = True, gives: bool = True) -> list[bool]:
        """Log in twice; return for each visit of the provider whether it required consent."""
        asked: list[bool] = []

        def tokens(consent: bool) -> ProviderTokens:
            asked.append(consent)
            return ProviderTokens("i", "r" if consent and gives else "", has_consent=consent)

        def visit(*_: object, consent: bool) -> ProviderTokens:
            found = tokens(consent)
            return found if found.refresh_token or consent or not needed else tokens(True)

        self.patch(commands, "by_browser", visit)
        self.patch(commands, "_tell", lambda _: None)
        files = LoginFile("https://t", Path(self.mktemp()) / "logins")
        provider: Any = SimpleNamespace(url="https://id", needs_refresh_token=needed, has_devices=True)
        provider.begin_device = lambda consent: DeviceLogin(str(consent), "", "", "", 1, 1)
        provider.by_device = lambda login, _: tokens(login.code == "True")
        options = Namespace(device=device, browser=not device, callback_port=0)
        for _ in range(2):
            commands._tokens(files, provider, options)
        return asked

    def test_consent(self) -> None:
        """It is required if the front door needs a refresh token and gets none; this is remembered."""
        for device in (False, True):
            self.assertEqual(self.logged_in(device=device), [False, True, True])
            self.assertEqual(self.logged_in(device=device, needed=False), [False, False])
            self.assertEqual(self.logged_in(device=device, gives=False), [False, True, False, True])

    def test_one_visit(self) -> None:
        """The browser goes on to the question for consent, with another state; that answer has the tokens."""
        provider: Any = SimpleNamespace(url="https://id", needs_refresh_token=True)
        provider.address = lambda pkce, redirect, consent: f"{redirect} {pkce.state} {consent}"
        provider.by_code = lambda pkce, redirect, code: ProviderTokens(code, "r" if code == "c2" else "")
        visit = browser._Visit(provider, False)
        visit.redirect = "http://localhost:1/callback"
        first = visit.pkce.state
        self.assertEqual(visit.address, f"http://localhost:1/callback {first} False")
        self.assertIsNone(visit.tokens("c1"))
        self.assertNotEqual(visit.pkce.state, first)
        self.assertTrue(visit.address.endswith(f"{visit.pkce.state} True"))
        self.assertEqual(visit.tokens("c2"), ProviderTokens("c2", "r", has_consent=True))
        self.assertEqual(visit.tokens("c3"), ProviderTokens("c3", "", has_consent=True))
        provider.needs_refresh_token = False
        self.assertEqual(browser._Visit(provider, False).tokens("c4"), ProviderTokens("c4", ""))


class NonceTests(SynchronousTestCase):
    """A first login at a Tower."""

    def test_login(self) -> None:
        """The session has the key of the nonce, and a client that another Tower uses is a warning."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.patch(login_file, "folder_of", lambda: Path(folder.name))
        LoginFile("https://other").write({"issuer": "https://id", "clientID": "cli"})
        begun: list[Any] = []
        told: list[str] = []

        def provider(issuer: Any, nonce: str) -> Any:
            return SimpleNamespace(url=issuer["url"], client=issuer["clientID"], nonce=nonce)

        def begin(_door: Any, _files: Any, key: Any, id_token: str, *_: str, **more: str) -> Reply:
            begun.append(
                (id_token, login_nonce("https://t", public_text(key)), more["issuer"], more["clientID"])
            )
            return Reply(201, {"expirationTimestamp": "2026", "user": "jane", "id": "s-1", "clusters": []})

        configuration = Reply(200, {"issuers": [{"url": "https://id", "clientID": "cli"}]})
        self.patch(commands, "find_door", lambda *_: (SimpleNamespace(ca_text=""), configuration))
        self.patch(commands, "IdentityProvider", provider)
        self.patch(commands, "_tokens", lambda _, given, __: ProviderTokens(given.nonce, "r"))
        self.patch(commands, "begin", begin)
        self.patch(commands, "_tell", told.append)
        options = Namespace(
            server="https://t",
            certificate_authority=None,
            ca_hash=None,
            token_file=None,
            issuer=None,
            kubeconfig_file=str(Path(folder.name) / "config"),
            exec_api_version="v1",
        )
        self.assertIn("logged in to https://t as jane", commands.login(options))
        ((id_token, nonce, *client),) = begun
        self.assertEqual((id_token, client), (nonce, ["https://id", "cli"]))
        self.assertIn("https://t uses the client cli of https://id, as https://other does", "".join(told))

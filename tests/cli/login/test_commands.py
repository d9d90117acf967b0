"""Tests of `tower.cli.login.commands`: an administrator's, and those of a machine without logins."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.cli import CommandTestCase
from tower.cli.login import browser, commands, login_file
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

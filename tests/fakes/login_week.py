"""Users with laptops and the product's own client, and a proxy in memory; all share one clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import Deferred

from tests.fakes.clocked_provider import ClockedProvider
from tests.fakes.logins import SERVER, LoginKit
from tests.fakes.requests import FakeRequest, fields_with
from tower.cli.client import CallFailed
from tower.cli.login import sessions
from tower.cli.login.exchange import Reply
from tower.cli.login.login_file import LoginFile, NotLoggedIn
from tower.cli.login.plugin import PluginFailed, credential
from tower.errors import TowerError, Unauthorized
from tower.kube.status import StatusError, refusal_of
from tower.trust.login_nonce import login_nonce
from tower.trust.session_tokens import public_text
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented

_CALLERS = count(1000)


class MemoryDoor:
    """The front door as `tower.cli.login` sees it."""

    ca_text, server = "", SERVER

    def __init__(self, kit: LoginKit) -> None:
        self.kit = kit

    def reachable(self, _door: object, token: str) -> Reply:
        """Return the answer about the session of *token*."""
        try:
            found = self.user(token)
        except TowerError as e:
            refusal = refusal_of(e)
            return Reply(refusal.code, {"message": str(refusal)})
        return Reply(200, {"user": found.user})

    def user(self, token: str) -> Identity:
        """Return the user of a session's token.

        :raise TowerError: it is rejected.
        """
        found = self.kit.method.authenticate(Presented(None, token.encode()))
        if isinstance(found, Deferred):
            results: list[Any] = []
            found.addBoth(results.append)
            found = results[0]
        if isinstance(found, Identity):
            return found
        raise found.value  # type: ignore[union-attr]

    def call(self, method: str, path: str, *, body: Any = None, token: str = "") -> Reply:
        """Return the answer to a request with an ID token."""
        fields = fields_with(token.encode(), content_type=b"application/json")
        request: Any = FakeRequest(path.encode(), method.encode(), fields, raw=json.dumps(body).encode())
        request.identity = self.kit.oidc.authenticate(Presented(None, token.encode()))
        results: list[Any] = []
        answer: Any = self.kit.pages(request)
        answer.addBoth(results.append)
        if isinstance(getattr(results[0], "value", None), Exception):
            refusal = refusal_of(results[0].value)
            raise CallFailed(refusal.code, "", str(refusal))
        return Reply(results[0].code, json.loads(results[0].body))


class Laptop:
    """One user's machine.

    :ivar errors: of commands, with their times.
    :ivar watch: the session of a command that runs until the proxy ends it; None: it has ended.
    :ivar watch_ended: when, s since the epoch, and why.
    """

    def __init__(self, user: str, door: MemoryDoor, provider: ClockedProvider, folder: Path) -> None:
        self.user = user
        self._door, self._provider = door, provider
        self._files = LoginFile(SERVER, folder / user)
        self._clock = door.kit.clock
        self.errors: list[tuple[float, str]] = []
        self.watch: Identity | None = None
        self.watch_ended: tuple[float, str] = (0.0, "")

    def log_in(self) -> None:
        """Log in by browser.

        :raise LookupError: the provider does not know the user.
        """
        key = Ed25519PrivateKey.generate()
        nonce = login_nonce(SERVER, public_text(key))
        id_token, refresh_token = self._provider.visit(self.user, nonce)
        door: Any = self._door
        sessions.begin(door, self._files, key, id_token, refresh_token)

    def command(self) -> Identity | None:
        """Run a command, as kubectl does; return its user, or None if it fails."""
        caller = next(_CALLERS)
        try:
            for _ in range(2):
                token, _ = credential(self._files, "", self._clock.seconds, caller, "alpha")
                try:
                    return self._door.user(token)
                except Unauthorized:
                    continue  # client-go asks the plugin again
        except (PluginFailed, NotLoggedIn, StatusError) as e:
            self.errors.append((self._clock.seconds(), str(e)))
        return None

    def work(self) -> Identity | None:
        """Run a command; log in if its error has that cure."""
        found = self.command()
        if found is None and "tower login" in self.errors[-1][1]:
            self.log_in()
            found = self.command()
        return found

    def begin_watch(self) -> None:
        """Run a command that stays."""
        self.watch = self.work()
        assert self.watch is not None
        self._door.kit.in_use.append(self.watch.key)

    def sleep(self) -> None:
        """Close the lid: the proxy notices after a while that the connection is lost."""
        if self.watch is not None:
            self._door.kit.in_use.remove(self.watch.key)
            self.watch = None

    def sweep(self) -> None:
        """Let the proxy check the command that stays."""
        if self.watch is None:
            return
        try:
            self._door.kit.method.check_lasting(self.watch)
        except TowerError as e:
            self.watch_ended = (self._clock.seconds(), str(e))
            self.sleep()


def pass_time(kit: LoginKit, laptops: Iterable[Laptop], seconds: float, period: float) -> None:
    """Let time pass on all clocks; the proxy works every *period* s, and every five minutes if it is idle."""
    everybody = list(laptops)
    while seconds > 0:
        step = min(seconds, period if kit.in_use else 300.0)
        kit.pass_time(step, step)
        for each in everybody:
            each.sweep()
        seconds -= step

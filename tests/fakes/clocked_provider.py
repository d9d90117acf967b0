"""An identity provider in memory that has the clock of its clients."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from attrs import define
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectError, ConnectionLost
from twisted.internet.task import Clock

from tests.fakes.id_tokens import CLIENT, DOCUMENT, KEYS, URL, ProviderAgent, ServedDocument, id_token

TOKEN, REVOCATION = f"{URL}/token", f"{URL}/revoke"


@define(eq=False)
class Grant:
    """Result of one login.

    :ivar current: the refresh token that is valid; *former*: the one before.
    :ivar rotated: when it was replaced, s since the epoch.
    """

    user: str
    current: str = ""
    former: str = ""
    rotated: float = 0.0


class ClockedProvider(ProviderAgent):
    """A provider whose refresh tokens are valid once, or which has none.

    :param grace: time for which a former refresh token is accepted again, s.  Later, its use ends the grant.
    :ivar users: their groups by name.
    :ivar visits: the users of all logins by browser, in order.
    :ivar refreshes: times of all accepted refreshes, s since the epoch, by user.
    :ivar is_down: whether it does not answer.
    :ivar loses_next: whether the next answer with tokens is lost.
    """

    def __init__(self, clock: Clock, *, has_refresh: bool = True, grace: float = 0.0) -> None:
        super().__init__()
        self._clock: Any = clock
        self._has_refresh = has_refresh
        self._grace = grace
        self._grants: list[Grant] = []
        self._made = 0
        self.users: dict[str, list[str]] = {}
        self.visits: list[str] = []
        self.refreshes: dict[str, list[float]] = {}
        self.is_down = self.loses_next = False
        grants = ["authorization_code", *(["refresh_token"] if has_refresh else [])]
        document = {"issuer": URL, "jwks_uri": KEYS, "grant_types_supported": grants}
        self.answers[DOCUMENT] = {**document, "token_endpoint": TOKEN, "revocation_endpoint": REVOCATION}

    def visit(self, user: str, nonce: str) -> tuple[str, str]:
        """Let a user log in by browser; return the ID token and the refresh token.

        :param nonce: of the client's request.
        :raise LookupError: there is no such user.
        """
        made = self._id_token(user, nonce=nonce)
        self.visits.append(user)
        grant = Grant(user)
        if self._has_refresh:
            self._grants.append(grant)
            grant.current = self._next()
        return made, grant.current

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Any:
        """Answer a request."""
        if self.is_down:
            return fail(ConnectError())
        if method == b"GET":
            return super().request(method, uri, headers, bodyProducer)
        written: list[bytes] = []
        bodyProducer.startProducing(type("Consumer", (), {"write": lambda _, data: written.append(data)})())
        form = {name: values[0] for name, values in parse_qs(b"".join(written).decode()).items()}
        self.answers[uri.decode()] = self._answer(uri.decode(), form)
        if self.loses_next:
            self.loses_next = False
            lost: Deferred[Any] = fail(ConnectionLost())
            return lost
        return super().request(method, uri, headers, bodyProducer)

    def _answer(self, url: str, form: dict[str, str]) -> Any:
        assert form["client_id"] == CLIENT
        if url == REVOCATION:
            self._grants = [each for each in self._grants if each.current != form["token"]]
            return {}
        given = form["refresh_token"]
        for grant in self._grants:
            if given not in (grant.current, grant.former):
                continue
            if given == grant.former and self._clock.seconds() - grant.rotated >= self._grace:
                self._grants.remove(grant)
                break
            if grant.user not in self.users:
                break
            grant.former, grant.current, grant.rotated = given, self._next(), self._clock.seconds()
            self.refreshes.setdefault(grant.user, []).append(self._clock.seconds())
            tokens = {"id_token": self._id_token(grant.user), "access_token": "a"}
            return {**tokens, "refresh_token": grant.current}
        return ServedDocument(json.dumps({"error": "invalid_grant"}).encode(), 400)

    def _id_token(self, user: str, **more: Any) -> str:
        now = int(self._clock.seconds())
        times: dict[str, Any] = {"iat": now, "exp": now + 600, "jti": str(self._made)}
        return id_token(sub=user, groups=self.users[user], **times, **more).decode()

    def _next(self) -> str:
        self._made += 1
        return f"refresh-{self._made}"

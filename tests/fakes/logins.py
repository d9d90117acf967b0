"""Login sessions in memory: a store, an issuer, its token endpoint, and a client with its key."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.id_tokens import CLIENT, DOCUMENT, ISSUER, KEYS, NOW, URL, ProviderAgent, id_token
from tests.fakes.policies import Policies
from tower.clusters import Clusters
from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.clusters.member_credentials import MemberCredentials
from tower.store import MemoryStore
from tower.trust.login_nonce import login_nonce
from tower.trust.session_tokens import LIFETIME, new_token, public_text
from tower.trust.vault import Vault
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.login.confirmer import Confirmer
from tower.web.access.authentication.login.method import LoginMethod
from tower.web.access.authentication.login.revoker import Revoker
from tower.web.access.authentication.login.token_endpoint import RefreshedTokens, TokenRequests
from tower.web.access.authentication.oidc.method import OIDCMethod
from tower.web.access.authentication.oidc.provider import OIDCProvider, ProviderDocuments
from tower.web.access.authentication.presented import Presented
from tower.web.login.entered_clusters import EnteredClusters
from tower.web.login.issuer_authorities import IssuerAuthorities
from tower.web.login.login_pages import LoginPages
from tower.web.login.login_settings import LoginSettings
from tower.web.login.session_requests import SessionRequests

#: URL of the front door.
SERVER = "https://tower.example.org"

#: Discovery document of a provider with refresh tokens.
REFRESHING = {
    "issuer": URL,
    "jwks_uri": KEYS,
    "grant_types_supported": ["authorization_code", "refresh_token"],
}


class FakeTokenRequests:
    """A provider's endpoints.

    :ivar answer: the tokens; an exception; or None: no answer until `release`.
    :ivar user: claim ``sub`` of the user with any access token, or an exception; *claims*: further ones.
    :ivar asked: the refresh tokens that were used; *revoked*: that were revoked.
    :ivar revocation: the error of a revocation; None: it succeeds.
    """

    def __init__(self) -> None:
        self.answer: RefreshedTokens | Exception | None = RefreshedTokens("", "")
        self.user: str | Exception = "jane"
        self.claims: dict[str, Any] = {}
        self.asked: list[str] = []
        self.revoked: list[str] = []
        self.revocation: Exception | None = None
        self._waiting: list[Deferred[RefreshedTokens]] = []

    async def refresh(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> RefreshedTokens:
        """See `TokenRequests.refresh`."""
        assert (provider.issuer.url, client_id) == (URL, CLIENT)
        self.asked.append(refresh_token)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            self._waiting.append(Deferred())
            return await self._waiting[-1]
        return self.answer

    async def userinfo(self, provider: OIDCProvider, access_token: str) -> Mapping[str, Any]:
        """See `TokenRequests.userinfo`."""
        if isinstance(self.user, Exception):
            raise self.user
        return {"sub": self.user, **self.claims}

    def release(self, refresh_token: str = "") -> None:
        """Answer all requests from now on, also those that wait."""
        self.answer = RefreshedTokens("", refresh_token)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(self.answer)

    async def revoke(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> None:
        """See `TokenRequests.revoke`."""
        self.revoked.append(refresh_token)
        if self.revocation is not None:
            raise self.revocation


class LoginKit:
    """All parts of logins; time of day and timers are one clock.

    :param test: cleans up.
    :param agent: the provider; by default one that confirms all users.
    :param requests: makes the requests to its token endpoint; by default `FakeTokenRequests`.
    """

    def __init__(
        self,
        test: Any,
        settings: LoginSettings | None = None,
        agent: ProviderAgent | None = None,
        requests: Callable[[Any], TokenRequests] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if clock is None:
            clock = Clock()
            clock.advance(NOW)
        self.clock: Any = clock
        self.store = MemoryStore()
        self.policies = Policies(self.store, clock.seconds())
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self._vault = Vault(Path(folder.name) / "secrets.key")
        self.agent = ProviderAgent() if agent is None else agent
        if agent is None:
            self.agent.answers[DOCUMENT] = REFRESHING
        self.settings = settings or LoginSettings({URL: CLIENT})
        self.requests = FakeTokenRequests()
        self._requests = self.requests if requests is None else requests(self.clock)
        self.in_use: list[str] = []
        self.key = Ed25519PrivateKey.generate()
        self.names = ["tower.example.org"]
        self._test = test
        self.start()

    def start(self) -> None:
        """Assemble the proxy's parts, with the records of the store; again, as after a restart."""
        clock, vault = self.clock, self._vault
        self.sessions = LoginSessions(self.store, clock, vault)
        self.oidc = OIDCMethod((ISSUER,), clock, clock.seconds, ProviderDocuments(clock, self.agent))
        self.oidc.startService()
        self._test.addCleanup(self.oidc.stopService)
        self.revoker = Revoker(self.sessions, self.oidc, self.settings.client_of, self._requests)
        self.confirmer = Confirmer(
            self.sessions,
            self.oidc,
            self.settings.client_of,
            self._requests,
            self.revoker.revoke,
            lambda: self.in_use,
            clock.seconds,
            clock,
        )
        self.method = LoginMethod(self.sessions, self.confirmer, self.fingerprint, clock.seconds)
        self.clusters = Clusters(self.store, None, clock, MemberCredentials(self.store, vault))
        self._test.addCleanup(self.clusters.stop)
        entered = EnteredClusters(self.clusters, self.policies.index, clock, clock.seconds)
        self.beginning = SessionRequests(
            self.sessions,
            self.confirmer,
            self.revoker,
            self.oidc,
            entered,
            self.settings,
            clock.seconds,
            lambda: self.names,
        )
        self.pages = LoginPages(
            self.beginning,
            entered,
            self.settings,
            lambda: self.oidc.issuers,
            lambda: b"CA",
            IssuerAuthorities(clock.seconds),
        )

    def stop(self) -> None:
        """End the proxy's parts, without any farewell."""
        self.sessions.stop()
        self.in_use.clear()

    def fingerprint(self, issuer: str) -> str:
        """Return the fingerprint of an issuer's settings; empty: there is none."""
        provider = self.oidc.provider(issuer)
        return "" if provider is None else provider.fingerprint

    def id_token(self, **claims: Any) -> bytes:
        """Return a fresh ID token of a login with the client's key."""
        now, nonce = int(self.clock.seconds()), login_nonce(SERVER, public_text(self.key))
        return id_token(**{"iat": now, "exp": now + 600, "nonce": nonce, **claims})

    def user(self, token: bytes) -> Identity:
        """Return the user of an ID token."""
        found = self.oidc.authenticate(Presented(None, token))
        assert isinstance(found, Identity)
        return found

    def begun(self, refresh_token: str = "refresh-1", **claims: Any) -> LoginSession:
        """Return a new session of the client."""
        token = self.id_token(**claims)
        body = {"publicKey": public_text(self.key), "server": SERVER, "client": "jane@laptop"}
        body["refreshToken"] = refresh_token
        found: list[Any] = []
        Deferred.fromCoroutine(self.beginning.begin(self.user(token), token, body)).addBoth(found.append)
        (result,) = found
        if not isinstance(result, LoginSession):
            raise result.value
        return result

    def token(
        self, session: LoginSession, *, at: float = 0.0, lifetime: float = LIFETIME, cluster: str = ""
    ) -> bytes:
        """Return a token of a session that is signed *at* s from now."""
        return new_token(session.id, self.key, self.clock.seconds() + at, lifetime, cluster).encode()

    def pass_time(self, seconds: float, step: float = 10.0) -> None:
        """Let time pass; the confirmer checks at each step."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            self.policies.clock.advance(min(step, seconds))
            seconds -= step
            self.confirmer.check()

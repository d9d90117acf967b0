"""Faults of identity providers and webhooks, over real TLS: no user gains a right, and no request hangs."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import jwt
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.tcp import Client as Connection
from twisted.trial.unittest import TestCase

from tests.fakes.id_tokens import rsa_key
from tests.integration.faulty_peer import ANSWERS, HANDSHAKES, FaultyPeer
from tower.errors import TowerError, Unauthorized
from tower.kube.access.token_reviews import PATH
from tower.kube.client import APIError
from tower.kube.rest import rest_config, webhook_client
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.webhook_client import WebhookClient
from tower.web.access.authentication.identity import Identity, UserInfo
from tower.web.access.authentication.login import token_endpoint
from tower.web.access.authentication.login.token_endpoint import ProviderRefused, TokenEndpoint
from tower.web.access.authentication.oidc import provider as oidc_provider
from tower.web.access.authentication.oidc.issuer import ClaimSource, IssuerSettings
from tower.web.access.authentication.oidc.provider import OIDCProvider, ProviderDocuments
from tower.web.access.authentication.presented import Presented, Stale
from tower.web.access.authentication.token_reviewer import Reviewing, TokenReviewer
from tower.web.access.authorization.attributes import attributes_of
from tower.web.access.authorization.webhook import CacheTimes, WebhookAuthorizer

reactor: Any = _reactor

#: Faults that end only with the clients' patience; all other answers, right or wrong, come at once.
STALLS = frozenset(
    {
        "freezes in the handshake",
        "freezes",
        "sends a byte now and then",
        "sends a byte of the head now and then",
    }
)

#: In place of the times of the programs, s: for `STALLS`, and for answers, which a busy machine may delay.
SHORT, LONG = 1.0, 60.0

#: Longest time until a client gives up, s: for `STALLS`, and for answers: no client waits for its patience.
BOUND, LONG_BOUND = 10.0, 30.0

#: Faults that the clients of the audit webhook and of the revocation endpoint do not see: both read only the
#: status.
STORED = frozenset(each for each in ANSWERS if "JSON" in each or "object" in each)

#: The only fault that is an answer about a token, as in kube-apiserver: it is not authenticated.
REFUSAL = "sends an empty object"

#: The provider's answers for a session.
ENDPOINTS: dict[str, Any] = {
    "/token": {"access_token": "a", "id_token": "eyJ"},
    "/userinfo": {"sub": "jane"},
    "/revocation": {},
}

#: Returns whether a client got what it wanted from the peer.
Client: TypeAlias = "Callable[[], Coroutine[Any, Any, bool]]"


class FaultyPeerTests(TestCase):
    """All clients of one peer."""

    timeout = 300

    def setUp(self) -> None:
        """Start the peer, and make the clients."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-peer-"))
        self.addCleanup(shutil.rmtree, self.folder)
        for module, name, value in (
            (webhook_client, "FIRST_DELAY", 0.01),
            (webhook_client, "LONGEST_DELAY", 0.02),
            (rest_config, "CHECK_PERIOD", 0.0),
            (oidc_provider, "PAUSE", 0.0),
            (token_endpoint, "RETRY", 0.01),
        ):
            self.patch(module, name, value)
        self.webhooks: list[WebhookClient] = []
        self.set_timeout(LONG)
        self.peer = FaultyPeer(self.folder, self.truth)
        self.addCleanup(self.peer.close)
        self.addCleanup(self.unconnected)
        self.numbers = count()
        self.later = 0.0
        self.live: Identity | None = None
        self.clients: dict[str, Client] = {
            "token webhook": partial(self.review, self.reviewer()),
            "live connection": partial(self.confirm, self.reviewer()),
            "host cluster": partial(self.review, self.reviewer(path=PATH)),
            "authorization webhook": partial(self.authorize, self.authorizer()),
            "audit webhook": partial(self.store, self.client()),
            "provider": partial(self.get_keys, ""),
            "provider's keys": partial(self.get_keys, f"{self.peer.url}/keys"),
            "token endpoint": partial(self.request, self.refresh),
            "userinfo endpoint": partial(self.request, self.subject),
            "revocation endpoint": partial(self.request, self.revoke),
        }

    def set_timeout(self, seconds: float) -> None:
        """Set the time that all clients wait for an answer."""
        for module in (webhook_client, oidc_provider, token_endpoint):
            self.patch(module, "TIMEOUT", seconds)
        self.patch(rest_config, "CONNECT_TIMEOUT", seconds)
        for each in self.webhooks:
            each._api._timeout = seconds

    @staticmethod
    async def _unconnected() -> None:
        deadline = time.monotonic() + BOUND
        while any(isinstance(each, Connection) for each in reactor.getReaders()):
            if time.monotonic() > deadline:
                raise AssertionError("a client leaves a connection open")
            await deferLater(reactor, 0.01)

    def unconnected(self) -> Deferred[None]:
        """Wait until no client is connected: each ends its connections by itself."""
        return Deferred.fromCoroutine(self._unconnected())

    def truth(self, method: str, path: str, body: bytes) -> Any:
        """Return the peer's right answer."""
        url = self.peer.url
        if path.startswith("/keys"):
            public = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key().public_key(), as_dict=True)
            return {"keys": [{**public, "kid": "first", "use": "sig"}]}
        if path.startswith("/.well-known"):
            names = ("token", "userinfo", "revocation")
            endpoints = {f"{name}_endpoint": f"{url}/{name}" for name in names}
            return {"issuer": url, "jwks_uri": f"{url}/keys", **endpoints}
        if path in ENDPOINTS:
            return ENDPOINTS[path]
        review = json.loads(body)
        if review["kind"] == "TokenReview":
            return {**review, "status": {"authenticated": True, "user": {"username": "jane"}}}
        return {**review, "status": {"allowed": True}}

    # Clients

    def client(self, path: str = "") -> WebhookClient:
        """Return a new client."""
        config = RestConfig.from_kubeconfig(self.peer.kubeconfig, reactor, {})
        made = WebhookClient(reactor, config, path=path)
        self.addCleanup(made.close)
        self.webhooks.append(made)
        return made

    def reviewer(self, path: str = "") -> TokenReviewer:
        """Return an authenticator."""
        reviewing = Reviewing("webhook", "the peer", "v1", timeout=LONG)
        return TokenReviewer(self.client(path), reviewing, reactor, lambda: time.time() + self.later)

    def authorizer(self) -> WebhookAuthorizer:
        """Return an authorizer."""
        return WebhookAuthorizer(self.client(), "v1", CacheTimes(), reactor.seconds)

    async def review(self, reviewer: TokenReviewer) -> bool:
        """Return whether a new token has a user."""
        user = await self.identity(reviewer, b"token-%d" % next(self.numbers))
        self.assertEqual((reviewer.in_flight, reviewer.blocked), (0, 0))
        return user is not None and user.user == "jane"

    async def confirm(self, reviewer: TokenReviewer) -> bool:
        """Return whether the user of a live connection is confirmed again; only a refusal ends it."""
        self.later += 2 * Reviewing("", "").ttl  # also ends the memory of a refusal
        if self.live is None:
            self.live = await self.identity(reviewer, b"live")
        if self.live is None or (lease := self.live.lease) is None:
            return False
        self.later += 2 * Reviewing("", "").ttl
        self.assertRaises(Stale, reviewer.check, self.live)
        while reviewer.in_flight:
            await deferLater(reactor, 0.01)
        self.assertEqual((self.live.user, bool(lease.refusal)), ("jane", self.peer.fault == REFUSAL))
        if lease.refusal:
            self.live = None
        return lease.counts(time.time() + self.later)

    @staticmethod
    async def identity(reviewer: TokenReviewer, token: bytes) -> Identity | None:
        """Return the user of a token; None: it is rejected."""
        try:
            found = reviewer.authenticate(Presented(None, token))
            return await found if isinstance(found, Deferred) else found
        except Unauthorized:
            return None

    async def authorize(self, authorizer: WebhookAuthorizer) -> bool:
        """Return whether a new request is allowed."""
        target = b"/path/%d" % next(self.numbers)
        answer = authorizer.authorize(attributes_of(UserInfo("jane"), b"GET", target, "alpha"))
        decision = await answer if isinstance(answer, Deferred) else answer
        return decision.is_allowed

    async def store(self, client: WebhookClient) -> bool:
        """Return whether events are stored."""
        try:
            await client.send(b'{"kind": "EventList"}')
        except APIError:
            return False
        return True

    async def get_keys(self, keys_url: str) -> bool:
        """Return whether a provider has keys."""
        provider = self.provider(keys_url)
        provider.startService()
        await provider.newer_keys()
        await provider.stopService()
        self.assertEqual(provider.keys is None, bool(provider.problem))
        return provider.keys is not None

    def provider(self, keys_url: str = "") -> OIDCProvider:
        """Return a new provider."""
        issuer = IssuerSettings(
            self.peer.url, ("tower",), ClaimSource("sub"), ca_file=str(self.peer.ca), keys_url=keys_url
        )
        return OIDCProvider(issuer, reactor, ProviderDocuments(reactor)(issuer), lambda: None)

    async def request(self, send: Callable[[TokenEndpoint, OIDCProvider], Awaitable[bool]]) -> bool:
        """Return whether a provider answers a request for a session."""
        provider = self.provider()
        provider.document = self.truth("GET", "/.well-known", b"")
        try:
            return await send(TokenEndpoint(reactor), provider)
        except ProviderRefused:  # it would end the session
            raise
        except TowerError:
            return False

    @staticmethod
    async def refresh(endpoint: TokenEndpoint, provider: OIDCProvider) -> bool:
        """Return whether there are new tokens."""
        return bool((await endpoint.refresh(provider, "tower", "refresh")).id_token)

    @staticmethod
    async def subject(endpoint: TokenEndpoint, provider: OIDCProvider) -> bool:
        """Return whether the user is the right one."""
        return bool((await endpoint.userinfo(provider, "a"))["sub"] == "jane")

    @staticmethod
    async def revoke(endpoint: TokenEndpoint, provider: OIDCProvider) -> bool:
        """Revoke a refresh token."""
        await endpoint.revoke(provider, "tower", "refresh")
        return True

    # Tests

    async def ask(self) -> dict[str, bool]:
        """Let all clients ask at the same time; return which of them succeeded."""
        began = time.monotonic()
        asking = [Deferred.fromCoroutine(client()) for client in self.clients.values()]
        found = await gatherResults(asking, consumeErrors=True)
        bound = BOUND if self.peer.fault in STALLS else LONG_BOUND
        self.assertLess(time.monotonic() - began, bound, self.peer.fault)
        return dict(zip(self.clients, found, strict=True))

    async def ask_all(self, when: str) -> None:
        """Check that all clients get what they want."""
        self.assertEqual(await self.ask(), dict.fromkeys(self.clients, True), when)

    def test_faults(self) -> Deferred[None]:
        """No fault gives or takes a right, or takes longer than a bound; afterwards all clients succeed."""
        return Deferred.fromCoroutine(self.faults())

    async def faults(self) -> None:
        """See `test_faults`."""
        nothing = dict.fromkeys(self.clients, False)
        await self.ask_all("at first")
        for fault in (*HANDSHAKES, *ANSWERS):
            self.peer.use(fault)
            self.set_timeout(SHORT if fault in STALLS else LONG)
            unseen = {"audit webhook": fault in STORED, "revocation endpoint": fault in STORED}
            self.assertEqual(await self.ask(), {**nothing, **unseen}, fault)
            self.peer.use("")
            self.set_timeout(LONG)
            await self.ask_all(f"after: {fault}")
        self.assertTrue(self.peer.redirected)
        self.assertFalse(self.peer.followed)

    def test_rotation(self) -> Deferred[None]:
        """Another CA and certificate: clients follow the files, also on kept connections."""
        return Deferred.fromCoroutine(self.rotation())

    async def rotation(self) -> None:
        """See `test_rotation`."""
        for number in range(3):
            await self.ask_all(f"rotation {number}")
            self.peer.rotate()
            await deferLater(reactor, 0.05)

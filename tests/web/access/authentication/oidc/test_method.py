"""Tests of `tower.web.access.authentication.oidc.method`."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import (
    CLIENT,
    DOCUMENT,
    GOOD,
    ISSUER,
    KEYS,
    NOW,
    URL,
    ProviderAgent,
    ServedDocument,
    id_token,
    rsa_key,
)
from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.oidc import method as tested
from tower.web.access.authentication.oidc.method import REMEMBERED_TIME, OIDCMethod
from tower.web.access.authentication.oidc.provider import PAUSE, REFRESH, RETRY, ProviderDocuments
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.union import AuthenticatorUnion

OTHER = "https://other.example"


class MethodTests(SynchronousTestCase):
    """Users with tokens of one issuer; time of day and timers are one clock."""

    def setUp(self) -> None:
        """Start the method."""
        clock: Any = Clock()
        self.clock = clock
        clock.advance(NOW)
        self.agent = ProviderAgent()
        documents = ProviderDocuments(clock, self.agent)
        self.method = OIDCMethod((ISSUER,), clock, clock.seconds, documents)
        self.method.startService()
        self.addCleanup(self.method.stopService)

    def user(self, token: bytes) -> Identity | None:
        """Return the user of a token."""
        found = self.method.authenticate(Presented(None, token))
        return self.successResultOf(found) if isinstance(found, Deferred) else found

    def found(self, token: bytes) -> Identity:
        """Return the user, who has to be found at once."""
        found = self.method.authenticate(Presented(None, token))
        assert isinstance(found, Identity)
        return found

    def rejected(self, token: bytes) -> Unauthorized:
        """Return the error of a token."""
        try:
            found = self.method.authenticate(Presented(None, token))
        except Unauthorized as e:
            return e
        assert isinstance(found, Deferred)
        self.clock.advance(PAUSE)
        error = self.failureResultOf(found, Unauthorized).value
        assert isinstance(error, Unauthorized)
        return error

    def test_identity(self) -> None:
        """The identity has the token's user and expiry, and its digest, never the token."""
        token = id_token(groups=["dev"], jti="a")
        found = self.found(token)
        self.assertEqual((found.user, found.groups, found.method), ("jane", ("dev",), "oidc"))
        self.assertEqual((found.credential, found.expires), (None, NOW + 600))
        self.assertTrue(found.session.endswith(hashlib.sha256(token).hexdigest()))
        self.assertTrue(found.uses(token), "it would be forwarded to the member")
        self.assertNotIn(token.decode(), repr(found))
        self.method.check(found)

    def test_login_clients(self) -> None:
        """Tokens for the client of logins can only begin sessions."""
        self.assertFalse(self.found(id_token()).begins_sessions)
        self.method.login_clients = {URL: "cli"}
        self.method.use((evolve(ISSUER, audiences=(CLIENT, "cli")),))
        self.clock.advance(RETRY)
        for audience, expected in ((CLIENT, False), ("cli", True), (["x", "cli"], True)):
            self.assertEqual(self.found(id_token(aud=audience)).begins_sessions, expected)

    def test_others(self) -> None:
        """Credentials that are not tokens of these issuers are for other methods."""
        for token in (b"", b"x", PREFIX.encode() + b"abc", id_token(iss=OTHER), b"a.b.c"):
            self.assertIsNone(self.user(token))
            self.assertFalse(self.method.reads(token))
        self.assertIsNone(self.method.authenticate(Presented(b"certificate", None)))
        self.assertEqual(len(self.agent.asked), 2)
        self.assertTrue(self.method.reads(id_token(aud="x", exp=0)))
        self.assertFalse(self.method.reads(b"eyJ" + b"a" * 20_000 + b".."))

    def test_remembered(self) -> None:
        """A token that was accepted is not verified again for some time."""
        token = id_token()
        first = self.found(token)
        self.clock.advance(REMEMBERED_TIME - 1)
        self.assertIs(self.found(token), first)
        self.clock.advance(1)
        self.assertIsNot(self.found(token), first)

    def test_rejections_are_not_remembered(self) -> None:
        """A rejected token does not take any memory."""
        for i in range(50):
            self.rejected(id_token(aud="x", i=i))
        self.assertEqual(len(self.method._known), 0)

    def test_remembered_tokens_are_bounded(self) -> None:
        """The oldest are forgotten."""
        self.patch(tested, "REMEMBERED_LIMIT", 3)
        tokens = [id_token(i=i) for i in range(5)]
        users = [self.found(each) for each in tokens]
        self.assertEqual(len(self.method._known), 3)
        self.assertIs(self.found(tokens[2]), users[2])
        self.found(id_token(i=9))
        self.assertIs(self.found(tokens[2]), users[2], "it was used last")
        self.assertIsNot(self.found(tokens[3]), users[3])

    def test_expiry(self) -> None:
        """A token ends with its expiry, whether remembered or cached on a connection."""
        token = id_token(exp=int(NOW) + 60)
        found = self.found(token)
        self.clock.advance(59)
        self.method.check(found)
        self.assertIs(self.found(token), found)
        self.clock.advance(1)
        self.assertEqual(self.assertRaises(Unauthorized, self.method.check, found).kind, "expired")
        self.assertEqual(self.rejected(token).kind, "expired")

    def test_clock_of_the_provider(self) -> None:
        """A provider whose clock is 5 minutes fast or slow: no token before or after its time."""
        self.assertEqual(self.rejected(id_token(nbf=int(NOW) + 300)).kind, "not-yet-valid")
        self.assertEqual(self.rejected(id_token(exp=int(NOW) - 300)).kind, "expired")

    def test_not_initialized(self) -> None:
        """Before the keys were got, the error has upstream's text and the cause."""
        self.agent.answers[KEYS] = ServedDocument(b"", 500)
        self.method.use((evolve(ISSUER, authorities=b"other"),))
        error = self.rejected(id_token())
        self.assertIn(f"oidc: authenticator not initialized ({KEYS} answered 500)", str(error))
        self.agent.rotate("first")
        self.clock.advance(RETRY)
        self.found(id_token())

    def test_kept_keys(self) -> None:
        """Other settings of an issuer count while its provider does not answer."""
        self.agent.answers[KEYS] = self.agent.answers[DOCUMENT] = ServedDocument(b"", 500)
        before = self.method.providers[0].document
        self.method.use((evolve(ISSUER, audiences=("b",)),))
        self.assertEqual(self.method.providers[0].document["jwks_uri"], KEYS)
        self.assertIs(self.method.providers[0].document, before)
        self.found(id_token(aud="b"))
        self.rejected(id_token())

    def test_rotation(self) -> None:
        """A token of a new key is accepted at once; those of a removed key end with it."""
        old, new = id_token(), id_token(name="second")
        self.found(old)
        self.agent.rotate("second")
        found = self.user(new)
        assert found is not None
        self.assertEqual(found.user, "jane")
        self.assertIn("failed to verify id token signature", str(self.rejected(old)))

    def test_same_keys(self) -> None:
        """Forged tokens, for which the proxy gets the same keys again, do not end remembered ones."""
        first = self.found(id_token())
        self.rejected(id_token(name="second"))
        self.assertGreater(len(self.agent.asked), 2)
        self.assertIs(self.found(id_token()), first)

    def test_mutations(self) -> None:
        """A changed token is never accepted, and never an error of another kind."""
        good, random = id_token(groups=["a"]), Random(1)
        self.found(good)
        for _ in range(2000):
            token = bytearray(good)
            for _ in range(random.randint(1, 3)):
                at = random.randrange(len(token))
                token[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
            if bytes(token) == good:
                continue
            try:
                found = self.method.authenticate(Presented(None, bytes(token)))
            except Unauthorized:
                continue
            self.assertFalse(isinstance(found, Identity), bytes(token))
            if isinstance(found, Deferred):
                found.addErrback(lambda failure: failure.trap(Unauthorized) and None)

    def test_removed_key(self) -> None:
        """A key that the provider removed is not used after `REFRESH`, also without any token."""
        self.agent.rotate("second")
        self.found(id_token())
        self.clock.pump([RETRY] * int(REFRESH / RETRY))
        self.rejected(id_token(exp=int(NOW) + 9000))

    def test_removed_key_on_a_connection(self) -> None:
        """Users of a removed key end, also on a connection; those of a key that stays do not."""
        changes: list[None] = []
        self.method.on_change = lambda: changes.append(None)
        self.agent.rotate("first", "second")
        first, second = self.found(id_token()), self.user(id_token(name="second"))
        assert second is not None
        self.method.check(first)
        self.agent.rotate("second")
        self.clock.pump([RETRY] * int(REFRESH / RETRY))
        far = int(NOW) + 9000
        self.method.check(evolve(second, expires=far))
        error = self.assertRaises(Unauthorized, self.method.check, evolve(first, expires=far))
        self.assertIn("the OIDC issuer's key of jane was changed or removed: log in again", str(error))
        self.assertEqual((error.kind, len(changes)), ("removed", 2))

    def test_unknown_key_while_down(self) -> None:
        """A token of an unknown key is rejected with the cause; others are accepted meanwhile."""
        self.agent.answers[KEYS] = None
        waiting = self.method.authenticate(Presented(None, id_token(name="second")))
        assert isinstance(waiting, Deferred)
        self.found(id_token())
        self.clock.advance(60)
        error = self.failureResultOf(waiting, Unauthorized).value
        self.assertIn("(fetching keys: GET ", str(error))

    def test_forged(self) -> None:
        """A flood of forged tokens does not get any user, and seldom causes a request to the provider."""
        attacker = rsa_key("attacker")
        waiting: list[Deferred[Any]] = []
        before = len(self.agent.asked)
        for i in range(200):
            found = self.method.authenticate(Presented(None, id_token(key=attacker, i=i)))
            assert isinstance(found, Deferred)
            waiting.append(found)
            self.clock.advance(0.05)
        self.clock.advance(60)
        for each in waiting:
            self.failureResultOf(each, Unauthorized)
        self.assertLess(len(self.agent.asked) - before, 10)
        self.found(id_token())

    def test_several_issuers(self) -> None:
        """Each token is verified with its issuer's keys and settings only."""
        other = evolve(ISSUER, url=OTHER)
        document = OTHER + "/.well-known/openid-configuration"
        self.agent.answers[document] = {"issuer": OTHER, "jwks_uri": OTHER + "/keys"}
        self.agent.answers[OTHER + "/keys"] = {
            "keys": [{**each, "kid": "first"} for each in self._keys("other")]
        }
        self.method.use((ISSUER, other))
        self.found(id_token())
        self.found(id_token(iss=OTHER, key=rsa_key("other")))
        self.rejected(id_token(iss=OTHER))
        self.rejected(id_token(key=rsa_key("other")))

    def _keys(self, name: str) -> list[dict[str, Any]]:
        agent = ProviderAgent(name)
        keys: list[dict[str, Any]] = agent.answers[KEYS]["keys"]
        return keys

    def test_changed_issuers(self) -> None:
        """The users of a changed or removed issuer end; those of others, and their keys, stay."""
        found = self.found(id_token())
        asked = len(self.agent.asked)
        self.method.use((evolve(ISSUER),))
        self.method.check(found)
        self.assertEqual(len(self.agent.asked), asked)
        self.method.use((evolve(ISSUER, audiences=("b",)),))
        self.assertEqual(self.assertRaises(Unauthorized, self.method.check, found).kind, "removed")
        self.assertIn('expected audience "b"', str(self.rejected(id_token())))
        self.method.use(())
        self.assertIsNone(self.user(id_token()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_changed_while_waiting(self) -> None:
        """An issuer that is removed while a token waits for newer keys does not give any user."""
        self.agent.answers[KEYS] = Deferred()
        waiting = self.method.authenticate(Presented(None, id_token(name="second")))
        assert isinstance(waiting, Deferred)
        self.method.use(())
        self.failureResultOf(waiting, Unauthorized)

    def test_in_the_union(self) -> None:
        """The union's rejection is this method's, with its cure."""
        union = AuthenticatorUnion(self.method)
        error = self.assertRaises(Unauthorized, union.authenticate, Presented(None, id_token(aud="x")))
        self.assertIn("use a token for this client", str(error))
        found = union.authenticate(Presented(None, id_token({**GOOD, "iss": URL})))
        assert isinstance(found, Identity)
        union.check(found)

"""Join tokens, and the keys enrolled by them."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.store_contract import HeldStore
from tower.clusters import Clusters, join_tokens
from tower.clusters.join_tokens import (
    KEY_LIMIT,
    MAX_TTL,
    MAX_USES,
    REMEMBERED,
    TOKEN_LIMIT,
    JoinTokens,
)
from tower.clusters.manifest_imports import ManifestImports
from tower.errors import Conflict, Invalid, NotFound, TowerError, Unauthorized
from tower.store.kinds import REVOKED_KEYS
from tower.store.records import Create

#: A moment in 2026, s.
NOW = 1_790_000_000.0


class JoinTokensTests(SynchronousTestCase):
    """Each test has the cluster alpha, and keys named by one letter."""

    def setUp(self) -> None:
        """Make a store with one cluster."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = HeldStore()
        self.clusters = Clusters(self.store, None, self.clock)
        self.addCleanup(self.clusters.stop)
        self.successResultOf(self.clusters.add("alpha"))
        self.tokens = JoinTokens(self.store, self.clock)

    def minted(self, cluster: str = "alpha", ttl: float = 3600.0, uses: int = 1) -> str:
        """Return a new token."""
        return self.successResultOf(self.tokens.mint(cluster, ttl, uses))

    def enrol(self, token: str, key: str, cluster: str = "alpha") -> Deferred[None]:
        """Enrol a key, like another proxy with the same store."""
        return JoinTokens(self.store, self.clock).enrol(cluster, token, f"SHA256:{key}", key.encode())

    def let_in(self, token: str, key: str) -> None:
        """Expect the key to be enrolled."""
        self.successResultOf(self.enrol(token, key))
        self.assertTrue(self.tokens.is_enrolled("alpha", f"SHA256:{key}"))

    def kept_out(self, token: str, key: str, reason: str, cluster: str = "alpha") -> None:
        """Expect the key to be rejected, for a reason that is not in the text."""
        error = self.failureResultOf(self.enrol(token, key, cluster), Unauthorized).value
        assert isinstance(error, Unauthorized)
        self.assertEqual(str(error), "Unauthorized")
        self.assertIn(reason, error.reason)
        self.assertNotIn(token or "tower-", error.reason)

    def text(self, failed: Deferred[str] | Deferred[None], kind: type[TowerError]) -> str:
        """Return the text of a failure."""
        return str(self.failureResultOf(failed, kind).value)

    def refused(self, fingerprint: str, cluster: str = "alpha") -> tuple[str, str]:
        """Return kind and reason of the rejection of a key."""
        refusal = self.tokens.refusal(cluster, fingerprint)
        assert refusal is not None
        return refusal.kind, refusal.reason

    def test_pending(self) -> None:
        """Unused tokens and import URLs are listed until they are used up, fetched, expired or revoked."""
        imports = ManifestImports(self.store, self.clock)
        token = self.minted(uses=2)
        self.clock.advance(1)
        url = self.successResultOf(imports.create("alpha", 60, 3, {}))
        first, second = self.tokens.pending()
        self.assertEqual((first.uses, first.is_url, second.uses, second.is_url), (2, False, 3, True))
        self.assertEqual(second.expires, NOW + 61)
        self.let_in(token, "a")
        self.assertEqual([each.uses for each in self.tokens.pending()], [1, 3])
        self.let_in(token, "b")
        self.assertEqual([each.id for each in self.tokens.pending()], [second.id])
        fetched = self.successResultOf(imports.fetch(url))
        (third,) = self.tokens.pending()
        self.assertEqual((third.uses, third.is_url), (3, False))
        self.successResultOf(self.tokens.revoke_pending(third.id))
        self.kept_out(fetched.token, "c", "unknown join token")
        self.assertEqual(self.tokens.pending(), [])
        self.failureResultOf(self.tokens.revoke_pending(third.id), NotFound)
        self.minted(ttl=10)
        self.clock.advance(10)
        self.assertEqual(self.tokens.pending(), [])

    def test_enrolment(self) -> None:
        """A token lets a key in, which is known from then on with all that belongs to it."""
        token = self.minted()
        self.assertRegex(token, r"^tower-[A-Za-z0-9_-]{43}$")
        self.assertFalse(self.tokens.is_enrolled("alpha", "SHA256:k"))
        self.assertEqual(self.refused("SHA256:k"), ("unknown-key", "the key SHA256:k is not enrolled"))
        self.clock.advance(5)
        self.let_in(token, "k")
        self.assertIsNone(self.tokens.refusal("alpha", "SHA256:k"))
        (key,) = self.tokens.agent_keys("alpha")
        self.assertEqual((key.fingerprint, key.blob, key.enrolled), ("SHA256:k", b"k", NOW + 5))

    def test_secrets_stay_out(self) -> None:
        """The store does not hold the token, and no two tokens are alike."""
        one, two = self.minted(), self.minted()
        self.assertNotEqual(one, two)
        for kind in ("jointokens", "agentkeys"):
            held = json.dumps({name: dict(r.value) for name, r in self.store.snapshot(kind).items()})
            self.assertNotIn(one.removeprefix("tower-"), held)

    def test_uses(self) -> None:
        """A token lets as many keys in as it has uses, and none after them."""
        token = self.minted(uses=2)
        self.let_in(token, "a")
        self.let_in(token, "b")
        self.kept_out(token, "c", "used up")
        self.assertEqual(
            [key.fingerprint for key in self.tokens.agent_keys("alpha")], ["SHA256:a", "SHA256:b"]
        )

    def test_answer_lost(self) -> None:
        """The same token with the same key succeeds again, spent or expired, and costs no use."""
        token = self.minted(uses=2)
        self.let_in(token, "a")
        version = self.store.version
        self.let_in(token, "a")
        self.assertEqual(self.store.version, version)
        self.let_in(token, "b")
        self.let_in(token, "a")
        self.clock.advance(3600)
        self.let_in(token, "a")
        self.successResultOf(self.tokens.purge())
        self.let_in(token, "a")
        self.kept_out(token, "c", "")

    def test_expiry(self) -> None:
        """A token is invalid from the second of its expiry; enrolled keys stay."""
        token = self.minted(ttl=60.0, uses=2)
        self.let_in(token, "a")
        self.clock.advance(60)
        self.kept_out(token, "b", "expired")
        self.assertTrue(self.tokens.is_enrolled("alpha", "SHA256:a"))

    def test_clock_set_back(self) -> None:
        """An expiry that was seen holds when the clock is set back; and so does one from the future."""
        token = self.minted(ttl=60.0)
        self.clock.advance(61)
        self.successResultOf(self.tokens.purge())
        self.clock.rightNow = NOW + 30
        self.kept_out(token, "a", "used up")
        fresh = self.minted(ttl=60.0)
        self.clock.rightNow = NOW - 100
        self.let_in(fresh, "a")
        other = self.minted(ttl=60.0)
        self.clock.rightNow = NOW - 1000
        self.kept_out(other, "b", "expired")

    def test_all_alike(self) -> None:
        """Every reason looks the same from outside; the log has it."""
        token = self.minted()
        self.successResultOf(self.clusters.add("beta"))
        self.kept_out(token, "a", "unknown cluster", cluster="gamma")
        self.kept_out(token, "a", "another cluster", cluster="beta")
        self.kept_out(token[:-1], "a", "unknown join token")
        self.kept_out("", "a", "unknown join token")
        self.kept_out("\udcff\0", "a", "unknown join token")
        self.successResultOf(self.clusters.set_enabled("alpha", enabled=False))
        self.kept_out(token, "a", "disabled")

    def test_disabled(self) -> None:
        """A key of a disabled cluster is refused until the cluster is enabled."""
        self.let_in(self.minted(), "a")
        self.successResultOf(self.clusters.set_enabled("alpha", enabled=False))
        self.assertEqual(self.refused("SHA256:a"), ("disabled", "the cluster is disabled"))
        self.assertEqual(self.refused("SHA256:b")[0], "unknown-key")
        self.successResultOf(self.clusters.set_enabled("alpha", enabled=True))
        self.assertTrue(self.tokens.is_enrolled("alpha", "SHA256:a"))

    def test_keys_belong_to_one_cluster(self) -> None:
        """A key is let into the cluster it was enrolled for alone."""
        self.successResultOf(self.clusters.add("beta"))
        self.let_in(self.minted(), "a")
        self.assertFalse(self.tokens.is_enrolled("beta", "SHA256:a"))
        self.assertEqual(self.refused("SHA256:a", "gamma"), ("unknown-cluster", "unknown cluster"))
        self.assertEqual(list(self.tokens.agent_keys("beta")), [])
        self.assertEqual(list(self.tokens.agent_keys("gamma")), [])

    def test_racing_keys(self) -> None:
        """If several keys use a token with one use concurrently, one is enrolled."""
        token = self.minted()
        self.store.holding = True
        asked = [self.enrol(token, key) for key in "abc"]
        self.store.release()
        self.successResultOf(asked[0])
        for refused in asked[1:]:
            self.failureResultOf(refused, Unauthorized)
        self.assertEqual(len(self.tokens.agent_keys("alpha")), 1)

    def test_many_at_once(self) -> None:
        """If many agents use one token concurrently, all are enrolled, with one write each."""
        token = self.minted(uses=50)
        self.store.holding = True
        asked = [self.tokens.enrol("alpha", token, f"SHA256:{n}", b"") for n in range(50)]
        self.assertEqual(len(self.store.held), 1)
        # A key without a token does not wait for them.
        self.kept_out("tower-x", "a", "unknown join token")
        self.store.release()
        for answer in asked:
            self.successResultOf(answer)

    def test_racing_same_key(self) -> None:
        """A key that is enrolled twice concurrently succeeds twice, for one use."""
        token = self.minted(uses=2)
        self.store.holding = True
        asked = [self.enrol(token, "a"), self.enrol(token, "a")]
        self.store.release()
        for answer in asked:
            self.successResultOf(answer)
        self.store.holding = False
        self.let_in(token, "b")
        self.kept_out(token, "c", "used up")

    def test_cluster_removed_meanwhile(self) -> None:
        """A key that comes while its cluster is removed is kept out, and leaves nothing."""
        token = self.minted()
        self.store.holding = True
        removed = self.clusters.remove("alpha")
        asked, minting = self.enrol(token, "a"), self.tokens.mint("alpha")
        self.store.release()
        self.successResultOf(removed)
        self.failureResultOf(asked, Unauthorized)
        self.text(minting, NotFound)
        self.assertEqual([len(self.store.snapshot(kind)) for kind in ("jointokens", "agentkeys")], [0, 0])

    def test_cluster_disabled_meanwhile(self) -> None:
        """A key that comes while its cluster is disabled is kept out."""
        token = self.minted()
        self.store.holding = True
        self.clusters.set_enabled("alpha", enabled=False)
        asked = self.enrol(token, "a")
        self.store.release()
        self.failureResultOf(asked, Unauthorized)

    def test_revoked(self) -> None:
        """A revoked key is rejected, its token becomes invalid, and other keys of the token stay."""
        token = self.minted(uses=3)
        self.let_in(token, "a")
        self.let_in(token, "b")
        self.successResultOf(self.tokens.revoke("alpha", "SHA256:a"))
        self.assertFalse(self.tokens.is_enrolled("alpha", "SHA256:a"))
        self.assertTrue(self.tokens.is_enrolled("alpha", "SHA256:b"))
        self.kept_out(token, "a", "unknown join token")
        self.kept_out(token, "c", "unknown join token")
        self.assertEqual(self.refused("SHA256:a"), ("revoked", "the key SHA256:a was revoked"))
        self.let_in(self.minted(), "a")
        self.assertEqual(len(self.store.snapshot(REVOKED_KEYS)), 0)

    def test_revoked_keys_are_limited(self) -> None:
        """The oldest revoked keys are forgotten, and all with their cluster."""
        self.patch(join_tokens, "REVOKED_LIMIT", 2)
        for key in "abc":
            self.let_in(self.minted(), key)
            self.successResultOf(self.tokens.revoke("alpha", f"SHA256:{key}"))
        self.assertEqual(
            [self.refused(f"SHA256:{key}")[0] for key in "abc"], ["unknown-key", "revoked", "revoked"]
        )
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(len(self.store.snapshot(REVOKED_KEYS)), 0)

    def test_revoke_what_is_not_there(self) -> None:
        """An unknown key or cluster is named, with the cure."""
        text = self.text(self.tokens.revoke("alpha", "SHA256:x"), NotFound)
        self.assertIn("SHA256:x", text)
        self.assertIn("tower cluster agents alpha", text)
        self.assertIn("cluster beta", self.text(self.tokens.revoke("beta", "SHA256:x"), NotFound))

    def test_revoked_twice_at_once(self) -> None:
        """If a key is revoked twice concurrently, one revocation fails with `NotFound`."""
        self.let_in(self.minted(), "a")
        self.store.holding = True
        one, two = (self.tokens.revoke("alpha", "SHA256:a") for _ in range(2))
        self.store.release()
        self.successResultOf(one)
        self.text(two, NotFound)

    def test_enrolled_anew(self) -> None:
        """A key that is in may come again with another token, and is then that token's."""
        first, second = self.minted(), self.minted()
        self.let_in(first, "a")
        self.let_in(second, "a")
        self.assertEqual(len(self.tokens.agent_keys("alpha")), 1)
        self.successResultOf(self.tokens.revoke("alpha", "SHA256:a"))
        self.kept_out(second, "a", "unknown join token")
        self.kept_out(first, "a", "used up")

    def test_mint_refusals(self) -> None:
        """Invalid requests are named in the error."""
        self.assertIn("cluster x not found", self.text(self.tokens.mint("x"), NotFound))
        for ttl in (0.0, -1.0, MAX_TTL + 1, float("nan"), float("inf")):
            self.assertIn("ttl", self.text(self.tokens.mint("alpha", ttl), Invalid))
        for uses in (0, -1, MAX_USES + 1):
            self.assertIn("uses", self.text(self.tokens.mint("alpha", 60.0, uses), Invalid))

    def test_limits(self) -> None:
        """A cluster has only so many tokens and keys."""
        token = self.minted()
        uid = self.clusters.require("alpha").uid
        for kind, limit in (("agentkeys", KEY_LIMIT), ("jointokens", TOKEN_LIMIT)):
            filling = [Create(kind, f"{uid}/{number}", {"cluster_uid": uid}) for number in range(limit)]
            self.successResultOf(self.store.transact(filling))
        self.kept_out(token, "more", "revoke some")
        self.assertIn("the limit of 1000 join tokens", self.text(self.tokens.mint("alpha"), Conflict))

    def test_purge(self) -> None:
        """Expired tokens are spent, and a day later forgotten; the others stay."""
        self.minted(ttl=60.0)
        self.minted(ttl=7 * 86400.0)
        self.assertEqual(self.successResultOf(self.tokens.purge()), 0)
        self.clock.advance(60)
        self.assertEqual(self.successResultOf(self.tokens.purge()), 1)
        self.assertEqual(self.successResultOf(self.tokens.purge()), 0)
        self.clock.advance(REMEMBERED)
        self.assertEqual(self.successResultOf(self.tokens.purge()), 1)
        self.assertEqual(len(self.store.snapshot("jointokens")), 1)

    def test_purge_in_a_race(self) -> None:
        """A purge that others overtake waits for the next round."""
        self.let_in(self.minted(ttl=60.0, uses=2), "a")
        self.clock.advance(60)
        self.store.holding = True
        purge = self.tokens.purge()
        self.store.holding = False
        self.successResultOf(self.tokens.revoke("alpha", "SHA256:a"))
        self.store.release()
        self.assertEqual(self.successResultOf(purge), 0)

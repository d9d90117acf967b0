"""The tokens of agents of ``kubesphere-v1``."""

from __future__ import annotations

import hashlib
import json
from unittest.mock import patch

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.store_contract import HeldStore
from tower.clusters import Clusters
from tower.clusters.v1_tokens import LONGEST, SHORTEST, TOKEN_LIMIT, V1Tokens
from tower.errors import Conflict, Invalid, NotFound, TowerError, Unauthorized
from tower.store.kinds import V1_TOKENS
from tower.store.records import StoreFailed

#: A moment in 2026, s.
NOW = 1_790_000_000.0

#: As upstream makes them: 64 hex digits.
OLD = "0123456789abcdef" * 4


class V1TokensTests(SynchronousTestCase):
    """Each test has the clusters alpha and beta."""

    def setUp(self) -> None:
        """Make a store with two clusters."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = HeldStore()
        self.clusters = Clusters(self.store, None, self.clock)
        self.addCleanup(self.clusters.stop)
        for name in ("alpha", "beta"):
            self.successResultOf(self.clusters.add(name))
        self.tokens = V1Tokens(self.store, self.clock)
        self.addCleanup(self.tokens.stop)

    def minted(self, cluster: str = "alpha", token: str | None = None) -> str:
        """Return a new token, or import one."""
        return self.successResultOf(self.tokens.mint(cluster, token))

    def reason(self, cluster: str, token: str) -> str:
        """Return why a token is rejected, for the log; the peer does not receive the reason."""
        with self.assertRaises(Unauthorized) as caught:
            self.tokens.check(cluster, token)
        self.assertEqual(str(caught.exception), "Unauthorized")
        reason: str = caught.exception.reason
        self.assertNotIn(token or "tower-", reason)
        return reason

    def refused(self, cluster: str, token_id: str) -> str:
        """Return why the token with that ID is rejected, for the log."""
        refusal = self.tokens.refusal(cluster, token_id)
        assert refusal is not None
        return refusal.reason

    def text(self, failed: Deferred[str] | Deferred[None], kind: type[TowerError]) -> str:
        """Return the text of a failure."""
        return str(self.failureResultOf(failed, kind).value)

    def test_minted(self) -> None:
        """A new token is valid for its cluster, repeatedly and for years."""
        token = self.minted()
        self.assertRegex(token, r"^tower-v1-[A-Za-z0-9_-]{43}$")
        self.assertEqual(
            self.tokens.check("alpha", token), "v1:" + hashlib.sha256(token.encode()).hexdigest()[:12]
        )
        self.clock.advance(20 * 365 * 86400.0)
        found = self.tokens.check("alpha", token)
        self.assertIsNone(self.tokens.refusal("alpha", found))
        (known,) = self.tokens.tokens("alpha")
        self.assertEqual((known.cluster, known.id, known.minted), ("alpha", found, NOW))

    def test_secrets_stay_out(self) -> None:
        """The store does not hold the token, and no two tokens are alike."""
        one, two, old = self.minted(), self.minted(), self.minted(token=OLD)
        self.assertNotEqual(one, two)
        held = json.dumps({name: dict(r.value) for name, r in self.store.snapshot(V1_TOKENS).items()})
        for token in (one.removeprefix("tower-v1-"), two.removeprefix("tower-v1-"), old):
            self.assertNotIn(token, held)
        self.assertNotIn(OLD, repr(self.tokens.tokens("alpha")))

    def test_refused_alike(self) -> None:
        """The reason of a rejection is for the log only."""
        token = self.minted()
        self.assertEqual(self.reason("gamma", token), "unknown cluster")
        self.assertEqual(self.reason("alpha", token + "x"), "unknown token")
        self.assertEqual(self.reason("alpha", token[:-1]), "unknown token")
        self.assertEqual(self.reason("alpha", ""), "unknown token")
        self.assertEqual(self.reason("alpha", token + "\n"), "unknown token")
        self.assertEqual(self.reason("alpha", "\ud800é"), "unknown token")
        self.assertEqual(self.reason("beta", token), "unknown token")
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.assertEqual(self.reason("alpha", token), "the cluster is disabled")
        self.assertEqual(self.reason("alpha", "another-token-here"), "unknown token")

    def test_record_of_another_token(self) -> None:
        """The first digits of a digest only find a record: all of them count."""
        token = self.minted()
        ((name, record),) = self.store.snapshot(V1_TOKENS).items()
        digest = record.value["digest"]
        other = {**record.value, "digest": digest[:12] + "0" * (len(digest) - 12)}
        self.successResultOf(self.store.update(V1_TOKENS, name, other))
        self.assertEqual(self.reason("alpha", token), "unknown token")
        self.assertIn("another token", self.text(self.tokens.mint("alpha", token), Conflict))

    def test_imported(self) -> None:
        """A token that agents have already is taken over, more than once and for two clusters alike."""
        self.assertEqual(self.minted(token=OLD), OLD)
        self.assertEqual(self.minted(token=OLD), OLD)
        self.assertEqual(len(self.tokens.tokens("alpha")), 1)
        self.minted("beta", OLD)
        found = self.tokens.check("alpha", OLD)
        self.assertEqual(self.tokens.check("beta", OLD), found)
        self.successResultOf(self.tokens.revoke("alpha", found))
        self.assertEqual(self.reason("alpha", OLD), "unknown token")
        self.assertEqual(self.tokens.check("beta", OLD), found)

    def test_import_refused(self) -> None:
        """A token that agents cannot send, or that is easy to guess, is rejected without being shown."""
        for token in (
            "",
            "s3cr3t".ljust(SHORTEST - 1, "x"),
            "s3cr3t".ljust(LONGEST + 1, "x"),
            "s3cr3t word that is two",
            "s3cr3t-with-a-newline\n",
            "s3cr3t-with-an-umlaut-ü",
            "s3cr3t-with-a-null\0",
        ):
            said = self.text(self.tokens.mint("alpha", token), Invalid)
            self.assertIn("one word of 16 to 1024", said)
            self.assertNotIn("s3cr3t", said)
        for length in (SHORTEST, LONGEST):
            self.minted(token="x" * length)

    def test_several(self) -> None:
        """A cluster may have several, so that they can be changed one agent at a time; but not any number."""
        tokens = [self.minted() for _ in range(TOKEN_LIMIT)]
        self.assertIn("tower cluster revoke alpha", self.text(self.tokens.mint("alpha"), Conflict))
        self.minted(token=tokens[0])
        self.minted("beta")
        self.assertEqual(len({self.tokens.check("alpha", token) for token in tokens}), TOKEN_LIMIT)

    def test_oldest_first(self) -> None:
        """They are listed in the order in which they were made, each cluster's alone."""
        expected = []
        for _ in range(3):
            expected.append(self.tokens.check("alpha", self.minted()))
            self.clock.advance(1)
        self.minted("beta")
        self.assertEqual([token.id for token in self.tokens.tokens("alpha")], expected)
        self.assertEqual(self.tokens.tokens("gamma"), [])

    def test_revoked(self) -> None:
        """A revoked token is invalid; the others stay valid."""
        one, two = self.minted(), self.minted()
        found = self.tokens.check("alpha", one)
        self.successResultOf(self.tokens.revoke("alpha", found))
        self.assertEqual(self.reason("alpha", one), "unknown token")
        self.assertEqual(self.refused("alpha", found), "the token was revoked")
        self.tokens.check("alpha", two)
        for wrong in (found, "v1:", "v1:0", "SHA256:x", found.removeprefix("v1:")):
            self.assertIn("tower cluster agents", self.text(self.tokens.revoke("alpha", wrong), NotFound))
        self.text(self.tokens.revoke("gamma", found), NotFound)

    def test_restarted(self) -> None:
        """After a restart, and in another proxy with the same store, the tokens are valid."""
        other = V1Tokens(self.store, self.clock)
        self.addCleanup(other.stop)
        self.minted()
        late = V1Tokens(self.store, self.clock)
        self.addCleanup(late.stop)
        for tokens in (other, late):
            self.assertEqual(tokens.tokens("alpha"), self.tokens.tokens("alpha"))
        self.successResultOf(late.revoke("alpha", late.tokens("alpha")[0].id))
        for tokens in (self.tokens, other, late):
            self.assertEqual(tokens.tokens("alpha"), [])

    def test_refusal(self) -> None:
        """A checked token can be checked again without the token itself."""
        found = self.tokens.check("alpha", self.minted())
        self.assertEqual(self.refused("gamma", found), "unknown cluster")
        self.assertEqual(self.refused("beta", found), "the token was revoked")
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.assertEqual(self.refused("alpha", found), "the cluster is disabled")

    def test_cluster_removed(self) -> None:
        """A removed cluster takes its tokens along; a new one of the same name begins without any."""
        token = self.minted()
        found = self.tokens.check("alpha", token)
        self.minted("beta", OLD)
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(self.reason("alpha", token), "unknown cluster")
        self.assertEqual(len(self.store.snapshot(V1_TOKENS)), 1)
        self.successResultOf(self.clusters.add("alpha"))
        self.assertEqual(self.reason("alpha", token), "unknown token")
        self.assertEqual(self.refused("alpha", found), "the token was revoked")
        self.assertEqual(self.tokens.tokens("alpha"), [])
        self.tokens.check("beta", OLD)

    def test_cluster_gone_meanwhile(self) -> None:
        """Creating a token for a cluster that is being removed fails, and leaves no token behind."""
        self.text(self.tokens.mint("gamma"), NotFound)
        self.store.holding = True
        removal, minting = self.clusters.remove("alpha"), self.tokens.mint("alpha")
        self.store.release()
        self.successResultOf(removal)
        self.assertIn("alpha", self.text(minting, NotFound))
        self.assertEqual(dict(self.store.snapshot(V1_TOKENS)), {})

    def test_revoked_twice_at_once(self) -> None:
        """If a token is revoked twice concurrently, one revocation fails with `NotFound`."""
        found = self.tokens.check("alpha", self.minted())
        self.store.holding = True
        one, two = self.tokens.revoke("alpha", found), self.tokens.revoke("alpha", found)
        self.store.release()
        self.successResultOf(one)
        self.text(two, NotFound)

    def test_imported_twice_at_once(self) -> None:
        """If the same token is imported twice concurrently, both imports succeed."""
        self.store.holding = True
        one, two = self.tokens.mint("alpha", OLD), self.tokens.mint("alpha", OLD)
        self.store.release()
        self.assertEqual((self.successResultOf(one), self.successResultOf(two)), (OLD, OLD))
        self.assertEqual(len(self.tokens.tokens("alpha")), 1)

    def test_connected(self) -> None:
        """The first connection with a token is written, and only that one."""
        found = self.tokens.check("alpha", self.minted())
        self.assertFalse(self.tokens.all()[0].connected)
        for cluster, token_id in (("alpha", "v1:000000000000"), ("gamma", found), ("beta", found)):
            self.tokens.connected(cluster, token_id)
        self.assertFalse(self.tokens.all()[0].connected)
        self.assertFalse(self.tokens.are_used("alpha"))
        self.store.holding = True
        self.tokens.connected("alpha", found)
        self.tokens.connected("alpha", found)
        self.store.release()
        self.store.holding = False
        version = self.store.version
        self.assertTrue(self.tokens.are_used("alpha"))
        self.tokens.connected("alpha", found)
        (token,) = self.tokens.all()
        self.assertEqual((token.id, token.connected, self.store.version), (found, True, version))

    def test_connection_not_written(self) -> None:
        """A connection that cannot be written is written at the next one."""
        found = self.tokens.check("alpha", self.minted())
        with patch.object(self.store, "transact", lambda _: fail(StoreFailed("no space left"))):
            self.tokens.connected("alpha", found)
        self.assertFalse(self.tokens.all()[0].connected)
        self.tokens.connected("alpha", found)
        self.assertTrue(self.tokens.all()[0].connected)

    def test_earlier_version(self) -> None:
        """A token in the store of an earlier version counts as used."""
        self.minted()
        (record,) = self.store.snapshot(V1_TOKENS).values()
        value = {key: each for key, each in record.value.items() if key != "connected"}
        self.successResultOf(self.store.update(V1_TOKENS, record.name, value))
        self.assertTrue(self.tokens.all()[0].connected)

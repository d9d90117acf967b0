"""The credentials that were issued to users."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tests.store.store_contract import HeldStore
from tower.clusters import Clusters
from tower.clusters.credentials import REMEMBERED, Credential, Credentials
from tower.errors import Conflict, Invalid, NotFound, TowerError

#: A moment in 2026, s.
NOW = 1_790_000_000.0


class CredentialsTests(SynchronousTestCase):
    """Each test has the cluster alpha, and credentials that may live a day."""

    def setUp(self) -> None:
        """Make a store with one cluster."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = HeldStore()
        self.clusters = Clusters(self.store, None, self.clock)
        self.addCleanup(self.clusters.stop)
        self.uid = self.successResultOf(self.clusters.add("alpha")).uid
        self.credentials = self.reopened()

    def reopened(self) -> Credentials:
        """Return the credentials as another start of the proxy sees them."""
        credentials = Credentials(self.store, self.clock, 86400.0)
        self.addCleanup(credentials.stop)
        return credentials

    def issued(self, cluster: str = "alpha", ttl: float = 3600.0) -> tuple[Credential, str]:
        """Return a new token of jane's."""
        return self.successResultOf(self.credentials.issue_token(cluster, "jane", ["dev", "qa", "dev"], ttl))

    def text(self, failed: Deferred[Any], kind: type[TowerError]) -> str:
        """Return the text of a failure."""
        return str(self.failureResultOf(failed, kind).value)

    def rewritten(self, name: str, **more: object) -> None:
        """Change a record as a newer Tower would."""
        record = self.store.get("credentials", name)
        assert record is not None
        self.successResultOf(self.store.update("credentials", name, {**record.value, **more}, record.version))

    def test_of_a_newer_tower(self) -> None:
        """A record with an unknown field is logged with the cure and rejected; all others work."""
        (credential, _), (other, _) = self.issued(), self.issued()
        ended: list[Credential] = []
        self.credentials.watch_ends(ended.append)
        lines = logged_lines(self)
        self.rewritten(credential.id, limited_to=["pods"])
        text = (
            f"credential {credential.id} is rejected: its record has the unknown field limited_to, as "
            "written by a newer Tower: upgrade this one, or issue another credential"
        )
        for credentials in (self.credentials, self.reopened()):
            self.assertIsNone(credentials.find(credential.digest))
            self.assertIsNone(credentials.get(credential.id))
            self.assertEqual(credentials.list("alpha"), [other])
        self.assertEqual(lines, [text, text])
        self.assertEqual(ended, [credential])
        self.assertIn(text, self.text(self.credentials.revoke(credential.id), Invalid))

    def test_token(self) -> None:
        """A token is found by its digest, with all its properties."""
        credential, token = self.issued()
        self.assertRegex(token, r"^towerk-[A-Za-z0-9_-]{43}$")
        found = self.credentials.find(hashlib.sha256(token.encode()).hexdigest())
        self.assertEqual(found, credential)
        self.assertEqual((credential.cluster, credential.cluster_uid), ("alpha", self.uid))
        self.assertEqual(
            (credential.user, credential.groups, credential.kind), ("jane", ("dev", "qa"), "token")
        )
        self.assertEqual((credential.issued, credential.expires), (NOW, NOW + 3600))
        self.assertEqual(self.credentials.get(credential.id), credential)
        self.assertIsNone(self.credentials.find("0" * 64))
        self.assertIsNone(self.credentials.get("c-x"))

    def test_certificate(self) -> None:
        """A certificate is found by its digest, and registered once."""
        register = self.credentials.register_certificate
        credential = self.successResultOf(register("alpha", "jane", ["dev"], 60.0, "ab" * 32))
        self.assertEqual(self.credentials.find("ab" * 32), credential)
        self.assertEqual(credential.kind, "cert")
        self.text(register("alpha", "joe", [], 60.0, "ab" * 32), Conflict)

    def test_reopened(self) -> None:
        """Another start finds what was issued before."""
        credential, _ = self.issued()
        self.assertEqual(self.reopened().find(credential.digest), credential)

    def test_secrets_stay_out(self) -> None:
        """The store does not hold the token, and a credential's repr not even its digest."""
        credential, token = self.issued()
        held = json.dumps([dict(record.value) for record in self.store.snapshot("credentials").values()])
        self.assertNotIn(token.removeprefix("towerk-"), held)
        self.assertNotIn(credential.digest, repr(credential))

    def test_own_api(self) -> None:
        """A credential without cluster is for Tower's own API."""
        credential, _ = self.issued(cluster="")
        self.assertEqual((credential.cluster, credential.cluster_uid), ("", ""))
        self.assertEqual(list(self.credentials.list("")), [credential])
        self.assertEqual(list(self.credentials.list("alpha")), [])

    def test_list(self) -> None:
        """A cluster's credentials are listed, the oldest first."""
        first, _ = self.issued()
        self.clock.advance(1)
        second, _ = self.issued()
        self.issued(cluster="")
        self.assertEqual(list(self.credentials.list("alpha")), [first, second])

    def test_refusals(self) -> None:
        """Invalid requests are rejected with name and cure."""
        issue = self.credentials.issue_token
        self.assertIn("cluster x not found", self.text(issue("x", "jane", [], 60.0), NotFound))
        for ttl in (0.0, -1.0, 86401.0, float("nan"), float("inf")):
            self.assertIn("--max-credential-ttl", self.text(issue("alpha", "jane", [], ttl), Invalid))
        for name in ("", " jane", "jane ", "ja\nne", "ja\rne", "ja\0ne", "j" * 254, "jané"):
            self.assertIn(repr(name), self.text(issue("alpha", name, [], 60.0), Invalid))
            self.assertIn(repr(name), self.text(issue("alpha", "jane", ["dev", name], 60.0), Invalid))
        self.assertEqual(len(self.store.snapshot("credentials")), 0)

    def test_validity(self) -> None:
        """A credential opens from the moment it was issued until the second it expires."""
        credential, _ = self.issued()
        self.assertTrue(credential.valid(NOW))
        self.assertTrue(credential.valid(NOW + 3599.9))
        self.assertFalse(credential.valid(NOW + 3600))
        self.assertTrue(credential.valid(NOW - 299))
        self.assertFalse(credential.valid(NOW - 301))

    def test_revoked(self) -> None:
        """A revoked credential is found as such; revoking it again changes nothing."""
        credential, _ = self.issued()
        self.clock.advance(5)
        revoked = self.successResultOf(self.credentials.revoke(credential.id))
        self.assertEqual((revoked.revoked, revoked.revoked_at), (True, NOW + 5))
        self.assertEqual(self.credentials.find(credential.digest), revoked)
        self.assertFalse(revoked.valid(NOW + 5))
        self.clock.advance(5)
        self.assertEqual(self.successResultOf(self.credentials.revoke(credential.id)), revoked)

    def test_revoke_what_is_not_there(self) -> None:
        """An unknown credential, or one of another cluster, is named."""
        credential, _ = self.issued()
        self.assertIn("c-x", self.text(self.credentials.revoke("c-x"), NotFound))
        self.assertIn(credential.id, self.text(self.credentials.revoke(credential.id, "beta"), NotFound))
        self.successResultOf(self.credentials.revoke(credential.id, "alpha"))

    def test_purge(self) -> None:
        """Expired credentials are marked as ended, and removed a day later."""
        short, _ = self.issued(ttl=60.0)
        long, _ = self.issued(ttl=86400.0)
        self.assertEqual(self.successResultOf(self.credentials.purge()), 0)
        self.clock.advance(60)
        self.assertEqual(self.successResultOf(self.credentials.purge()), 1)
        self.assertEqual(self.successResultOf(self.credentials.purge()), 0)
        self.assertIsNone(self.credentials.find(short.digest))
        self.assertTrue(self.successResultOf(self.credentials.revoke(short.id)).ended)
        self.assertEqual(self.credentials.find(long.digest), long)
        self.clock.advance(REMEMBERED)
        self.assertEqual(self.successResultOf(self.credentials.purge()), 2)
        self.assertEqual([c.id for c in self.credentials.list("alpha")], [long.id])

    def test_purge_is_done_in_parts(self) -> None:
        """Many that expire at once are ended over several rounds."""
        for _ in range(501):
            self.issued(ttl=60.0)
        self.clock.advance(60)
        self.assertEqual([self.successResultOf(self.credentials.purge()) for _ in range(3)], [500, 1, 0])

    def test_clock_set_back(self) -> None:
        """An expiry that was seen holds when the clock is set back, after a restart too."""
        credential, _ = self.issued(ttl=60.0)
        self.clock.advance(61)
        self.successResultOf(self.credentials.purge())
        self.clock.rightNow = NOW + 30
        for credentials in (self.credentials, self.reopened()):
            self.assertIsNone(credentials.find(credential.digest))
            kept = credentials.get(credential.id)
            assert kept is not None
            self.assertFalse(kept.valid(NOW + 30))

    def test_cluster_removed(self) -> None:
        """A removed cluster's credentials are removed, and watches receive each."""
        ends: list[str] = []
        credential, _ = self.issued()
        other, _ = self.issued(cluster="")
        self.credentials.watch_ends(lambda ended: ends.append(ended.id))
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertIsNone(self.credentials.find(credential.digest))
        self.assertEqual(self.credentials.find(other.digest), other)
        self.assertEqual(ends, [credential.id])

    def test_ends(self) -> None:
        """Watches receive revoked and expired credentials, and no others."""
        ends: list[str] = []
        self.credentials.watch_ends(lambda ended: ends.append(ended.id))
        first, _ = self.issued()
        second, _ = self.issued(ttl=60.0)
        self.successResultOf(self.credentials.revoke(first.id))
        self.clock.advance(61)
        self.successResultOf(self.credentials.purge())
        self.assertEqual(ends, [first.id, second.id])

    def test_cluster_removed_meanwhile(self) -> None:
        """No credential is issued for a cluster that is removed meanwhile."""
        self.store.holding = True
        self.clusters.remove("alpha")
        issuing = self.credentials.issue_token("alpha", "jane", [], 60.0)
        self.store.release()
        self.text(issuing, NotFound)
        self.assertEqual(len(self.store.snapshot("credentials")), 0)

    def test_races(self) -> None:
        """Of writers at the same time none is lost: a revocation holds, a purge waits for its next round."""
        credential, _ = self.issued(ttl=60.0)
        self.clock.advance(60)
        self.store.holding = True
        purge = self.credentials.purge()
        revoke = self.credentials.revoke(credential.id)
        self.store.release()
        self.assertEqual(self.successResultOf(purge), 1)
        both = self.successResultOf(revoke)
        self.assertEqual((both.revoked, both.ended), (True, True))

    def test_stopped(self) -> None:
        """After a stop the store is not followed any more."""
        self.credentials.stop()
        credential, _ = self.successResultOf(self.reopened().issue_token("alpha", "jane", [], 60.0))
        self.assertIsNone(self.credentials.find(credential.digest))

"""Tests of `tower.clusters.manifest_imports`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.agent_rejection import AgentRejected
from tower.clusters.clusters import Clusters
from tower.clusters.join_tokens import REMEMBERED, TOKEN_LIMIT, JoinTokens, digest_of
from tower.clusters.manifest_imports import SECRET_LENGTH, FetchedImport, ImportEnded, ManifestImports
from tower.errors import Conflict, Invalid, NotFound
from tower.store import MemoryStore
from tower.store.kinds import JOIN_TOKENS

NOW = 1_800_000_000.0
SETTINGS = {"image": "tower:1"}


class ImportsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Make a store with the cluster alpha."""
        self.clock = Clock()
        self.clock.advance(NOW)
        clock: Any = self.clock
        self.store = MemoryStore()
        self.clusters = Clusters(self.store, None, clock)
        self.done(self.clusters.add("alpha"))
        self.tokens = JoinTokens(self.store, clock)
        self.imports = ManifestImports(self.store, clock)

    def done(self, doing: Deferred[Any]) -> Any:
        """Return the result."""
        return self.successResultOf(doing)

    def create(self, ttl: float = 600.0, uses: int = 1) -> str:
        """Return the secret of a new URL."""
        return str(self.done(self.imports.create("alpha", ttl, uses, SETTINGS)))

    def ended(self, secret: str) -> ImportEnded:
        """Return why a URL cannot be fetched, which checking and fetching agree about."""
        checked: ImportEnded = self.assertRaises(ImportEnded, self.imports.check, secret)
        fetched = self.failureResultOf(self.imports.fetch(secret), ImportEnded).value
        self.assertEqual(str(fetched), str(checked))
        return checked

    def test_once(self) -> None:
        """The first fetch gets a join token with the settings; any further one is an error."""
        secret = self.create(uses=2)
        self.assertEqual(len(secret), SECRET_LENGTH)
        self.assertEqual(self.imports.check(secret), "alpha")
        self.assertEqual(self.imports.check(secret), "alpha")
        fetched: FetchedImport = self.done(self.imports.fetch(secret))
        self.assertEqual((fetched.cluster, fetched.settings), ("alpha", SETTINGS))
        self.assertNotIn(fetched.token, repr(fetched))
        for name in ("a", "b"):
            self.done(self.tokens.enrol("alpha", fetched.token, f"SHA256:{name}", b""))
        self.failureResultOf(self.tokens.enrol("alpha", fetched.token, "SHA256:c", b""), AgentRejected)
        self.assertTrue(self.ended(secret).was_fetched)

    def test_concurrent(self) -> None:
        """If two clients fetch at the same time, one of them gets the token."""
        secret = self.create()
        results: list[Any] = []
        for _ in range(2):
            self.imports.fetch(secret).addBoth(results.append)
        self.assertEqual(len([each for each in results if isinstance(each, FetchedImport)]), 1)
        self.assertEqual(len(self.store.snapshot(JOIN_TOKENS)), 2)

    def test_stored(self) -> None:
        """The store has digests only; the URL's secret is not a join token."""
        secret = self.create()
        self.assertNotIn(secret, str(dict(self.store.snapshot(JOIN_TOKENS))))
        self.failureResultOf(self.tokens.enrol("alpha", secret, "SHA256:a", b""), AgentRejected)
        self.assertEqual(self.tokens.unspent(NOW + 1), [])
        fetched = self.done(self.imports.fetch(secret))
        self.assertEqual(set(self.store.snapshot(JOIN_TOKENS)), {digest_of(secret), digest_of(fetched.token)})

    def test_expiry(self) -> None:
        """URL and token expire at the same time, whenever the URL is fetched; both are purged later."""
        late, early = self.create(), self.create()
        self.clock.advance(599)
        token = self.done(self.imports.fetch(early)).token
        self.done(self.tokens.enrol("alpha", token, "SHA256:a", b""))
        self.clock.advance(1)
        self.failureResultOf(self.tokens.enrol("alpha", token, "SHA256:b", b""), AgentRejected)
        error = self.ended(late)
        self.assertFalse(error.was_fetched)
        self.assertIn("tower join alpha --output-url", str(error))
        self.clock.advance(REMEMBERED)
        self.done(self.tokens.purge())
        self.assertEqual(dict(self.store.snapshot(JOIN_TOKENS)), {})
        self.assertRaises(NotFound, self.imports.check, late)

    def test_clock_set_back(self) -> None:
        """A URL from the future, because the clock was set back, cannot be fetched."""
        secret = self.create()
        self.clock.rightNow = NOW - 3600
        self.assertFalse(self.ended(secret).was_fetched)

    def test_unknown(self) -> None:
        """Unknown secrets, join tokens and URLs of a removed cluster are not found."""
        secret = self.create()
        token = self.done(self.tokens.mint("alpha"))
        for text in ("", "x", token):
            self.assertRaises(NotFound, self.imports.check, text)
            self.failureResultOf(self.imports.fetch(text), NotFound)
        self.done(self.clusters.remove("alpha"))
        self.assertRaises(NotFound, self.imports.check, secret)
        self.done(self.clusters.add("alpha"))
        self.assertRaises(NotFound, self.imports.check, secret)

    def test_invalid(self) -> None:
        """Lifetime and uses have the limits of join tokens, and the number of both together too."""
        for ttl, uses in ((0.0, 1), (31 * 86400.0, 1), (60.0, 0), (60.0, 1001)):
            self.failureResultOf(self.imports.create("alpha", ttl, uses, {}), Invalid)
        self.failureResultOf(self.imports.create("beta", 60.0, 1, {}), NotFound)
        for _ in range(TOKEN_LIMIT - 1):
            self.create()
        self.failureResultOf(self.imports.create("alpha", 60.0, 1, {}), Conflict)

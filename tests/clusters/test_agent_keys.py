"""Tests of `tower.clusters.agent_keys`."""

from __future__ import annotations

from unittest.mock import patch

from twisted.internet.defer import fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.store_contract import HeldStore
from tower.clusters import Clusters
from tower.clusters.agent_keys import NEVER_CAME, AgentKeys
from tower.clusters.join_tokens import JoinTokens
from tower.store.kinds import AGENT_KEYS
from tower.store.records import StoreFailed, Update

NOW = 1_790_000_000.0
KEY = "SHA256:a"


class AgentKeysTests(SynchronousTestCase):
    """Each test has the cluster alpha with one enrolled key."""

    def setUp(self) -> None:
        """Enrol it."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = HeldStore()
        clusters = Clusters(self.store, None, self.clock)
        self.addCleanup(clusters.stop)
        self.successResultOf(clusters.add("alpha"))
        self.tokens = JoinTokens(self.store, self.clock)
        self.token = self.successResultOf(self.tokens.mint("alpha", uses=5))
        self.enrol()
        self.keys = AgentKeys(self.store, self.clock)
        self.confirmations = 0
        self.keys.on_confirmed = self.count

    def count(self) -> None:
        """Count confirmations."""
        self.confirmations += 1

    def enrol(self, key: str = KEY) -> None:
        """Enrol a key."""
        self.successResultOf(self.tokens.enrol("alpha", self.token, key, b"blob"))

    def purged(self) -> int:
        """Return the number of keys that a purge removes."""
        return int(self.successResultOf(self.keys.purge()))

    def test_never_came(self) -> None:
        """A key whose agent never connects is shown with its end, and removed then."""
        facts = self.keys.of("alpha", KEY)
        assert facts is not None
        self.assertEqual((facts.connected, facts.purged), (False, NOW + NEVER_CAME))
        self.clock.advance(NEVER_CAME - 1)
        self.assertEqual(self.purged(), 0)
        self.clock.advance(1)
        self.assertEqual(self.purged(), 1)
        self.assertIsNone(self.keys.of("alpha", KEY))
        self.assertFalse(self.tokens.is_enrolled("alpha", KEY))

    def test_came(self) -> None:
        """A key whose agent has connected once stays; further connections are not written."""
        self.keys.connected("alpha", KEY)
        self.clock.advance(1)
        version = self.store.version
        self.keys.connected("alpha", KEY)
        self.clock.advance(NEVER_CAME)
        self.assertEqual((self.purged(), self.store.version), (0, version))
        facts = self.keys.of("alpha", KEY)
        assert facts is not None
        self.assertIsNone(facts.purged)

    def test_connects_at_the_end(self) -> None:
        """A key whose agent connects at the last moment is not removed before that is written."""
        self.clock.advance(NEVER_CAME)
        self.keys.connected("alpha", KEY)
        self.assertEqual(self.purged(), 0)

    def test_earlier_version(self) -> None:
        """Keys in a store of an earlier version count as used."""
        (record,) = self.store.snapshot(AGENT_KEYS).values()
        value = {name: each for name, each in record.value.items() if name != "connected"}
        self.successResultOf(self.store.transact([Update(AGENT_KEYS, record.name, value)]))
        self.clock.advance(2 * NEVER_CAME)
        self.assertEqual(self.purged(), 0)

    def test_enrolled_again(self) -> None:
        """A used key that is enrolled again still counts as used."""
        self.keys.connected("alpha", KEY)
        self.clock.advance(1)
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, KEY, b"blob"))
        facts = self.keys.of("alpha", KEY)
        assert facts is not None
        self.assertTrue(facts.connected)

    def test_confirmed(self) -> None:
        """Confirmations of many agents are written together, and the last of each counts."""
        self.enrol("SHA256:b")
        version = self.store.version
        self.keys.confirmed("alpha", KEY, ["x"])
        self.keys.confirmed("alpha", KEY, ["y", "z"])
        self.keys.confirmed("alpha", "SHA256:b", ["y"])
        self.keys.confirmed("alpha", "SHA256:unknown", ["y"])
        self.keys.confirmed("beta", KEY, ["y"])
        self.assertEqual(self.store.version, version)
        self.clock.advance(1)
        self.assertEqual((self.store.version, self.confirmations), (version + 2, 1))
        found = {key.fingerprint: [key.has(pin) for pin in "xyz"] for key in self.keys.all()}
        self.assertEqual(found, {KEY: [False, True, True], "SHA256:b": [False, True, False]})

    def test_revoked_meanwhile(self) -> None:
        """A key that is revoked before the write does not keep the others from it."""
        self.enrol("SHA256:b")
        for key in (KEY, "SHA256:b"):
            self.keys.confirmed("alpha", key, ["x"])
        self.successResultOf(self.tokens.revoke("alpha", KEY))
        self.clock.advance(1)
        (left,) = self.keys.all()
        self.assertEqual((left.fingerprint, left.has("x")), ("SHA256:b", True))

    def test_full_disk(self) -> None:
        """A fact that cannot be written is written later, and the key is not removed until then."""
        self.keys.connected("alpha", KEY)
        with patch.object(self.store, "transact", lambda _: fail(StoreFailed("no space left"))):
            self.clock.advance(1)
            self.clock.advance(NEVER_CAME)
        self.assertEqual(self.purged(), 0)
        self.clock.advance(60)
        facts = self.keys.of("alpha", KEY)
        assert facts is not None
        self.assertTrue(facts.connected)

    def test_stop(self) -> None:
        """After a stop nothing is written, and no timer is left."""
        self.keys.connected("alpha", KEY)
        self.keys.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

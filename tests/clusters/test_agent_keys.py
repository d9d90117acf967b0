"""Tests of `tower.clusters.agent_keys`."""

from __future__ import annotations

from unittest.mock import patch

from attrs import evolve
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.store_contract import HeldStore
from tower.clusters import Clusters
from tower.clusters.agent_keys import NEVER_CAME, AgentKeys, LastAgent
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.v1_tokens import V1Tokens, id_of_token
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

    def test_quiet_period(self) -> None:
        """The last agent is written once in a store's quiet period; other facts at once."""
        with patch.object(HeldStore, "quiet_period", 900.0):
            version = self.store.version
            for number in range(20):
                agent = LastAgent("edge-1", f"192.0.2.1:{number}", "1.0", None)
                self.keys.saw("alpha", KEY, agent)
                self.clock.advance(29)
                self.keys.saw("alpha", KEY, evolve(agent, seen=self.clock.seconds()))
                self.clock.advance(1)
            self.assertEqual(self.store.version, version)
            last = self.keys.last("alpha", KEY)
            assert last is not None
            self.assertEqual(last.address, "192.0.2.1:19")
            self.keys.confirmed("alpha", KEY, ["pin"])
            self.clock.advance(1)
            self.assertEqual(self.store.version, version + 1)
            self.keys.saw("alpha", KEY, LastAgent("edge-2", "192.0.2.1:4711", "1.0", None))
            self.clock.advance(899)
            self.assertEqual(self.store.version, version + 1)
            self.clock.advance(1)
            self.assertEqual(self.store.version, version + 2)

    def test_flush(self) -> None:
        """Before a stop all facts are written; a store that fails does not delay it."""
        with patch.object(HeldStore, "quiet_period", 900.0):
            agent = LastAgent("edge-1", "192.0.2.1:4711", "1.0", None)
            self.keys.saw("alpha", KEY, agent)
            with patch.object(HeldStore, "transact", lambda *_: fail(StoreFailed("full"))):
                self.successResultOf(Deferred.fromCoroutine(self.keys.flush()))
            self.successResultOf(Deferred.fromCoroutine(self.keys.flush()))
            self.keys.stop()
            self.assertEqual(AgentKeys(self.store, self.clock).last("alpha", KEY), agent)

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

    def agent(self, seen: float | None = None, port: int = 1, host: str = "edge-1") -> LastAgent:
        """Return an agent."""
        return LastAgent(host, f"192.0.2.1:{port}", "1.2.3", seen)

    def test_last_agent(self) -> None:
        """The last agent of a key is known at once, and written."""
        self.assertIsNone(self.keys.last("alpha", KEY))
        for seen in (None, NOW + 5):
            self.keys.saw("alpha", KEY, self.agent(seen))
            self.assertEqual(self.keys.last("alpha", KEY), self.agent(seen))
            self.clock.advance(1)
            self.assertEqual(AgentKeys(self.store, self.clock).last("alpha", KEY), self.agent(seen))
        self.keys.saw("alpha", "SHA256:unknown", self.agent())
        self.assertIsNone(self.keys.last("alpha", "SHA256:unknown"))
        self.assertEqual(self.confirmations, 0)

    def test_few_writes(self) -> None:
        """An agent that reconnects from another port is not written; one on another host is."""
        self.keys.saw("alpha", KEY, self.agent())
        self.clock.advance(1)
        version = self.store.version
        self.keys.saw("alpha", KEY, self.agent(port=2))
        self.clock.advance(1)
        self.assertEqual(self.store.version, version)
        self.keys.saw("alpha", KEY, self.agent(host="edge-2"))
        self.clock.advance(1)
        self.assertEqual(self.store.version, version + 1)

    def test_token(self) -> None:
        """The token of v1 agents has its last agent, too, and remains valid."""
        tokens = V1Tokens(self.store, self.clock)
        self.addCleanup(tokens.stop)
        token = self.successResultOf(tokens.mint("alpha"))
        name = id_of_token(token)
        self.keys.saw("alpha", name, self.agent(NOW))
        self.clock.advance(1)
        self.assertEqual(AgentKeys(self.store, self.clock).last("alpha", name), self.agent(NOW))
        self.assertEqual(tokens.check("alpha", token), name)

    def restart(self, seen: float) -> AgentKeys:
        """Return the facts of another run; the cluster was last seen at *seen*."""
        keys = AgentKeys(self.store, self.clock)
        keys.resume(lambda _: seen)
        return keys

    def settle(self, keys: AgentKeys) -> None:
        """Write the agents that did not return."""
        self.successResultOf(Deferred.fromCoroutine(keys.settle()))

    def test_lost_with_the_proxy(self) -> None:
        """An agent that does not return after a restart keeps its time, also if the cluster is seen later."""
        self.keys.saw("alpha", KEY, self.agent())
        self.clock.advance(1)
        keys = self.restart(NOW + 7)
        self.assertEqual(keys.last("alpha", KEY), self.agent(NOW + 7))
        self.settle(keys)
        self.assertEqual(self.restart(NOW + 99).last("alpha", KEY), self.agent(NOW + 7))

    def test_returned_after_a_restart(self) -> None:
        """An agent that returns after a restart is not written."""
        self.keys.saw("alpha", KEY, self.agent())
        self.clock.advance(1)
        keys = self.restart(NOW + 7)
        version = self.store.version
        keys.saw("alpha", KEY, self.agent(port=2))
        self.settle(keys)
        self.clock.advance(1)
        self.assertEqual(self.store.version, version)
        self.assertEqual(keys.last("alpha", KEY), self.agent())

    def test_returns_during_the_write(self) -> None:
        """An agent that returns while its loss is written is connected."""
        self.keys.saw("alpha", KEY, self.agent())
        self.clock.advance(1)
        keys = self.restart(NOW + 7)
        held: Deferred[None] = Deferred()
        with patch.object(self.store, "transact", return_value=held) as transact:
            settling = Deferred.fromCoroutine(keys.settle())
            keys.saw("alpha", KEY, self.agent())
        self.successResultOf(self.store.transact(transact.call_args.args[0]))
        held.callback(None)
        self.successResultOf(settling)
        self.clock.advance(1)
        self.assertEqual(AgentKeys(self.store, self.clock).last("alpha", KEY), self.agent())

    def test_after_the_stop(self) -> None:
        """The end of tunnels at a stop starts no timer."""
        self.keys.stop()
        self.keys.saw("alpha", KEY, self.agent(NOW))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """After a stop nothing is written, and no timer is left."""
        self.keys.connected("alpha", KEY)
        self.keys.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

"""Tests of `tower.rotation.rotations`, with the rotation of the host key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import fail

from tests.fakes.certificates import NOW
from tests.fakes.rotations import RotationTestCase
from tower.clusters.join_tokens import UnspentToken
from tower.errors import Conflict, NotFound
from tower.rotation.dependents import NAMED, Dependents, LackingAgent
from tower.rotation.rotation import PREFIX
from tower.rotation.rotations import Rotations
from tower.store.kinds import SETTINGS
from tower.store.records import Delete, StoreFailed


class RotationsTests(RotationTestCase):
    def test_nobody_to_wait_for(self) -> None:
        """Without agents the rotation finishes at once."""
        old = self.keys.fingerprints()[0]
        rotation = self.begin("host-key")
        self.assertIsNotNone(rotation.finished)
        self.assertEqual(self.keys.fingerprints(), [rotation.new])
        self.assertEqual(rotation.old, old)
        self.assertNotEqual(rotation.new, old)

    def test_confirmed(self) -> None:
        """The rotation finishes when the last agent has confirmed the new key, and a restart has that key."""
        agents = [self.enrol("alpha", "SHA256:a"), self.enrol("beta", "SHA256:b")]
        rotation = self.begin("host-key")
        self.assertIsNone(rotation.finished)
        self.assertEqual(self.keys.fingerprints(), [rotation.old, rotation.new])
        agents[0].confirm()
        self.settle()
        remaining = self.rotations.remaining(self.rotation("host-key"))
        self.assertEqual((remaining.ready, [one.cluster for one in remaining.agents]), (1, ["beta"]))
        agents[1].confirm()
        self.clock.advance(1.0)
        self.assertIsNotNone(self.rotation("host-key").finished)
        self.assertTrue(self.rotations.remaining(self.rotation("host-key")).is_empty)
        self.restart()
        self.assertEqual(self.keys.fingerprints(), [rotation.new])

    def test_confirmations_survive_a_restart(self) -> None:
        """Agents that confirmed before a restart need not confirm again."""
        self.enrol("alpha", "SHA256:a").confirm()
        gone = self.enrol("beta", "SHA256:b", connect=False)
        self.begin("host-key")
        for tunnel in self.tunnels:
            tunnel.confirm()  # type: ignore[attr-defined]
        self.settle()
        self.restart()
        self.assertEqual(self.rotations.remaining(self.rotation("host-key")).ready, 1)
        self.tunnels.add(gone)
        gone.confirm()
        self.settle()
        self.assertIsNotNone(self.rotation("host-key").finished)

    def test_hostile_agent(self) -> None:
        """The answer of an agent counts for its own key only, and its silence cannot pass a date."""
        silent = self.enrol("alpha", "SHA256:a")
        hostile = self.enrol("beta", "SHA256:b")
        self.begin("host-key", 3600.0)
        hostile.confirm()
        hostile.confirm()
        self.settle()
        (lacking,) = self.rotations.remaining(self.rotation("host-key")).agents
        self.assertEqual((lacking.cluster, lacking.agent), (silent.name, silent.fingerprint))
        self.clock.advance(3600.0)
        self.check()
        self.assertIsNotNone(self.rotation("host-key").finished)

    def test_join_lines(self) -> None:
        """A valid join token of before the rotation is waited for, until it is used or has expired."""
        self.successResultOf(self.tokens.mint("alpha", 600.0))
        self.clock.advance(1.0)
        rotation = self.begin("host-key")
        self.assertEqual(self.rotations.remaining(rotation).join_tokens, [UnspentToken("alpha", NOW + 600.0)])
        self.successResultOf(self.tokens.mint("alpha", 6000.0))  # its join line has both keys
        self.clock.advance(600.0)
        self.check()
        self.assertIsNotNone(self.rotation("host-key").finished)

    def test_log(self) -> None:
        """The log has both keys of a rotation, or none for a missing old one."""
        for target, old in (("secrets-key", "none"), ("host-key", self.keys.fingerprints()[0])):
            with patch.object(Rotations, "_log") as log:
                rotation = self.begin(target)
            text, values = log.info.call_args_list[0].args[0], log.info.call_args_list[0].kwargs
            self.assertEqual(
                text.format(**values), f"rotation of {target} begun: from {old} to {rotation.new}"
            )

    def test_twice(self) -> None:
        """A second begin is rejected, or sets the date."""
        self.enrol("alpha", "SHA256:a")
        first = self.begin("host-key")
        error = self.failureResultOf(self.rotations.begin("host-key"), Conflict).value
        self.assertIn("tower rotate status", str(error))
        second = self.begin("host-key", 10.0)
        self.assertEqual((second.new, second.started), (first.new, first.started))
        self.assertIsNotNone(self.begin("host-key", 0.0).finished)
        self.assertEqual(self.keys.fingerprints(), [first.new])

    def test_cancel(self) -> None:
        """A canceled rotation keeps the old key, announces it alone, and leaves no file."""
        agent = self.enrol("alpha", "SHA256:a")
        rotation = self.begin("host-key")
        self.successResultOf(self.rotations.cancel("host-key"))
        self.assertEqual(self.keys.fingerprints(), [rotation.old])
        self.assertEqual(agent.announcements[-1].host_keys, (rotation.old,))
        self.assertFalse(list(self.state.path.glob("*.next")))
        self.assertIsNone(self.rotations.get("host-key"))
        self.failureResultOf(self.rotations.cancel("host-key"), NotFound)
        self.restart()
        self.assertEqual(self.keys.fingerprints(), [rotation.old])

    def test_stopped_before_the_record(self) -> None:
        """A next key without a record is a rotation in progress."""
        self.enrol("alpha", "SHA256:a")
        rotation = self.begin("host-key")
        self.successResultOf(self.store.transact([Delete(SETTINGS, PREFIX + "host-key")]))
        self.restart()
        found = self.rotation("host-key")
        self.assertEqual((found.old, found.new, found.finished), (rotation.old, rotation.new, None))

    def test_stopped_after_the_switch(self) -> None:
        """A record in progress whose new key is in use is finished."""
        self.enrol("alpha", "SHA256:a")
        rotation = self.begin("host-key")
        self.state.rename("ssh_host_ed25519_key.next", "ssh_host_ed25519_key")
        self.restart()
        self.assertEqual(self.keys.fingerprints(), [rotation.new])
        self.assertIsNotNone(self.rotation("host-key").finished)

    def test_removed_file(self) -> None:
        """A record in progress whose next key was removed by hand is dropped."""
        self.enrol("alpha", "SHA256:a")
        rotation = self.begin("host-key")
        self.state.remove("ssh_host_ed25519_key.next")
        self.restart()
        self.assertIsNone(self.rotations.get("host-key"))
        self.assertEqual(self.keys.fingerprints(), [rotation.old])

    def test_full_disk(self) -> None:
        """A rotation that cannot finish goes on with the old key, and finishes later."""
        self.enrol("alpha", "SHA256:a")
        rotation = self.begin("host-key", 60.0)
        path = self.state.path / "ssh_host_ed25519_key.next"
        key = path.read_bytes()
        path.unlink()
        self.clock.advance(60.0)
        self.check()
        self.assertEqual(self.keys.fingerprints()[0], rotation.old)
        path.write_bytes(key)
        self.check()
        self.assertEqual(self.keys.fingerprints(), [rotation.new])

    def test_record_not_written(self) -> None:
        """If the end cannot be recorded, the new key is in use, and the record is written later."""
        for target in ("host-key", "serving-ca"):
            self.enrol("alpha", f"SHA256:{target}", connect=False)
            rotation = self.begin(target, 60.0)
            self.clock.advance(60.0)
            with patch.object(self.store, "transact", self.not_finished(self.store.transact)):
                self.check()
                self.check()
            self.assertIn(rotation.new, (self.keys.fingerprints()[0], self.keys.authority.hash))
            self.assertIsNone(self.rotation(target).finished)
            self.check()
            self.assertIsNotNone(self.rotation(target).finished)
            self.assertGreater(self.rotation(target).stranded.agents, 0)

    def not_finished(self, transact: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a `transact` that cannot write the end of a rotation."""

        def written(operations: Any) -> Any:
            if any(each.value["finished"] for each in operations):
                return fail(StoreFailed("no space left"))
            return transact(operations)

        return written

    def test_stranded(self) -> None:
        """A rotation that ends at its date keeps and logs what lacks the new key, also after a restart."""
        self.enrol("alpha", "SHA256:a", connect=False)
        self.successResultOf(self.tokens.mint("beta", 6000.0))
        self.clock.advance(1.0)
        with patch.object(Rotations, "_log") as log:
            self.begin("host-key", 0.0)
        text, values = log.warn.call_args_list[0].args[0], log.warn.call_args_list[0].kwargs
        line = text.format(**values)
        for part in ("agents 1, join lines 1, credentials of users 0", "; SHA256:a of alpha"):
            self.assertIn(part, line)
        self.restart()
        stranded = self.rotation("host-key").stranded
        self.assertEqual(stranded.named_agents, (LackingAgent("alpha", "SHA256:a", "not connected"),))
        self.assertEqual(stranded.named_join_lines, (UnspentToken("beta", NOW + 6000.0),))
        self.assertEqual(stranded, Dependents.decode(stranded.encode()))

    def test_many_stranded(self) -> None:
        """A record names a limited number of agents, and counts all."""
        agents = [LackingAgent("alpha", f"SHA256:{number}", "") for number in range(NAMED + 7)]
        found = Dependents.of(agents, (), ())
        self.assertEqual((found.agents, len(found.named_agents)), (NAMED + 7, NAMED))

    def test_earlier_version(self) -> None:
        """The record of a rotation that an earlier version finished can be read."""
        self.begin("host-key")
        record = self.store.get(SETTINGS, PREFIX + "host-key")
        assert record is not None
        value = {key: each for key, each in record.value.items() if key != "stranded"}
        self.successResultOf(self.store.update(SETTINGS, record.name, value))
        self.assertTrue(self.rotation("host-key").stranded.is_empty)

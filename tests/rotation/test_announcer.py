"""Tests of `tower.rotation.announcer`."""

from __future__ import annotations

from tests.fakes.rotations import AnnouncedTunnel, RotationTestCase


class AnnouncerTests(RotationTestCase):
    def reasons(self) -> dict[str, str]:
        """Return why agents lack the next host key, by fingerprint."""
        remaining = self.rotations.remaining(self.rotation("host-key"))
        return {one.agent: one.reason for one in remaining.agents}

    def test_only_during_rotations(self) -> None:
        """New tunnels get an announcement only while a rotation waits for agents."""
        self.assertEqual(self.enrol("alpha", "SHA256:a").announcements, [])
        rotation = self.begin("host-key")
        later = self.enrol("beta", "SHA256:b")
        (announced,) = later.announcements
        self.assertEqual(announced.host_keys, (rotation.old, rotation.new))
        self.assertEqual(announced.ca_hashes, self.keys.authority.hashes)

    def test_reasons(self) -> None:
        """Agents that are away, silent or of an earlier version have different reasons."""
        self.enrol("alpha", "SHA256:away", connect=False)
        self.enrol("alpha", "SHA256:silent")
        old = self.enrol("beta", "SHA256:old")
        self.begin("host-key")
        old.refuse()
        found = self.reasons()
        self.assertEqual(found["SHA256:away"], "not connected")
        self.assertEqual(found["SHA256:silent"], "has not answered yet")
        self.assertIn("version 1.0.0", found["SHA256:old"])
        self.assertIn("upgrade the agent", found["SHA256:old"])

    def test_repeated(self) -> None:
        """Agents that refused get the announcement again at each check: they may have stored it by then."""
        slow, silent = self.enrol("alpha", "SHA256:slow"), self.enrol("beta", "SHA256:silent")
        self.begin("host-key")
        slow.refuse()
        self.check()
        self.assertEqual((len(slow.announcements), len(silent.announcements)), (2, 1))
        slow.refuse()
        self.check()
        slow.confirm()
        self.check()
        self.assertEqual((len(slow.announcements), len(silent.announcements)), (3, 1))
        silent.confirm()
        self.settle()
        self.assertIsNotNone(self.rotation("host-key").finished)

    def test_upgraded(self) -> None:
        """An agent that refused and returns in a new version can confirm."""
        old = self.enrol("beta", "SHA256:old")
        self.begin("host-key")
        old.refuse()
        self.tunnels.remove(old)
        upgraded = AnnouncedTunnel("beta", "SHA256:old", "2.0.0")
        self.tunnels.add(upgraded)
        upgraded.confirm()
        self.settle()
        self.assertIsNotNone(self.rotation("host-key").finished)

    def test_first_connection(self) -> None:
        """A key counts as used once its agent has connected."""
        self.enrol("alpha", "SHA256:a")
        self.enrol("alpha", "SHA256:b", connect=False)
        self.clock.advance(1.0)
        used = {key.fingerprint: key.connected for key in self.agent_keys.all()}
        self.assertEqual(used, {"SHA256:a": True, "SHA256:b": False})

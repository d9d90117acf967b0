"""Tests of `tower.v2.known_proxies`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY
from tower.trust.statedir import StateDir
from tower.v2.hello import Announcement
from tower.v2.known_proxies import KnownProxies

OTHER = "SHA256:" + "A" * 43


def announcing(*host_keys: str) -> Announcement:
    """Return an announcement of host keys only."""
    return Announcement(host_keys)


class KnownProxiesTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a state directory."""
        self.state = StateDir(Path(self.mktemp()))

    def test_given(self) -> None:
        """The keys of the join command are pinned."""
        self.assertEqual(KnownProxies(self.state, [OTHER]).pinned, {OTHER})

    def test_learnt(self) -> None:
        """Keys that the proxy announced are pinned too, also after a restart."""
        keys = KnownProxies(self.state, [OTHER])
        keys.learn(announcing(HOST_KEY.fingerprint, AGENT_KEY.fingerprint))
        everything = {OTHER, HOST_KEY.fingerprint, AGENT_KEY.fingerprint}
        self.assertEqual(keys.pinned, everything)
        self.assertEqual(KnownProxies(self.state, [OTHER]).pinned, everything)

    def test_replaced(self) -> None:
        """A key that the proxy announces no longer is forgotten; nothing announced changes nothing."""
        keys = KnownProxies(self.state, [OTHER])
        keys.learn(announcing(HOST_KEY.fingerprint))
        keys.learn(announcing(AGENT_KEY.fingerprint))
        keys.learn(announcing())
        self.assertEqual(KnownProxies(self.state, [OTHER]).pinned, {OTHER, AGENT_KEY.fingerprint})

    def test_other_join_line(self) -> None:
        """With another join line nothing that came by the old one counts."""
        KnownProxies(self.state, [OTHER]).learn(announcing(HOST_KEY.fingerprint))
        self.assertEqual(KnownProxies(self.state, [AGENT_KEY.fingerprint]).pinned, {AGENT_KEY.fingerprint})

    def test_damaged(self) -> None:
        """With a damaged file the agent starts, and pins nothing of it."""
        keys = KnownProxies(self.state, [OTHER])
        keys.learn(announcing(HOST_KEY.fingerprint))
        (path,) = self.state.path.glob("host-keys*")
        for content in (
            b"",
            b"{",
            b"[]",
            b'{"given": "x"}',
            b"\xff",
            path.read_bytes().replace(b"SHA256:", b""),
        ):
            path.write_bytes(content)
            self.assertEqual(KnownProxies(self.state, [OTHER]).pinned, {OTHER}, content)

    def test_nonsense(self) -> None:
        """An announcement that is not a fingerprint is not stored."""
        keys = KnownProxies(self.state, [OTHER])
        keys.learn(announcing("SHA256:x"))
        self.assertEqual(keys.pinned, {OTHER})

"""Tests of `tower.v2.known_proxies`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY
from tower.conch.connection.global_requests import RequestRefused
from tower.trust.statedir import StateDir
from tower.v2.hello import Announcement
from tower.v2.known_proxies import KnownProxies

OTHER = "SHA256:" + "A" * 43
CA = "sha256:" + "0" * 64


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

    def test_authorities(self) -> None:
        """Announced CAs are kept with the host keys, and replaced by the next announcement."""
        keys = KnownProxies(self.state, [OTHER])
        keys.learn(Announcement((HOST_KEY.fingerprint,), (CA, "sha256:" + "1" * 64)))
        self.assertEqual(KnownProxies(self.state, [OTHER]).ca_hashes(), (CA, "sha256:" + "1" * 64))
        self.assertEqual(KnownProxies(self.state, [AGENT_KEY.fingerprint]).ca_hashes(), ())
        keys.learn(Announcement((HOST_KEY.fingerprint,), (CA,)))
        self.assertEqual(keys.ca_hashes(), (CA,))
        keys.learn(Announcement((HOST_KEY.fingerprint,), ("sha256:x",)))
        self.assertEqual(keys.ca_hashes(), (CA,))

    def test_other_ca_hash(self) -> None:
        """With another `--ca-hash`, no announced CA counts, so that a wrong one is noticed."""
        new = "sha256:" + "1" * 64
        KnownProxies(self.state, [OTHER], [CA]).learn(Announcement((HOST_KEY.fingerprint,), (CA, new)))
        self.assertEqual(KnownProxies(self.state, [OTHER], [CA]).ca_hashes(), (CA, new))
        again = KnownProxies(self.state, [OTHER], ["sha256:" + "2" * 64])
        self.assertEqual(again.ca_hashes(), ())
        self.assertEqual(again.pinned, {OTHER, HOST_KEY.fingerprint})

    def test_changes_are_logged(self) -> None:
        """New and dropped pins, and a change of the host key in use, are one line each, also later."""
        new = "sha256:" + "1" * 64
        ours, theirs = HOST_KEY.fingerprint, AGENT_KEY.fingerprint

        def lines(host_keys: tuple[str, ...], hashes: tuple[str, ...], used: str) -> list[str]:
            with capturedLogs() as events:
                keys = KnownProxies(self.state, [ours], [CA])
                for _ in range(2):
                    keys.learn(Announcement(host_keys, hashes))
                    keys.used(used)
            return [str(formatEvent(event)) for event in events]

        self.assertEqual(lines((ours,), (CA,), ours), [])
        added = lines((ours, theirs), (CA, new), ours)
        self.assertEqual(len(added), 2)
        self.assertIn(f"another host key, {theirs}", added[0])
        self.assertIn(f"another CA, {new}", added[1])
        (switched,) = lines((theirs,), (new,), theirs)
        self.assertIn(f"host key changed from {ours} to {theirs}, as announced", switched)
        dropped = lines((ours,), (CA,), ours)
        self.assertIn(f"host key {theirs} is no longer accepted", dropped[0])
        self.assertIn(f"CA {new} is no longer accepted", dropped[1])
        self.assertIn(f"from {theirs} to {ours}", dropped[2])
        self.assertEqual(len(dropped), 3)

    def test_earlier_version(self) -> None:
        """The file of an earlier version, without CAs, is read."""
        self.state.write(
            "host-keys.json", json.dumps({"given": [OTHER], "announced": [HOST_KEY.fingerprint]}).encode()
        )
        keys = KnownProxies(self.state, [OTHER])
        self.assertEqual((keys.pinned, keys.ca_hashes()), ({OTHER, HOST_KEY.fingerprint}, ()))

    def test_not_stored(self) -> None:
        """An announcement that cannot be stored is refused, so that the proxy does not count the agent."""
        keys = KnownProxies(self.state, [OTHER])
        self.assertRaises(RequestRefused, keys.update, announcing("SHA256:x"))
        shutil.rmtree(self.state.path)
        self.assertRaises(RequestRefused, keys.update, announcing(HOST_KEY.fingerprint))
        self.assertEqual(keys.pinned, {OTHER})

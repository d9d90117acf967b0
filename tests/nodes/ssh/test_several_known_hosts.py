"""Tests of `tower.nodes.ssh.known_hosts`: several files as one."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_keys import key_line
from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY
from tower.clusters.node import Node
from tower.conch.transport.keys import ED25519
from tower.nodes.ssh.host_keys import HostKeyRefused, HostKeyRevoked, HostKeyUnknown
from tower.nodes.ssh.known_hosts import KnownHosts, KnownHostsFiles

NODE = Node("h1")
RIGHT, OTHER = HOST_KEY.blob, AGENT_KEY.blob


class KnownHostsFilesTests(SynchronousTestCase):
    """A user's file, and the system's."""

    def setUp(self) -> None:
        """Two empty files."""
        self.files = [Path(self.mktemp()), Path(self.mktemp())]
        self.hosts = KnownHostsFiles(map(KnownHosts, self.files))

    def write(self, *texts: str) -> None:
        """Write both."""
        for path, text in zip(self.files, texts, strict=True):
            path.write_text(text)

    def test_one_knows(self) -> None:
        """It is enough that one of them has the key, whichever, and whatever the other one has."""
        right, other = f"h1 {key_line(RIGHT)}\n", f"h1 {key_line(OTHER)}\n"
        for texts in ((right, ""), ("", right), (other, right), (right, other)):
            self.files = [Path(self.mktemp()), Path(self.mktemp())]
            self.write(*texts)
            hosts = KnownHostsFiles(map(KnownHosts, self.files))
            hosts.judge(NODE, RIGHT)
            hosts.accepted(NODE, RIGHT)
            self.assertTrue(hosts.knows(NODE))
            self.assertEqual(hosts.algorithms(NODE)[0], ED25519)

    def test_missing(self) -> None:
        """A missing default file is not reported; any other missing file is."""
        for may_be_missing in (True, False):
            with capturedLogs() as logs:
                hosts = KnownHostsFiles([KnownHosts(self.mktemp(), may_be_missing=may_be_missing)])
                self.assertRaises(HostKeyUnknown, hosts.judge, NODE, RIGHT)
            self.assertEqual(bool(logs), not may_be_missing)

    def test_all_fail(self) -> None:
        """A node that no file has is unknown, and the first file is the one to complete."""
        error = self.assertRaises(HostKeyUnknown, self.hosts.judge, NODE, RIGHT)
        self.assertIn(str(self.files[0]), str(error))
        self.assertFalse(self.hosts.knows(NODE))

    def test_another(self) -> None:
        """A file with another key rejects, also when the first one has none."""
        self.write("", f"h1 {key_line(OTHER)}\n")
        error = self.assertRaises(HostKeyRefused, self.hosts.judge, NODE, RIGHT)
        self.assertNotIsInstance(error, HostKeyUnknown)
        self.assertIn(f"{self.files[1]} line 1", str(error))

    def test_revoked(self) -> None:
        """A key that one file revokes is rejected, although another file lists it."""
        self.write(f"h1 {key_line(RIGHT)}\n", f"@revoked * {key_line(RIGHT)}\n")
        self.assertRaises(HostKeyRevoked, self.hosts.judge, NODE, RIGHT)

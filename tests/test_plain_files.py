"""Tests of `tower.files.read_plain`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.node import Node
from tower.files import read_plain
from tower.nodes.node_sources import ListingFailed, file_nodes
from tower.nodes.ssh.client_key import ClientKey, KeyUnusable
from tower.nodes.ssh.known_hosts import KnownHosts


class ReadTests(SynchronousTestCase):
    """In a directory."""

    def setUp(self) -> None:
        """Make it."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def pipe(self) -> Path:
        """Return a pipe without a writer."""
        path = self.folder / "pipe"
        os.mkfifo(path)
        return path

    def test_file(self) -> None:
        """A file is read up to the limit, also through a link."""
        path = self.folder / "file"
        path.write_bytes(b"12345")
        (self.folder / "link").symlink_to("file")
        self.assertEqual(read_plain(path, 9), b"12345")
        self.assertEqual(read_plain(self.folder / "link", 2), b"12")

    def test_no_file(self) -> None:
        """Anything else is rejected at once."""
        for path, text in (
            (self.folder / "nowhere", "No such file"),
            (self.folder, "Is a directory"),
            (self.pipe(), "Not a regular file"),
            (Path("/dev/null"), "Not a regular file"),
        ):
            error = self.assertRaises(OSError, read_plain, path, 9)
            self.assertIn(text, error.strerror)

    def test_readers(self) -> None:
        """A key, known hosts and a list of nodes that are pipes do not block."""
        pipe = self.pipe()
        self.assertIn("not a regular file", str(self.assertRaises(KeyUnusable, ClientKey.load, pipe)))
        self.assertFalse(KnownHosts(pipe).knows(Node("a")))

        async def listing() -> None:
            await file_nodes(pipe)()

        self.assertIn("Not a regular file", str(self.failureResultOf(listing(), ListingFailed).value))

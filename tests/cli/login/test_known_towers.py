"""Tests of `tower.cli.login.known_towers`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.cli.login.known_towers import shared_client, towers_with_client
from tower.cli.login.login_file import LoginFile


class KnownTowersTests(SynchronousTestCase):
    """Logins at three Towers."""

    def test_shared_client(self) -> None:
        """Towers with the same client of the same provider are found, and named in a warning."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name)
        for server, more in (
            ("https://a", {"issuer": "https://id", "clientID": "cli"}),
            ("https://b", {"issuer": "https://id", "clientID": "other"}),
            ("https://c", {}),
        ):
            LoginFile(server, path).write({"session": "s-1", **more})
        self.assertEqual(towers_with_client("https://id", "cli", path), ["https://a"])
        self.assertEqual(towers_with_client("https://id2", "cli", path), [])
        text = shared_client("https://evil", ["https://a"], "https://id", "cli")
        self.assertIn(
            "https://evil uses the client cli of https://id, as https://a does: continue only", text
        )

"""Tests of `tower.control.front_door.oidc_authentication`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tower.control.front_door.oidc_authentication import OIDCAuthentication
from tower.control.front_door.oidc_options import OIDCOptions
from tower.options.followed_file import PERIOD
from tower.reactor.signals import Reloads


def content(*urls: str) -> str:
    """Return a file with these issuers."""
    mappings = {"username": {"claim": "sub", "prefix": ""}}
    entries = [{"issuer": {"url": url, "audiences": ["a"]}, "claimMappings": mappings} for url in urls]
    top = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return json.dumps({**top, "jwt": entries})


class OIDCAuthenticationTests(SynchronousTestCase):
    """The method that options configure."""

    def setUp(self) -> None:
        """Make a clock."""
        self.clock: Any = Clock()
        self.reloads = Reloads()

    def made(self, *words: str) -> OIDCAuthentication:
        """Return it."""
        options = OIDCOptions({})
        options.parse(words)
        return OIDCAuthentication(options, self.clock, self.clock.seconds, self.reloads)

    def test_none(self) -> None:
        """Without options there is no such method, and no service."""
        found = self.made()
        self.assertEqual((found.methods, found.services), ((), ()))

    def test_options(self) -> None:
        """The options make one method, which is a service."""
        found = self.made("--oidc-issuer-url=https://issuer.example", "--oidc-client-id=tower")
        self.assertEqual([each.method for each in found.methods], ["oidc"])
        self.assertEqual(found.services, found.methods)

    def test_file(self) -> None:
        """A changed file replaces the issuers; bad content is logged once, and does not."""
        path = Path(self.mktemp())
        path.write_text(content("https://a"))
        found = self.made(f"--authentication-config={path}")
        (method,) = found.methods
        used: list[list[str]] = []
        self.patch(method, "use", lambda issuers: used.append([each.url for each in issuers]))
        changes: list[None] = []
        found.on_change = lambda: changes.append(None)
        follower = found.services[1]
        follower.startService()
        self.addCleanup(follower.stopService)
        lines = logged_lines(self)
        for text in (content("https://a"), content("https://a", "https://b"), "kind: x", content()):
            path.write_text(text)
            self.clock.pump([PERIOD] * 3)
        self.assertEqual(used, [["https://a", "https://b"], []])
        self.assertEqual((len(changes), len(lines)), (2, 3))
        self.assertIn("Object 'apiVersion' is missing: give apiVersion: apiserver.config.k8s.io/v1", lines[1])
        self.assertIn("; its last content stays in use", lines[1])
        path.write_text(content("https://c"))
        self.reloads.run()
        self.assertEqual(used[-1], ["https://c"])
        assert found.file_reloads is not None
        self.assertEqual(found.file_reloads.counts, {"success": 3, "failure": 1})
        self.assertTrue(found.file_reloads.digest.startswith("sha256:"))

    def test_anonymous(self) -> None:
        """A flag or the file permits anonymous users; a change of the file in this is an error."""
        self.assertIsNone(self.made().anonymous)
        found = self.made("--anonymous-auth").anonymous
        assert found is not None
        self.assertEqual(list(found.paths), [])
        path = Path(self.mktemp())
        for anonymous, paths in (
            ({"enabled": False}, None),
            ({"enabled": True}, []),
            ({"enabled": True, "conditions": [{"path": "/livez"}]}, [b"/livez"]),
        ):
            path.write_text(json.dumps({**json.loads(content()), "anonymous": anonymous}))
            found = self.made(f"--authentication-config={path}").anonymous
            self.assertEqual(None if found is None else list(found.paths), paths)
        made = self.made(f"--authentication-config={path}")
        follower = made.services[1]
        follower.startService()
        self.addCleanup(follower.stopService)
        lines = logged_lines(self)
        path.write_text(content())
        self.clock.advance(PERIOD)
        self.assertIn("anonymous: Forbidden: changed from initial configuration file", lines[0])

"""Tests of `tower.web.access.authorization.abac_file`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.abac_file import AbacFile
from tower.web.access.authorization.attributes import attributes_of

REQUEST = attributes_of(UserInfo("jane"), b"GET", b"/x", "alpha")


class AbacFileTests(SynchronousTestCase):
    """A file that changes."""

    def setUp(self) -> None:
        """Write the file."""
        self.path = Path(self.mktemp())
        self.path.write_text('{"user":"jane"}')
        self.changes: list[None] = []
        self.abac = AbacFile(self.path, lambda: self.changes.append(None))

    def test_reload(self) -> None:
        """New policies count after a reload; those of a wrong file do not."""
        self.assertTrue(self.abac.authorize(REQUEST).is_allowed)
        self.abac.file.reload()
        self.assertEqual(len(self.changes), 0)
        self.path.write_text('{"user":"joe"}')
        self.abac.file.reload()
        self.assertEqual(len(self.changes), 1)
        self.assertEqual(self.abac.authorize(REQUEST).reason, "No policy matched.")
        self.path.write_text("{")
        self.assertRaises(ConfigurationError, self.abac.file.reload)
        self.assertFalse(self.abac.authorize(REQUEST).is_allowed)

    def test_clusters(self) -> None:
        """A line with a cluster allows requests to this cluster only."""
        head = '"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy"'
        for cluster, allowed in (("alpha", True), ("beta", False)):
            spec = f'"spec":{{"user":"jane","nonResourcePath":"*","cluster":"{cluster}"}}'
            self.path.write_text(f"{{{head},{spec}}}")
            self.abac.file.reload()
            self.assertEqual(self.abac.authorize(REQUEST).is_allowed, allowed, cluster)

    def test_missing(self) -> None:
        """Without the file the proxy does not start."""
        wanted = "--authorization-policy-file: open .*none: .*: name a readable file"
        with self.assertRaisesRegex(ConfigurationError, wanted):
            AbacFile(self.path / "none")

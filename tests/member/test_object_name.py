"""Tests of `tower.member.object_name`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.member.object_name import ObjectName


class ObjectNameTests(SynchronousTestCase):
    def test_parsed(self) -> None:
        """A name is in the pod's namespace or in a given one."""
        self.assertEqual(ObjectName.parse("key.v2"), ObjectName("", "key.v2"))
        self.assertEqual(ObjectName.parse("tower-system/key"), ObjectName("tower-system", "key"))
        self.assertEqual(str(ObjectName.parse("tower-system/key")), "tower-system/key")
        for text in ("", "/", "/key", "ns/", "a/b/c", "Key", "key_1", "a.b/key", "x" * 254, "-key", "../key"):
            self.assertRaises(ValueError, ObjectName.parse, text)

    def test_namespace(self) -> None:
        """The namespace is that of the pod's service account, unless it is given."""
        folder = Path(self.mktemp())
        folder.mkdir()
        name = ObjectName("", "key")
        self.assertIn("NAMESPACE/key", str(self.assertRaises(ConfigurationError, name.in_pod, folder)))
        for content, good in ((b"tower-system\n", True), (b"", False), (b"../x", False), (b"\xff", False)):
            (folder / "namespace").write_bytes(content)
            if good:
                self.assertEqual(name.in_pod(folder), ObjectName("tower-system", "key"))
            else:
                self.assertRaises(ConfigurationError, name.in_pod, folder)
        self.assertEqual(ObjectName("other", "key").in_pod(folder), ObjectName("other", "key"))

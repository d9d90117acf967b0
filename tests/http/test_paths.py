"""Tests of `tower.http.paths`."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.http.paths import has_dot_segment, leaves_prefix

#: Parts of paths that attempt to be read in two forms.
PIECES = st.lists(
    st.sampled_from(
        [b"/", b".", b"..", b"a", b";", b"\\", b"?", b"%2e", b"%2E", b"%2f", b"%5C", b"%3b", b"%25", b"2e"]
    ),
    max_size=8,
)


class DotTests(SynchronousTestCase):
    def test_dots(self) -> None:
        """A dot segment is recognized in any spelling, with any separator."""
        for path in (
            *(b"/.", b"/..", b"/./", b"/../", b"/a/./b", b"/a/../b", b"/a/..", b"/..?a"),
            *(b"/%2e", b"/%2E", b"/%2e%2E", b"/.%2e", b"/%2e.", b"/a/%2e%2e/b"),
            *(b"/a%2f..", b"/a%2F..%2fb", b"/..%2f", b"/%2e%2e%5c", b"/a\\..", b"/..\\a", b"/a%5c..%5Ca"),
            *(b"/a;/..", b"/..;x", b"/..;", b"/a/..;x=y/b", b"/.;/a", b"/..%3bx", b"/%2e%2e;x"),
            *(b"/%252e%252e/a", b"/%25252e./a", b"/a%252f..", b"/a%255c%252e"),
        ):
            self.assertTrue(has_dot_segment(path), path)

    def test_no_dots(self) -> None:
        """Dots elsewhere, and anything in a query, are accepted."""
        for path in (
            *(b"/", b"/a.", b"/.a", b"/..a", b"/a..", b"/...", b"/.../a", b"/a..b", b"/.well-known/a"),
            *(b"/a?/../", b"/a?b=..%2f..", b"/a%2eb", b"/%2ea", b"/a%2f%2fb", b"/a//b", b"/a;b=..c"),
            *(b"/a%25b", b"/%25", b"/%2", b"/%", b"/%zz", b"/api/v1/namespaces/x/services/y/proxy/a..b"),
        ):
            self.assertFalse(has_dot_segment(path), path)

    @given(PIECES)
    def test_cleaned(self, pieces: list[bytes]) -> None:
        """Without a finding, no server that decodes and cleans the path changes it."""
        target = b"/" + b"".join(pieces)
        if has_dot_segment(target):
            return
        path = target.partition(b"?")[0]
        for _ in range(3):
            for read in (path, path.replace(b"\\", b"/")):
                segments = [segment.partition(b";")[0] for segment in read.split(b"/")]
                self.assertNotIn(b".", segments)
                self.assertNotIn(b"..", segments)
            path = unquote_to_bytes(path)

    @given(PIECES)
    def test_prefilter(self, pieces: list[bytes]) -> None:
        """A target is refused for nothing that callers do not look for before they ask."""
        target = b"/" + b"".join(pieces)
        if has_dot_segment(target):
            self.assertTrue(any(mark in target for mark in (b"%", b"\\", b";", b"/.")))


class PrefixTests(SynchronousTestCase):
    def test_leaves(self) -> None:
        """Empty segments and backslashes are found in any spelling."""
        for path in (
            b"//",
            b"//a",
            b"/a//",
            b"/\\",
            b"/a\\b",
            b"/a%5cb",
            b"/a%5C",
            b"/%2f",
            b"/a%2f/",
            b"/%252fa",
        ):
            self.assertTrue(leaves_prefix(path), path)

    def test_stays(self) -> None:
        """Other paths, and anything in a query, are accepted."""
        for path in (b"/", b"/a/", b"/a/b", b"/a%2fb", b"/a?b=//c", b"/a?b=\\", b"/a;/b", b"/a%20b"):
            self.assertFalse(leaves_prefix(path), path)

    @given(PIECES)
    def test_stays_below(self, pieces: list[bytes]) -> None:
        """A path that nothing rejects stays below the prefix for every server that decodes and cleans it."""
        target = b"/" + b"".join(pieces)
        if has_dot_segment(target) or leaves_prefix(target):
            return
        path = b"/k8s/c-1" + target.partition(b"?")[0]
        for _ in range(3):
            cleaned = posixpath.normpath(path.replace(b"\\", b"/"))
            self.assertEqual(cleaned, path.rstrip(b"/"))
            path = unquote_to_bytes(path)
            if b"//" in path:
                break

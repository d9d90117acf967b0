"""Tests of `tower.web.access.authorization.cluster_scope`."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authorization.cluster_scope import (
    ANNOTATION,
    OWN,
    OWN_SCOPE,
    ClusterScope,
    wrong_entries,
)


class ClusterScopeTests(SynchronousTestCase):
    """Values of the annotation."""

    def test_values(self) -> None:
        """Names, patterns, wrong entries."""
        for value, clusters in (
            (None, {"alpha", "beta-1"}),
            ("", set()),
            ("alpha", {"alpha"}),
            (" alpha , beta-1 ", {"alpha", "beta-1"}),
            ("beta-*", {"beta-1"}),
            ("*", {"alpha", "beta-1"}),
            ("*a*", {"alpha", "beta-1"}),
            ("@*,[a]*,.*", set()),
        ):
            scope = ClusterScope.of({} if value is None else {ANNOTATION: value})
            found = {cluster for cluster in ("alpha", "beta-1") if scope.includes(cluster)}
            self.assertEqual(found, clusters, value)

    def test_wrong_entries(self) -> None:
        """Entries that can name no cluster are found."""
        for value, wrong in (
            ("alpha,,Bad Name,@Tower", ["", "Bad Name", "@Tower"]),
            ("", [""]),
            ("alpha, beta-*,*,@tower", []),
            ("[a]*", ["[a]*"]),
        ):
            self.assertEqual(wrong_entries({ANNOTATION: value}), wrong, value)
        self.assertEqual(wrong_entries({}), [])

    def test_many_stars(self) -> None:
        """A pattern of many stars is matched without backtracking."""
        name = "a" * 31
        for pattern, expected in (
            ("*" * 60 + "x0", False),
            ("*a" * 20 + "*x0", False),
            ("*a" * 31, True),
            ("a**a", True),
            ("a*" * 32, False),
        ):
            self.assertEqual(ClusterScope.of({ANNOTATION: pattern}).includes(name), expected, pattern)
        twice, once = (ClusterScope.of({ANNOTATION: value}) for value in ("a**b", "a*b"))
        self.assertEqual(twice, once)

    @given(st.text("ab*", min_size=1, max_size=8), st.text("ab", min_size=1, max_size=8))
    def test_patterns(self, pattern: str, name: str) -> None:
        """Patterns match as those of a shell do."""
        expected = fnmatchcase(name, pattern)
        self.assertEqual(ClusterScope.of({ANNOTATION: pattern}).includes(name), expected)

    def test_own(self) -> None:
        """Only the entry for Tower's own API includes it, or the default of roles for Tower."""
        for value, is_own, expected in (
            (None, False, False),
            (None, True, True),
            ("*", True, False),
            ("alpha, @tower", False, True),
        ):
            annotations = {} if value is None else {ANNOTATION: value}
            self.assertEqual(ClusterScope.of(annotations, is_own=is_own).includes(OWN), expected, value)
        self.assertFalse(ClusterScope.of({}, is_own=True).includes("alpha"))

    def test_covers(self) -> None:
        """A scope covers another one if it includes the same clusters, also later ones."""
        everywhere, own = ClusterScope.of({}), OWN_SCOPE
        alpha, some = (ClusterScope.of({ANNOTATION: value}) for value in ("alpha", "a*,beta"))
        both = ClusterScope.of({ANNOTATION: "*,@tower"})
        for wide, narrow, expected in (
            (everywhere, alpha, True),
            (everywhere, some, True),
            (everywhere, own, False),
            (everywhere, both, False),
            (both, everywhere, True),
            (both, own, True),
            (some, alpha, True),
            (alpha, some, False),
            (some, some, True),
            (some, everywhere, False),
            (own, alpha, False),
        ):
            self.assertEqual(wide.covers(narrow), expected, (wide, narrow))

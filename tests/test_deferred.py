"""Tests for `tower.deferred`, and for the commands that use it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

import tower.clusters
import tower.store
import tower.tunnels
from tower.cli.arguments import parser
from tower.deferred import DeferredFunction, DeferredModule, deferred_names


class DeferredNamesTests(SynchronousTestCase):
    """`deferred_names`."""

    def test_found(self) -> None:
        """A name is that of its module."""
        find = deferred_names("tower.store", {"CLUSTERS": "kinds"})
        self.assertEqual(find("CLUSTERS"), "clusters")

    def test_unknown(self) -> None:
        """The error is that of any module."""
        with self.assertRaisesRegex(AttributeError, r"module 'tower\.store' has no attribute 'nothing'"):
            deferred_names("tower.store", {})("nothing")

    def test_packages(self) -> None:
        """The packages have the names that they list."""
        for package in (tower.clusters, tower.store, tower.tunnels):
            self.assertTrue(package.__all__)
            for name in package.__all__:
                self.assertIsNotNone(getattr(package, name))


class DeferredModuleTests(SynchronousTestCase):
    """`DeferredModule`."""

    def test_call(self) -> None:
        """A call imports the module, and calls its function."""
        durations = DeferredModule("tower.durations")
        self.assertEqual(durations.human_duration(61.0), "61s")

    def test_private(self) -> None:
        """Private names are not deferred, so that a copy of the object works."""
        with self.assertRaises(AttributeError):
            _ = DeferredModule("tower.durations")._anything

    def test_commands(self) -> None:
        """Each function of a command exists."""
        found = [default for each in _parsers(parser({})) for default in each._defaults.values()]
        deferred = [each for each in found if isinstance(each, DeferredFunction)]
        self.assertGreater(len(deferred), 30)
        for each in deferred:
            self.assertEqual(each.find().__name__, each.name)


def _parsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield *top* and the parsers of all its commands."""
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)

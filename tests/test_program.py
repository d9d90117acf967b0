"""Tests of `tower.program`."""

from __future__ import annotations

import sys
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tower.program import install_reactor
from tower.reactor import epoll_reactor


class InstallTests(SynchronousTestCase):
    """`install_reactor`; nothing is really installed."""

    def setUp(self) -> None:
        """Record the installations."""
        self.installed: list[str] = []
        self.patch(epoll_reactor, "install", lambda: self.installed.append("tower"))

    def test_first(self) -> None:
        """A program whose modules installed no reactor gets Tower's."""
        others = {name: module for name, module in sys.modules.items() if name != "twisted.internet.reactor"}
        with patch.dict(sys.modules, others, clear=True):
            install_reactor()
        self.assertEqual(self.installed, ["tower"])

    def test_second(self) -> None:
        """A reactor that is installed stays."""
        with patch.dict(sys.modules, {"twisted.internet.reactor": sys}):
            install_reactor()
        self.assertEqual(self.installed, [])

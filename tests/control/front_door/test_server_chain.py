"""Tests of `tower.control.front_door.server_chain`."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tower.control.front_door.server_chain import StartHooks, create_server_chain
from tower.control.proxy_options import Options
from tower.server.chained_server import Hook
from tower.web.gateway.upstream.channel_pool import ChannelPool


class ServerChainTests(SynchronousTestCase):
    """The chain of the front door, whose servers have a step of the start each."""

    def setUp(self) -> None:
        """Make the chain."""
        self.calls: list[str] = []
        self.pool = Mock(ChannelPool, stop=lambda: self.calls.append("channels"))
        hooks = StartHooks(
            clusters=(self.hook("clusters"),), logins=(self.hook("logins"),), tower=(self.hook("tower"),)
        )
        part: Any = Mock()  # serves requests
        self.chain = create_server_chain(
            Options({}), part, part, part, part, part, part, part, hooks, self.pool
        ).prepare_run()

    def hook(self, name: str) -> Hook:
        """Return a step of the start."""

        async def run() -> None:
            self.calls.append(name)

        return Hook(name, run)

    def test_start(self) -> None:
        """Tower's API starts first, the clusters last; each step is a check."""
        self.successResultOf(Deferred.fromCoroutine(self.chain.run()))
        self.assertEqual(self.calls, ["tower", "logins", "clusters"])
        for name in self.calls:
            self.assertIn(f"/readyz/poststarthook/{name}", self.chain.paths)

    def test_stop(self) -> None:
        """The channels into clusters are closed at the end of the stop, not at its beginning."""
        self.chain.announce_stop()
        self.assertEqual(self.calls, [])
        self.successResultOf(Deferred.fromCoroutine(self.chain.stop()))
        self.assertEqual(self.calls, ["channels"])

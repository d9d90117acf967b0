"""Tests of `tower.nodes.plausibility`."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.node import Node
from tower.errors import TowerError
from tower.nodes.node_sources import ListingFailed, fixed_nodes
from tower.nodes.plausibility import TIMEOUT, TRIED, plausible

OLD = [Node("192.0.2.1"), Node("192.0.2.2")]
NEW = [Node(f"192.0.2.{number}") for number in range(11, 21)]


class PlausibleTests(SynchronousTestCase):
    """A list of nodes, some of them connected."""

    def setUp(self) -> None:
        """Two connected nodes."""
        self.clock = Clock()
        self.connected: Sequence[Node] = OLD
        self.tried: list[tuple[Node, Deferred[None]]] = []
        self.given_up = 0

    def attempt(self, node: Node) -> Deferred[None]:
        """Wait for the test to decide the result."""
        waiting: Deferred[None] = Deferred(self._give_up)
        self.tried.append((node, waiting))
        return waiting

    def _give_up(self, _: Deferred[None]) -> None:
        self.given_up += 1

    def listing(self, nodes: Sequence[Node]) -> Deferred[Sequence[Node]]:
        """Begin to list."""
        lister = plausible(
            fixed_nodes(nodes),
            lambda: self.connected,
            self.attempt,
            self.clock,
            source="/etc/nodes",
            sample=lambda nodes, count: nodes[:count],
        )

        async def asked() -> Sequence[Node]:
            return await lister()

        return Deferred.fromCoroutine(asked())

    def nothing_is_left(self) -> None:
        """No timer and no attempt is left."""
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual([node for node, waiting in self.tried if not waiting.called], [])

    def test_one_stays(self) -> None:
        """A list with a connected node is used without a test."""
        nodes = [*NEW, OLD[1]]
        self.assertEqual(self.successResultOf(self.listing(nodes)), nodes)
        self.assertEqual(self.tried, [])

    def test_none_connected(self) -> None:
        """Without connected nodes every list is used."""
        self.connected = []
        self.assertEqual(self.successResultOf(self.listing(NEW)), NEW)
        self.assertEqual(self.tried, [])

    def test_one_lets_us_in(self) -> None:
        """A list of other nodes is used once one accepts a login; the other attempts are cancelled."""
        listing = self.listing(NEW)
        self.assertEqual([node for node, _ in self.tried], NEW[:TRIED])
        self.tried[0][1].errback(TowerError("refused"))
        self.assertNoResult(listing)
        self.tried[1][1].callback(None)
        self.assertEqual(self.successResultOf(listing), NEW)
        self.assertEqual(self.given_up, TRIED - 2)
        self.nothing_is_left()

    def test_none_lets_us_in(self) -> None:
        """If no node accepts a login, the listing fails, and the error has the source and the reason."""
        listing = self.listing(NEW[:2])
        for _, waiting in self.tried:
            waiting.errback(TowerError("refused"))
        error = self.failureResultOf(listing, ListingFailed).value
        self.assertEqual(
            str(error),
            "/etc/nodes: it names none of the 2 nodes that are connected; these stay until one of "
            "the listed nodes accepts a login; 192.0.2.11:22: refused",
        )
        self.nothing_is_left()

    def test_silent(self) -> None:
        """Silent nodes time out."""
        listing = self.listing(NEW[:1])
        self.clock.advance(TIMEOUT)
        error = self.failureResultOf(listing, ListingFailed).value
        self.assertIn("192.0.2.11:22: no answer within 10 s", str(error))
        self.assertEqual(self.given_up, 1)
        self.nothing_is_left()

    def test_cancelled(self) -> None:
        """A cancelled listing leaves nothing."""
        listing = self.listing(NEW)
        listing.cancel()
        self.assertIsInstance(self.failureResultOf(listing), Failure)
        self.assertEqual(self.given_up, TRIED)
        self.nothing_is_left()

    def test_no_list(self) -> None:
        """An empty list is not ours to judge."""
        self.assertEqual(self.successResultOf(self.listing([])), [])

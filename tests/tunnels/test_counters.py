"""Tests of `tower.tunnels.counters`."""

from __future__ import annotations

from twisted.internet.error import ConnectionLost
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.connection.channel_open import KNOWN_CODES
from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.limits import Closed, Disconnected, TooManyConnections
from tower.conch.tunnel.endings import ENDINGS, ending
from tower.errors import PeerError
from tower.tunnels.counters import OPEN_FAILURES, ClusterCounters
from tower.tunnels.limits import TunnelSilent


class ClusterCountersTests(SynchronousTestCase):
    """The counters of clusters, which exist from their first use to the removal of the cluster."""

    def test_forgotten(self) -> None:
        """A removed cluster's counters start again, and a tunnel that ends after that is ignored."""
        counters = ClusterCounters()
        alpha = counters.of("alpha")
        alpha.not_opened("busy")
        self.assertIs(counters.of("alpha"), alpha)
        counters.forget("alpha")
        counters.disconnected("alpha", "timeout")
        self.assertEqual(sum(counters.of("alpha").open_failures.values()), 0)
        self.assertEqual(sum(counters.of("alpha").disconnects.values()), 0)

    def test_every_code(self) -> None:
        """Every code of a refused stream is a reason; an unknown one counts as failed."""
        self.assertLessEqual(KNOWN_CODES, set(OPEN_FAILURES))
        alpha = ClusterCounters().of("alpha")
        alpha.not_opened("unheard-of")
        self.assertEqual(alpha.open_failures["failed"], 1)

    def test_endings(self) -> None:
        """Each error has the kind that the metrics show."""
        for error, kind in (
            (Disconnected(11, "bye"), "peer-closed"),
            (TooManyConnections(12, "full"), "peer-closed"),
            (Closed("revoked"), "closed"),
            (PeerDead("silent"), "timeout"),
            (TunnelSilent("silent"), "timeout"),
            (PeerError("nonsense"), "protocol-error"),
            (ConnectionLost(), "connection-lost"),
            (OSError("reset"), "connection-lost"),
        ):
            self.assertEqual(ending(error), kind)
            self.assertIn(kind, ENDINGS)

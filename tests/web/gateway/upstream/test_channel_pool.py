"""Tests for `tower.web.gateway.upstream.channel_pool`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeTunnels, pool
from tests.fakes.tunnels import FakeTunnel
from tower.conch.connection.channel_open import refused
from tower.errors import ClusterUnreachable, StreamRefused, TunnelLost
from tower.escaping import PEER_TEXT_LIMIT
from tower.kube.status import StatusError
from tower.web.gateway.upstream.channel_pool import Attempt
from tower.web.gateway.upstream.cluster_upstream import ClusterUpstream


class PoolTests(SynchronousTestCase):
    """Idle channels."""

    def setUp(self) -> None:
        """Add one tunnel."""
        self.tunnel = FakeTunnel()
        self.tunnels = FakeTunnels([self.tunnel])
        self.pool = pool(self.tunnels, kept=2)

    def open(self) -> ClusterUpstream:
        """Return a new channel, as after a request."""
        upstream = self.successResultOf(self.pool.open("alpha", "kubernetes", Attempt("jane")))
        upstream.channel.resume()
        return upstream

    def test_last_in_first_out(self) -> None:
        """The channel that was used last is used first."""
        one, two = self.open(), self.open()
        self.assertFalse(one.reused)
        self.assertIsNone(self.pool.take("alpha", "kubernetes"))
        self.pool.give("alpha", "kubernetes", one)
        self.pool.give("alpha", "kubernetes", two)
        self.assertIs(self.pool.take("alpha", "kubernetes"), two)
        self.assertIs(self.pool.take("alpha", "kubernetes"), one)
        self.assertIsNone(self.pool.take("alpha", "kubernetes"))
        self.assertTrue(one.reused)
        self.assertEqual((self.pool.opened, self.pool.taken), (2, 2))

    def test_apart(self) -> None:
        """A channel is only used for its own cluster and target."""
        self.pool.give("alpha", "kubernetes", self.open())
        self.assertIsNone(self.pool.take("beta", "kubernetes"))
        self.assertIsNone(self.pool.take("alpha", "other"))

    def test_bounded(self) -> None:
        """The number of idle channels is limited."""
        for upstream in [self.open() for _ in range(3)]:
            self.pool.give("alpha", "kubernetes", upstream)
        self.assertEqual([pipe.aborted for pipe in self.tunnel.pipes], [False, False, True])

    def test_closed_while_unused(self) -> None:
        """A channel that ends, closes or receives bytes while idle is not used again."""
        for happens in ("end", "lose", "talk"):
            upstream = self.open()
            pipe = self.tunnel.pipes[-1]
            self.pool.give("alpha", "kubernetes", upstream)
            if happens == "talk":
                pipe.deliver(b"unasked")
            else:
                getattr(pipe, happens)()
            self.assertIsNone(self.pool.take("alpha", "kubernetes"))
            self.assertTrue(pipe.lost or pipe.closing)

    def test_age(self) -> None:
        """A channel that is idle for a minute is closed; each use starts the minute again."""
        self.pool.give("alpha", "kubernetes", self.open())
        for _ in range(12):
            self.pool.sweep()
        upstream = self.pool.take("alpha", "kubernetes")
        assert upstream is not None
        self.pool.give("alpha", "kubernetes", upstream)
        for _ in range(12):
            self.pool.sweep()
        self.assertFalse(self.tunnel.pipes[0].aborted)
        self.pool.sweep()
        self.assertTrue(self.tunnel.pipes[0].aborted)
        self.assertIsNone(self.pool.take("alpha", "kubernetes"))

    def test_large(self) -> None:
        """A channel with a large window is closed earlier, so that others can use the memory."""
        self.pool.give("alpha", "kubernetes", self.open())
        self.tunnel.pipes[0].is_large = True
        self.pool.sweep()
        self.assertFalse(self.tunnel.pipes[0].aborted)
        self.pool.sweep()
        self.assertTrue(self.tunnel.pipes[0].aborted)

    def test_draining(self) -> None:
        """Channels of a closing tunnel are neither used nor kept."""
        one, two = self.open(), self.open()
        self.pool.give("alpha", "kubernetes", one)
        self._drain()
        self.assertIsNone(self.pool.take("alpha", "kubernetes"))
        self.pool.give("alpha", "kubernetes", two)
        self.assertTrue(all(pipe.aborted for pipe in self.tunnel.pipes))

    def test_draining_is_swept(self) -> None:
        """A draining tunnel's idle channels are closed soon, so that it can end."""
        self.pool.give("alpha", "kubernetes", self.open())
        self._drain()
        self.pool.sweep()
        self.assertTrue(self.tunnel.pipes[0].aborted)

    def _drain(self) -> None:
        for pipe in self.tunnel.pipes:
            pipe.is_leaving = True

    def test_stop(self) -> None:
        """Stopping closes the idle channels."""
        self.pool.give("alpha", "kubernetes", self.open())
        self.pool.stop()
        self.assertTrue(self.tunnel.pipes[0].aborted)


class OpeningTests(SynchronousTestCase):
    """Opening of channels."""

    def setUp(self) -> None:
        """Start without a tunnel."""
        self.tunnels = FakeTunnels([])
        self.pool = pool(self.tunnels)

    def test_waits(self) -> None:
        """Opening waits for a tunnel, 5 s at most."""
        opening = self.pool.open("alpha", "kubernetes", Attempt("jane"))
        self.tunnels.clock.advance(4.9)
        self.tunnels.waiting[0].callback(FakeTunnel())
        self.successResultOf(opening)
        opening = self.pool.open("alpha", "kubernetes", Attempt("jane"))
        self.tunnels.clock.advance(5.1)
        self.failureResultOf(opening, ClusterUnreachable)

    def test_cancelled(self) -> None:
        """After a cancellation the channel is closed, whenever it opens."""
        tunnel = FakeTunnel(at_once=False)
        self.tunnels.tunnels.append(tunnel)
        opening = self.pool.open("alpha", "kubernetes", Attempt("jane"))
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.assertTrue(tunnel.confirm().aborted)
        opening = self.pool.open("alpha", "kubernetes", Attempt("jane"))
        opening.cancel()
        tunnel.openings[-1].errback(TunnelLost("gone"))
        self.failureResultOf(opening, CancelledError)

    def test_refused(self) -> None:
        """The far end's reason is reported with the names of cluster and target."""
        tunnel = FakeTunnel(at_once=False)
        self.tunnels.tunnels.append(tunnel)
        opening = self.pool.open("alpha", "database", Attempt("jane"))
        tunnel.openings[-1].errback(StreamRefused("refused", "connection refused"))
        refusal = self.failureResultOf(opening, StatusError).value
        self.assertEqual(
            str(refusal),
            "cluster alpha: the agent cannot reach target database: connection refused: "
            "check that the target runs, and its address",
        )
        self.assertEqual(refusal.code, 503)

    def test_refused_in_words_of_its_own(self) -> None:
        """An agent's text is quoted, in one line and within the limit."""
        tunnel = FakeTunnel(at_once=False)
        self.tunnels.tunnels.append(tunnel)
        for code, begin in (
            ("not-allowed", "cluster alpha: the agent does not allow this: "),
            ("no-such-target", "cluster alpha: the agent has no such target: "),
            ("failed", "cluster alpha: the agent cannot reach the API server: "),
        ):
            opening = self.pool.open("alpha", "kubernetes", Attempt("jane"))
            words = 'log in at "evil" \x9b2J\u2028\r' + "x" * 1000
            tunnel.openings[-1].errback(refused(f"{code}: {words}".encode()))
            text = str(self.failureResultOf(opening, StatusError).value)
            self.assertFalse(self.tunnels.outcomes[-1])
            begin += r'the agent of alpha reports: "log in at \"evil\" \u009b2J\u2028\rxxx'
            self.assertEqual(text[: len(begin)], begin)
            self.assertIn('x…"', text)
            self.assertTrue(text.isprintable())
            self.assertEqual(len(text.partition("reports: ")[2].partition(": check")[0]), PEER_TEXT_LIMIT + 2)

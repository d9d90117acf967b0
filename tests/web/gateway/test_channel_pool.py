"""Tests for `tower.web.gateway.channel_pool`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeTunnels, pool
from tests.fakes.tunnels import FakeTunnel
from tower.conch.connection.channel_open import refused
from tower.errors import ClusterUnreachable, StreamRefused, TunnelLost
from tower.escaping import LONGEST_SAID
from tower.kube.status import StatusError
from tower.web.gateway.channel_pool import ClusterUpstream


class PoolTests(SynchronousTestCase):
    """Channels that wait for the next request."""

    def setUp(self) -> None:
        """Have one tunnel."""
        self.tunnel = FakeTunnel()
        self.tunnels = FakeTunnels([self.tunnel])
        self.pool = pool(self.tunnels, kept=2)

    def open(self) -> ClusterUpstream:
        """Return a new channel, as a request leaves it."""
        upstream = self.successResultOf(self.pool.open("alpha", "kubernetes"))
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
        """A channel serves its cluster and its target alone."""
        self.pool.give("alpha", "kubernetes", self.open())
        self.assertIsNone(self.pool.take("beta", "kubernetes"))
        self.assertIsNone(self.pool.take("alpha", "other"))

    def test_bounded(self) -> None:
        """Only so many are kept."""
        for upstream in [self.open() for _ in range(3)]:
            self.pool.give("alpha", "kubernetes", upstream)
        self.assertEqual([pipe.aborted for pipe in self.tunnel.pipes], [False, False, True])

    def test_closed_while_unused(self) -> None:
        """A channel that ends, is closed or talks while unused is not used again."""
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
        """What is unused for a minute is closed; being used makes young."""
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
        """What has a large window is kept only for those who come soon, so that others can have as much."""
        self.pool.give("alpha", "kubernetes", self.open())
        self.tunnel.pipes[0].is_large = True
        self.pool.sweep()
        self.assertFalse(self.tunnel.pipes[0].aborted)
        self.pool.sweep()
        self.assertTrue(self.tunnel.pipes[0].aborted)

    def test_draining(self) -> None:
        """Channels of a tunnel that is going away are neither used nor kept."""
        one, two = self.open(), self.open()
        self.pool.give("alpha", "kubernetes", one)
        self._drain()
        self.assertIsNone(self.pool.take("alpha", "kubernetes"))
        self.pool.give("alpha", "kubernetes", two)
        self.assertTrue(all(pipe.aborted for pipe in self.tunnel.pipes))

    def test_draining_is_swept(self) -> None:
        """A draining tunnel gets its unused channels back soon, so that it can go."""
        self.pool.give("alpha", "kubernetes", self.open())
        self._drain()
        self.pool.sweep()
        self.assertTrue(self.tunnel.pipes[0].aborted)

    def _drain(self) -> None:
        for pipe in self.tunnel.pipes:
            pipe.is_leaving = True

    def test_stop(self) -> None:
        """Stopping closes the unused ones."""
        self.pool.give("alpha", "kubernetes", self.open())
        self.pool.stop()
        self.assertTrue(self.tunnel.pipes[0].aborted)


class OpeningTests(SynchronousTestCase):
    """Channels that are not there yet."""

    def setUp(self) -> None:
        """Have no tunnel."""
        self.tunnels = FakeTunnels([])
        self.pool = pool(self.tunnels)

    def test_waits(self) -> None:
        """Opening waits for a tunnel, 5 s at most."""
        opening = self.pool.open("alpha", "kubernetes")
        self.tunnels.clock.advance(4.9)
        self.tunnels.waiting[0].callback(FakeTunnel())
        self.successResultOf(opening)
        opening = self.pool.open("alpha", "kubernetes")
        self.tunnels.clock.advance(5.1)
        self.failureResultOf(opening, ClusterUnreachable)

    def test_cancelled(self) -> None:
        """Who does not want the channel any more gets rid of it, whenever it comes."""
        tunnel = FakeTunnel(at_once=False)
        self.tunnels.tunnels.append(tunnel)
        opening = self.pool.open("alpha", "kubernetes")
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.assertTrue(tunnel.confirm().aborted)
        opening = self.pool.open("alpha", "kubernetes")
        opening.cancel()
        tunnel.openings[-1].errback(TunnelLost("gone"))
        self.failureResultOf(opening, CancelledError)

    def test_refused(self) -> None:
        """The far end's reason is told with the names of cluster and target."""
        tunnel = FakeTunnel(at_once=False)
        self.tunnels.tunnels.append(tunnel)
        opening = self.pool.open("alpha", "database")
        tunnel.openings[-1].errback(StreamRefused("refused", "connection refused"))
        refusal = self.failureResultOf(opening, StatusError).value
        self.assertEqual(
            str(refusal), "cluster alpha: the agent cannot reach target database: connection refused"
        )
        self.assertEqual(refusal.code, 503)

    def test_refused_in_words_of_its_own(self) -> None:
        """What an agent says is quoted as its words, in one line and within the limit."""
        tunnel = FakeTunnel(at_once=False)
        self.tunnels.tunnels.append(tunnel)
        for code, begin in (
            ("not-allowed", "cluster alpha: the agent does not allow this: "),
            ("no-such-target", "cluster alpha: the agent has no such target: "),
            ("failed", "cluster alpha: the agent cannot reach the API server: "),
        ):
            opening = self.pool.open("alpha", "kubernetes")
            words = 'log in at "evil" \x9b2J\u2028\r' + "x" * 1000
            tunnel.openings[-1].errback(refused(f"{code}: {words}".encode()))
            text = str(self.failureResultOf(opening, StatusError).value)
            begin += r'the agent of alpha reports: "log in at \"evil\" \u009b2J\u2028\rxxx'
            self.assertEqual(text[: len(begin)], begin)
            self.assertTrue(text.endswith('x…"'))
            self.assertTrue(text.isprintable())
            self.assertEqual(len(text.partition("reports: ")[2]), LONGEST_SAID + 2)

"""Tests of `tower.member.reconnecting`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeSSHTunnel
from tower.conch.transport.limits import TooManyConnections
from tower.member.reconnecting import SLOW, Backoff, Reconnecting
from tower.websocket.dialer import DialFailed


class ReconnectingTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a service whose attempts the test answers."""
        self.clock = Clock()
        self.tries: list[Deferred[Any]] = []
        self.given_up = 0
        self.make()

    def make(self, max_retry: int = 0) -> None:
        """Make the service."""
        self.service = Reconnecting(
            self.clock,
            self.connect,
            Backoff(chance=lambda: 1.0),
            max_retry=max_retry,
            gave_up=self.give_up,
            grace=5.0,
        )

    def connect(self) -> Deferred[Any]:
        """Be the uplink."""
        self.tries.append(Deferred())
        return self.tries[-1]

    def give_up(self) -> None:
        """Count."""
        self.given_up += 1

    def up(self) -> FakeSSHTunnel:
        """Let the last try succeed."""
        tunnel = FakeSSHTunnel()
        self.tries[-1].callback(tunnel)
        return tunnel

    def fail(self, msg: Any = None) -> None:  # type: ignore[override]
        """Let the last try fail."""
        self.tries[-1].errback(msg or DialFailed("connection refused"))

    def test_up(self) -> None:
        """A tunnel makes the agent ready."""
        self.assertFalse(self.service.ready)
        self.service.startService()
        self.assertFalse(self.service.ready)
        self.up()
        self.assertTrue(self.service.ready)
        self.assertEqual(self.service.state, "connected")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_again(self) -> None:
        """Failed attempts are retried with increasing delays, and the state has the reason."""
        self.service.startService()
        for wait in (0.1, 0.14, 0.196):
            self.fail()
            self.assertEqual(self.service.state, "connection refused")
            count = len(self.tries)
            self.clock.advance(wait - 0.01)
            self.assertEqual(len(self.tries), count)
            self.clock.advance(0.011)
            self.assertEqual(len(self.tries), count + 1)

    def test_permanent(self) -> None:
        """An error that only an operator can end is retried slowly, and logged once a minute."""
        error = DialFailed("its certificate expired")
        error.permanent = True
        self.service.startService()
        with capturedLogs() as events:
            for number in range(7):
                self.fail(error)
                self.clock.advance(SLOW - 0.1)
                self.assertEqual(len(self.tries), number + 1)
                self.clock.advance(0.2)
        lines = [str(formatEvent(event)) for event in events]
        self.assertEqual(sum("its certificate expired" in line for line in lines), 3)
        self.assertIn("every 60 s", lines[1])
        with capturedLogs() as events:
            self.fail()
            self.clock.advance(120)
            self.fail(error)
        self.assertEqual(len(events), 3)
        self.service.retry_now()
        self.assertEqual(len(self.tries), 10)

    def test_restart(self) -> None:
        """A restart of the proxy is a few lines, and a later one is logged as well."""
        self.service.startService()
        tunnel = self.up()
        for _ in range(2):
            with capturedLogs() as events:
                tunnel.drained_by_peer()
                tunnel.lose()
                for number in range(12):
                    self.clock.advance(5)
                    self.fail(DialFailed(f"connection refused after {number} ms"))
                self.clock.advance(120)
                tunnel = self.up()
            lines = [str(formatEvent(event)) for event in events]
            self.assertEqual(sum("refused" in line for line in lines), 1, lines)
            self.assertEqual(sum("retrying in" in line for line in lines), 1, lines)
            self.assertLessEqual(len(lines), 5, lines)

    def test_changing_errors(self) -> None:
        """Errors that alternate are logged once a minute each; only the last few are remembered."""
        self.service.startService()
        with capturedLogs() as events:
            for name in "abab" + "cdefghijkl" + "a":
                self.fail(DialFailed(f"error {name}"))
                self.service.retry_now()
        lines = [str(formatEvent(event)) for event in events]
        self.assertEqual(sum("error a" in line for line in lines), 2)
        self.assertEqual(sum("error b" in line for line in lines), 1)

    def test_lost(self) -> None:
        """A lost tunnel is replaced, beginning with the shortest wait."""
        self.service.startService()
        for _ in range(5):
            self.fail()
            self.clock.advance(1)
        tunnel = self.up()
        tunnel.lose()
        self.assertFalse(self.service.ready)
        self.clock.advance(0.11)
        self.up()
        self.assertTrue(self.service.ready)

    def test_lost_at_once(self) -> None:
        """A tunnel that is lost at once is replaced, too."""
        self.service.startService()
        tunnel = FakeSSHTunnel()
        tunnel.lose()
        self.tries[-1].callback(tunnel)
        self.assertFalse(self.service.ready)
        self.clock.advance(0.11)
        self.assertEqual(len(self.tries), 2)

    def test_no_room(self) -> None:
        """If the proxy has no free slot, the next attempt follows after the longest delay, or on SIGHUP."""
        self.service.startService()
        self.fail(TooManyConnections(12, "key SHA256:x has 8 tunnels"))
        self.assertIn("has 8 tunnels", self.service.state)
        self.clock.advance(119.9)
        self.assertEqual(len(self.tries), 1)
        self.clock.advance(0.2)
        self.assertEqual(len(self.tries), 2)
        self.fail(TooManyConnections(12, ""))
        self.service.retry_now()
        self.assertEqual(len(self.tries), 3)
        self.fail()
        self.clock.advance(0.11)
        self.assertEqual(len(self.tries), 4)
        self.up().lost.callback(TooManyConnections(12, ""))
        self.clock.advance(119.9)
        self.assertEqual(len(self.tries), 4)

    def test_hangup(self) -> None:
        """SIGHUP retries now, and changes nothing while there is nothing to wait for."""
        self.service.startService()
        self.service.retry_now()
        self.assertEqual(len(self.tries), 1)
        for _ in range(30):
            self.fail()
            self.clock.advance(120)
        self.fail()
        self.service.retry_now()
        self.assertEqual(len(self.tries), 32)
        self.fail()
        self.clock.advance(0.11)
        self.assertEqual(len(self.tries), 33)
        self.up()
        self.service.retry_now()
        self.assertEqual(len(self.tries), 33)

    def test_surprise(self) -> None:
        """A mistake of ours is logged with its traceback and does not stop the tries."""
        self.service.startService()
        self.fail(ZeroDivisionError("oops"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(0.11)
        self.assertEqual(len(self.tries), 2)

    def test_gives_up(self) -> None:
        """After so many retries in a row it gives up; a tunnel in between starts the count again."""
        self.make(max_retry=2)
        self.service.startService()
        self.fail()
        self.clock.advance(1)
        self.up().lose()
        self.clock.advance(1)
        for _ in range(2):
            self.fail()
            self.clock.advance(1)
        self.assertEqual(self.given_up, 0)
        self.fail()
        self.assertEqual((self.given_up, self.clock.getDelayedCalls()), (1, []))

    def test_too_many_drained(self) -> None:
        """A proxy that drains one tunnel after the other does not get more and more of them."""
        self.service.startService()
        tunnels = []
        for _ in range(12):
            tunnels.append(self.up())
            tunnels[-1].drained_by_peer()
            self.clock.advance(1)
        self.assertEqual([tunnel.calls for tunnel in tunnels], [["abort"]] * 4 + [[]] * 8)
        tunnels.append(self.up())
        self.assertTrue(self.service.ready)
        self.assertEqual(tunnels[4].calls, ["abort"])

    def test_proxy_drains(self) -> None:
        """If the proxy is stopping, another tunnel is opened while the old one still has streams."""
        self.service.startService()
        old = self.up()
        old.drained_by_peer()
        self.assertFalse(self.service.ready)
        self.clock.advance(0.11)
        new = self.up()
        self.assertTrue(self.service.ready)
        self.assertEqual(old.calls, [])
        old.lose()
        self.assertTrue(self.service.ready)
        self.assertEqual((new.calls, self.clock.getDelayedCalls()), ([], []))

    def test_renew(self) -> None:
        """After a change the agent reconnects: the old tunnel is closed before the new one is opened."""
        self.service.startService()
        old = self.up()
        self.service.renew()
        self.assertEqual((old.calls, len(self.tries)), (["close"], 1))
        self.assertFalse(self.service.ready)
        self.clock.advance(1.0)
        self.assertEqual(len(self.tries), 2)
        new = self.up()
        self.assertTrue(self.service.ready)
        self.assertEqual((new.calls, self.clock.getDelayedCalls()), ([], []))

    def test_renew_waits_for_streams(self) -> None:
        """Open streams may finish within a minute; until then the tunnel accepts new ones."""
        self.service.startService()
        tunnel = self.up()
        tunnel.streams = 1
        self.service.renew()
        self.service.renew()
        self.clock.pump([0.1] * 50)
        self.assertEqual((tunnel.calls, self.service.ready), ([], True))
        tunnel.streams = 0
        self.clock.advance(0.1)
        self.assertEqual(tunnel.calls, ["close"])
        self.clock.advance(1.0)
        tunnel = self.up()
        tunnel.streams = 1
        self.service.renew()
        self.clock.pump([0.1] * 590)
        self.assertEqual(tunnel.calls, [])
        self.clock.pump([0.1] * 11)
        self.assertEqual(tunnel.calls, ["close"])

    def test_renew_after_a_close_that_takes_long(self) -> None:
        """As long as the old tunnel is not gone there is no new one."""
        self.service.startService()
        old = self.up()
        old.stubborn = True
        self.service.renew()
        self.clock.advance(5.0)
        self.assertEqual(len(self.tries), 1)
        old.lose()
        self.clock.advance(1.0)
        self.assertEqual(len(self.tries), 2)

    def test_renew_while_trying(self) -> None:
        """A tunnel that was being opened when it should have been renewed is renewed."""
        self.service.startService()
        self.service.renew()
        tunnel = self.up()
        self.assertEqual(tunnel.calls, ["close"])
        self.clock.advance(1.0)
        self.assertEqual(self.up().calls, [])

    def test_renew_without_a_tunnel(self) -> None:
        """A renewal during an attempt needs no further one if that attempt fails."""
        self.service.startService()
        self.service.renew()
        self.fail()
        self.service.renew()
        self.clock.advance(0.11)
        self.assertEqual(self.up().calls, [])

    def test_renew_lost(self) -> None:
        """A tunnel that is lost while its streams are waited for is replaced once."""
        self.service.startService()
        tunnel = self.up()
        tunnel.streams = 1
        self.service.renew()
        tunnel.lose()
        self.clock.advance(0.11)
        new = self.up()
        self.clock.pump([0.1] * 700)
        self.assertEqual((len(self.tries), new.calls), (2, []))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_renewing(self) -> None:
        """A stop ends that as well, before the old tunnel is closed and after."""
        self.service.startService()
        tunnel = self.up()
        tunnel.streams = 1
        self.service.renew()
        tunnel.streams = 0
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.make()
        self.service.startService()
        self.up()
        self.service.renew()
        self.successResultOf(self.service.stopService())
        self.clock.advance(10)
        self.assertEqual((len(self.tries), self.clock.getDelayedCalls()), (2, []))

    def test_stop(self) -> None:
        """A stop drains the tunnels, waits for open streams, and closes."""
        self.service.startService()
        tunnel = self.up()
        tunnel.streams = 2
        with capturedLogs() as events:
            stopped = self.service.stopService()
            self.assertEqual(tunnel.calls, ["drain"])
            self.clock.advance(0.1)
            self.assertNoResult(stopped)
            tunnel.streams = 0
            self.clock.advance(0.1)
            self.successResultOf(stopped)
        self.assertEqual(
            [formatEvent(event) for event in events],
            ["waiting up to 5 s for open streams: 2", "all streams have ended"],
        )
        self.assertEqual(tunnel.calls, ["drain", "close"])
        self.assertEqual((len(self.tries), self.clock.getDelayedCalls()), (1, []))

    def test_grace(self) -> None:
        """Streams that do not end are cut after the grace period, and a tunnel that does not close, too."""
        self.service.startService()
        tunnel = self.up()
        tunnel.streams, tunnel.stubborn = 1, True
        with capturedLogs() as events:
            stopped = self.service.stopService()
            self.clock.pump([0.1] * 52)
        cut = formatEvent(events[-1])
        self.assertEqual(cut, "streams that did not end within 5 s and were cut: 1 of 1")
        self.assertEqual(tunnel.calls, ["drain", "close"])
        self.assertNoResult(stopped)
        self.clock.advance(2.0)
        self.assertEqual(tunnel.calls, ["drain", "close", "abort"])
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_trying(self) -> None:
        """A stop cancels the attempt in progress."""
        self.service.startService()
        cancelled: list[Any] = []
        self.tries[0].addErrback(cancelled.append)
        self.tries[0] = Deferred()
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_waiting(self) -> None:
        """A stop ends the wait."""
        self.service.startService()
        self.fail()
        self.successResultOf(self.service.stopService())
        self.clock.advance(1000)
        self.assertEqual((len(self.tries), self.clock.getDelayedCalls()), (1, []))

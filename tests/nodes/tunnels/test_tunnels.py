"""Tests of `tower.nodes.tunnels.tunnels`, with its slots and dials."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.node_tunnels import FakeFleet, FakeNodeTunnel
from tower.clusters.node import Node
from tower.clusters.node_status import NodeStatus
from tower.errors import ConfigurationError, StreamRefused, TunnelLost
from tower.nodes.tunnels.dial import MOST_NODES as MOST_ASKED
from tower.nodes.tunnels.dial import NODE_TIMEOUT, SILENCE, TIMEOUT
from tower.nodes.tunnels.slot import NodeSlot
from tower.nodes.tunnels.tunnel import NodeTunnel
from tower.nodes.tunnels.tunnels import (
    CHECK_TIMEOUT,
    CLOSING,
    HEALTH_PERIOD,
    RECHECKS,
    RECHECKS_PERIOD,
    NodeTunnels,
    NoTunnels,
)

A, B, C, D = (Node(f"192.0.2.{number}", name=name) for number, name in enumerate("abcd", 1))


class Health:
    """Answers health checks as a test decides."""

    def __init__(self) -> None:
        self.asked: list[tuple[FakeNodeTunnel, Deferred[str]]] = []
        self.given_up = 0

    def __call__(self, tunnel: Any) -> Deferred[str]:
        """Ask."""
        self.asked.append((tunnel, Deferred(self._give_up)))
        return self.asked[-1][1]

    def _give_up(self, _: Deferred[str]) -> None:
        self.given_up += 1

    def answer(self, trouble: str = "") -> None:
        """Answer what was asked first."""
        self.asked.pop(0)[1].callback(trouble)

    def fail(self, error: Exception) -> None:
        """Fail what was asked first."""
        self.asked.pop(0)[1].errback(error)


class ListCase(SynchronousTestCase):
    """A list over fake tunnels."""

    def setUp(self) -> None:
        """An empty list that chooses the first of several nodes."""
        self.clock = Clock()
        self.fleet = FakeFleet()
        self.health = Health()
        self.changes = 0
        self.now = 1000.0
        self.tunnels = self.make(choose=lambda places: places[0])

    def make(self, **options: Any) -> NodeTunnels:
        """Make a list."""
        options = {"health": self.health, **options}
        return NodeTunnels(
            self.clock,
            self.fleet.create,
            user="joe",
            epoch=lambda: self.now + self.clock.seconds(),
            on_change=self.changed,
            **options,
        )

    def changed(self) -> None:
        """Count."""
        self.changes += 1

    def up(self, *nodes: Node) -> None:
        """Open tunnels to *nodes*."""
        self.tunnels.update(nodes)
        self.fleet.let_all_in()

    def hosts(self, state: str) -> list[str]:
        """Return the hosts in that state."""
        return [status.name for status in self.tunnels.states() if status.state == state]

    def status(self, node: Node) -> NodeStatus:
        """Return the status of a node."""
        return next(status for status in self.tunnels.states() if status.address == node.address)

    def nothing_is_left(self) -> None:
        """No timer runs."""
        self.assertEqual(self.clock.getDelayedCalls(), [])


class UpdateTests(ListCase):
    def test_new_nodes_are_opened(self) -> None:
        """Each node gets one tunnel."""
        self.tunnels.update([A, B])
        self.assertEqual(self.hosts("connecting"), ["a", "b"])
        self.assertFalse(self.tunnels.is_up)
        self.fleet.last(A.host).let_in()
        self.assertTrue(self.tunnels.is_up)
        self.assertEqual((self.hosts("open"), self.hosts("connecting")), (["a"], ["b"]))

    def test_what_stays_is_not_touched(self) -> None:
        """The same list again does nothing, whether tunnels are open or being opened."""
        self.tunnels.update([A, B])
        self.fleet.last(A.host).let_in()
        before = self.changes
        self.tunnels.update([B, A, B])
        self.assertEqual([tunnel.calls for tunnel in self.fleet.made], [["open"], ["open"]])
        self.assertEqual(self.changes, before)

    def test_removed_from_the_list_retires(self) -> None:
        """Its streams continue, it accepts no new ones, and it is shown until it is closed."""
        self.up(A, B)
        tunnel = self.fleet.last(A.host)
        tunnel.streams = 3
        self.tunnels.update([B])
        self.assertEqual(tunnel.calls, ["open", "retire 30"])
        self.assertEqual((self.hosts("open"), self.hosts("leaving")), (["b"], ["a"]))
        self.tunnels.dial("a", 80)
        self.assertEqual((len(tunnel.dials), len(self.fleet.last(B.host).dials)), (0, 1))
        before = self.changes
        tunnel.lose("its streams are over")
        self.assertEqual((self.hosts("leaving"), self.changes), ([], before + 1))
        self.assertEqual(len(self.fleet.made), 2)

    def test_listed_again_while_leaving(self) -> None:
        """A node that is listed again gets a new tunnel, in addition to the leaving one."""
        self.up(A)
        self.fleet.last(A.host).streams = 1
        self.tunnels.update([])
        self.up(A)
        self.assertEqual((self.hosts("open"), self.hosts("leaving")), (["a"], ["a"]))
        self.fleet.made[0].lose()
        self.assertEqual((self.hosts("open"), self.hosts("leaving")), (["a"], []))

    def test_removed_while_being_opened(self) -> None:
        """The opening is cancelled, and the node is not there at all."""
        self.tunnels.update([A, B])
        self.tunnels.update([B])
        tunnel = self.fleet.last(A.host)
        self.assertTrue(tunnel.cancelled)
        self.assertEqual(self.hosts("connecting"), ["b"])
        self.tunnels.close()
        self.nothing_is_left()

    def test_opened_in_spite_of_being_cancelled(self) -> None:
        """A tunnel that comes too late is closed."""
        self.tunnels.update([A])
        tunnel = self.fleet.last(A.host)
        opening = tunnel.opening
        assert opening is not None
        opening._canceller = lambda _: tunnel.let_in()
        self.tunnels.update([])
        self.assertEqual(tunnel.calls, ["open", "close"])
        self.assertEqual(self.tunnels.states(), [])

    def test_a_failed_one_is_tried_with_the_next_list(self) -> None:
        """Its error is shown until it is open, and it is not tried before."""
        self.tunnels.update([A])
        self.fleet.made[0].refuse(ConnectionError("connection refused"))
        status = self.status(A)
        self.assertEqual((status.state, status.error, status.since), ("failed", "connection refused", 1000.0))
        self.clock.advance(14)
        self.assertEqual(len(self.fleet.made), 1)
        self.tunnels.update([A])
        self.assertEqual(len(self.fleet.made), 2)
        self.assertEqual(self.status(A), status)
        self.fleet.made[1].let_in()
        self.assertEqual(
            (self.status(A).state, self.status(A).error, self.status(A).since), ("open", "", 1014.0)
        )

    def test_retry(self) -> None:
        """Nodes without a tunnel can be tried again without a list."""
        self.tunnels.update([A, B])
        self.fleet.made[0].refuse(ConnectionError("no"))
        self.fleet.made[1].let_in()
        self.tunnels.retry()
        self.assertEqual([tunnel.node for tunnel in self.fleet.made], [A, B, A])

    def test_a_tunnel_that_cannot_be_made(self) -> None:
        """Any error of the maker is that node's, and others are opened all the same."""

        def create(node: Node) -> NodeTunnel:
            if node is A:
                raise ConfigurationError("no key")
            return self.fleet.create(node)

        tunnels = NodeTunnels(self.clock, create, user="joe", health=None, epoch=self.clock.seconds)
        tunnels.update([A, B])
        self.assertEqual(
            [(s.state, s.error) for s in tunnels.states()], [("failed", "no key"), ("connecting", "")]
        )
        self.assertEqual(tunnels.counters.open_fail_count, 0)

    def test_aliases_change(self) -> None:
        """A node that is called otherwise now keeps its tunnel, and is found by its new names."""
        self.up(A, B)
        self.tunnels.update([A, Node(B.host, name="bee", aliases=frozenset({"10.0.0.2"}))])
        self.assertEqual(len(self.fleet.made), 2)
        for host in ("bee", "10.0.0.2"):
            self.tunnels.dial(host, 80)
        self.assertEqual(len(self.fleet.last(B.host).dials), 2)
        self.assertEqual([status.name for status in self.tunnels.states()], ["a", "bee"])
        self.assertEqual(self.fleet.last(B.host).node.name, "bee")

    def test_a_fleet_is_not_opened_in_one_moment(self) -> None:
        """Only so many shake hands at once; the others follow as those are through."""
        nodes = [Node(f"n{number}") for number in range(200)]
        self.tunnels.update(nodes)
        self.assertEqual(len(self.fleet.made), 32)
        self.fleet.made[5].let_in()
        self.assertEqual(len(self.fleet.made), 33)
        self.fleet.let_all_in()
        self.assertEqual(len(self.hosts("open")), 200)

    def test_a_fleet_of_dead_nodes_does_not_delay_others(self) -> None:
        """The last one in a list is open within 15 s, though all in front of it do not answer."""
        self.tunnels.update([Node(f"n{number}") for number in range(200)])
        for _ in range(15):
            self.clock.advance(1)
        self.fleet.last("n199").let_in()
        self.assertEqual(self.hosts("open"), ["n199"])

    def test_too_many(self) -> None:
        """A list beyond all reason is cut."""
        self.tunnels.update([Node(f"n{number}") for number in range(5003)])
        self.assertEqual(len(self.tunnels.states()), 5000)

    def test_counters(self) -> None:
        """Attempts count when they have ended, failed ones twice over."""
        self.tunnels.update([A, B])
        self.assertEqual(self.tunnels.counters.open_count, 0)
        self.fleet.made[0].let_in()
        self.fleet.made[1].refuse(ConnectionError("no"))
        counters = self.tunnels.counters
        self.assertEqual((counters.open_count, counters.open_fail_count), (2, 1))


class LostTests(ListCase):
    def test_one_dial_at_once_then_the_list(self) -> None:
        """A lost tunnel is reopened at once, but only once; after that with the next listing."""
        self.up(A)
        self.fleet.made[0].lose("reset by peer")
        self.assertEqual(len(self.fleet.made), 2)
        self.assertEqual((self.status(A).state, self.status(A).error), ("connecting", "reset by peer"))
        self.fleet.made[1].let_in()
        self.fleet.made[1].lose("reset again")
        self.assertEqual(len(self.fleet.made), 2)
        self.assertEqual((self.status(A).state, self.status(A).error), ("failed", "reset again"))
        self.tunnels.update([A])
        self.assertEqual(len(self.fleet.made), 3)
        self.fleet.made[2].let_in()
        self.fleet.made[2].lose("reset once more")
        self.assertEqual(len(self.fleet.made), 4)

    def test_the_second_dial_fails(self) -> None:
        """It is not repeated before the next list."""
        self.up(A)
        self.fleet.made[0].lose()
        self.fleet.made[1].refuse(ConnectionError("refused"))
        self.assertEqual((self.status(A).state, len(self.fleet.made)), ("failed", 2))

    def test_trouble_is_reported(self) -> None:
        """The tunnel is already removed when `on_change` is called."""
        seen: list[bool] = []
        self.up(A)
        self.tunnels.on_change = lambda: seen.append(self.tunnels.is_up)
        self.fleet.made[0].lose()
        self.assertTrue(seen)
        self.assertFalse(any(seen))

    def test_on_change_fails(self) -> None:
        """That is logged, and tunnels are kept all the same."""

        def fail() -> None:
            raise RuntimeError("not my day")

        self.tunnels.on_change = fail
        self.up(A)
        self.fleet.made[0].lose()
        self.fleet.let_all_in()
        self.assertEqual(self.hosts("open"), ["a"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 3)

    def test_other_callbacks(self) -> None:
        """Other callbacks of `lost` get the reason too."""
        self.up(A)
        self.fleet.made[0].lose("cut")
        self.assertEqual(str(self.successResultOf(self.fleet.made[0].lost)), "cut")

    def test_at_rest(self) -> None:
        """While the list is paused, lost tunnels stay lost, and open ones stay open."""
        self.up(A, B)
        self.tunnels.check()
        self.health.answer()
        self.tunnels.pause()
        self.fleet.made[0].lose()
        self.assertEqual((self.hosts("failed"), self.hosts("open")), (["a"], ["b"]))
        self.nothing_is_left()
        self.tunnels.update([A, B])
        self.assertEqual(len(self.fleet.made), 3)


class CloseTests(ListCase):
    def test_all_are_closed(self) -> None:
        """Open, leaving and opening tunnels are closed, and no timer is left."""
        self.up(A, B, C)
        self.fleet.last(A.host).streams = 1
        self.tunnels.update([B, C, D])
        self.tunnels.check()
        self.tunnels.dial("x", 1).addErrback(lambda _: None)
        closed = self.tunnels.close()
        self.successResultOf(closed)
        self.assertEqual(self.tunnels.states(), [])
        self.assertFalse(any(tunnel.is_open for tunnel in self.fleet.made))
        self.assertTrue(self.fleet.last(D.host).cancelled)
        self.clock.advance(TIMEOUT)
        self.nothing_is_left()

    def test_closing_waits_for_them(self) -> None:
        """It fires after the last one is closed; until then no tunnel is usable."""
        self.up(A, B)
        for tunnel in self.fleet.made:
            tunnel.close = lambda reason: None  # type: ignore[method-assign]
        before = self.changes
        closed = self.tunnels.close()
        self.assertGreater(self.changes, before)
        self.fleet.made[0].lose()
        self.assertNoResult(closed)
        self.fleet.made[1].lose()
        self.successResultOf(closed)
        self.assertEqual(self.tunnels.states(), [])
        self.nothing_is_left()

    def test_closing_takes_so_long_at_the_most(self) -> None:
        """Tunnels that do not go are waited for, but not for ever."""
        self.up(A)
        self.fleet.made[0].close = lambda reason: None  # type: ignore[method-assign]
        closed = self.tunnels.close()
        self.assertFalse(self.tunnels.is_up)
        self.assertEqual(self.hosts("open"), ["a"])
        self.clock.advance(CLOSING - 0.1)
        self.assertNoResult(closed)
        self.clock.advance(0.1)
        self.successResultOf(closed)
        self.assertEqual(self.tunnels.states(), [])
        self.nothing_is_left()
        self.fleet.made[0].lose()

    def test_empty(self) -> None:
        """A list without nodes is closed at once."""
        self.successResultOf(self.tunnels.close())

    def test_a_list_after_that(self) -> None:
        """The list can be used again."""
        self.up(A)
        self.tunnels.close()
        self.up(A)
        self.assertEqual(self.hosts("open"), ["a"])


class HealthTests(ListCase):
    def test_staggered(self) -> None:
        """Tunnel i of n is looked at 60 s * i / n after the round began."""
        self.up(A, B, C, D)
        self.tunnels.check()
        seen = []
        for second in range(60):
            while self.health.asked:
                seen.append((second, self.health.asked[0][0].node.name))
                self.health.answer()
            self.clock.advance(1)
        self.assertEqual(seen, [(0, "a"), (15, "b"), (30, "c"), (45, "d")])
        self.nothing_is_left()

    def test_never_two_at_once(self) -> None:
        """A round finds one that is still being looked at and leaves it alone."""
        self.up(A)
        self.tunnels.check()
        self.tunnels.check()
        self.assertEqual(len(self.health.asked), 1)
        self.health.answer()
        self.tunnels.check()
        self.assertEqual(len(self.health.asked), 1)

    def test_rounds_do_not_pile_up(self) -> None:
        """A new round replaces the checks that the previous one scheduled."""
        self.up(A, B)
        self.tunnels.check()
        self.health.answer()
        self.clock.advance(25)
        self.tunnels.check()
        self.health.answer()
        self.tunnels.check()
        self.clock.advance(5)
        self.assertEqual([tunnel.node for tunnel, _ in self.health.asked], [A])
        self.health.answer()
        self.clock.advance(25)
        self.assertEqual([tunnel.node for tunnel, _ in self.health.asked], [B])

    def test_well(self) -> None:
        """A good answer leaves only its time."""
        self.up(A)
        self.clock.advance(5)
        self.tunnels.check()
        self.health.answer()
        self.assertEqual((self.status(A).state, self.status(A).checked), ("open", 1005.0))
        self.nothing_is_left()

    def test_degraded(self) -> None:
        """A bad answer keeps the tunnel, shows why, and has it chosen last."""
        self.up(A, B)
        self.tunnels.check()
        self.health.answer("it answered 500")
        self.assertEqual((self.status(A).state, self.status(A).error), ("degraded", "it answered 500"))
        self.assertEqual(self.fleet.made[0].calls, ["open"])
        self.tunnels.dial("x", 1)
        self.assertEqual((len(self.fleet.made[0].dials), len(self.fleet.made[1].dials)), (0, 1))
        self.tunnels.update([A])
        self.tunnels.dial("x", 1)
        self.assertEqual(len(self.fleet.made[0].dials), 1)
        self.tunnels.check()
        self.health.answer()
        self.assertEqual((self.status(A).state, self.status(A).error), ("open", ""))

    def test_degraded_for_a_moment(self) -> None:
        """Those that are not well are looked at again with the next list, few at a time, and no others."""
        nodes = [Node(f"192.0.2.{number}") for number in range(RECHECKS + 3)]
        self.up(*nodes)
        self.tunnels.check()
        for number in range(len(nodes)):
            self.health.answer("" if number == len(nodes) - 1 else "no answer within 8 s")
            self.clock.advance(HEALTH_PERIOD / len(nodes) + 0.01)
        self.assertEqual(len(self.hosts("degraded")), RECHECKS + 2)
        self.tunnels.update(nodes)
        self.clock.advance(0)
        self.assertEqual([tunnel.node for tunnel, _ in self.health.asked], [nodes[0]])
        self.clock.advance(RECHECKS_PERIOD)
        self.assertEqual([tunnel.node for tunnel, _ in self.health.asked], nodes[:RECHECKS])
        for _ in range(RECHECKS):
            self.health.answer()
        self.assertEqual(len(self.hosts("degraded")), 2)
        self.nothing_is_left()

    def test_trouble(self) -> None:
        """If all tunnels fail their checks, `trouble` has the problem of the first."""
        self.assertEqual(self.tunnels.trouble, "")
        self.up(A, B)
        self.assertEqual(self.tunnels.trouble, "")
        self.tunnels.check()
        self.health.answer("it answered 500")
        self.assertEqual(self.tunnels.trouble, "")
        self.clock.advance(HEALTH_PERIOD / 2)
        self.health.answer("it answered 503")
        text = "None of the open SSH tunnels (2) works.  Node a: it answered 500"
        self.assertEqual(self.tunnels.trouble, text)
        self.tunnels.check()
        self.health.answer()
        self.assertEqual(self.tunnels.trouble, "")

    def test_dead(self) -> None:
        """It is closed and reopened once, at once."""
        self.up(A)
        self.tunnels.check()
        self.health.fail(ConnectionError("connection refused"))
        self.assertEqual(self.fleet.made[0].calls, ["open", "close"])
        self.assertEqual((len(self.fleet.made), self.status(A).checked), (2, 1000.0))
        self.fleet.made[1].refuse(ConnectionError("no"))
        self.assertEqual((self.status(A).state, len(self.fleet.made)), ("failed", 2))
        self.nothing_is_left()

    def test_dead_and_slow_to_go(self) -> None:
        """The old tunnel is not waited for, and its end changes nothing more."""
        self.up(A)
        old = self.fleet.made[0]
        old.close = lambda reason: None  # type: ignore[method-assign]
        self.tunnels.check()
        self.health.fail(ConnectionError("no answer"))
        self.assertFalse(self.tunnels.is_up)
        self.fleet.made[1].let_in()
        old.lose()
        self.assertEqual((self.hosts("open"), len(self.fleet.made)), (["a"], 2))
        self.tunnels.check()
        self.assertEqual([tunnel for tunnel, _ in self.health.asked], [self.fleet.made[1]])

    def test_a_new_tunnel_begins_anew(self) -> None:
        """The problem of the old tunnel does not apply to the new one."""
        self.up(A, B)
        self.tunnels.check()
        self.health.answer("it answered 500")
        self.fleet.made[0].lose()
        self.fleet.let_all_in()
        self.assertEqual(self.status(A).state, "open")
        self.tunnels.dial("x", 1)
        self.assertEqual(len(self.fleet.last(A.host).dials), 1)

    def test_dead_in_the_middle_of_a_list_of_others(self) -> None:
        """Others are not touched."""
        self.up(A, B)
        self.tunnels.check()
        self.health.fail(ConnectionError("no"))
        self.assertEqual(self.fleet.made[1].calls, ["open"])

    def test_no_answer(self) -> None:
        """A check that takes too long is a dead tunnel."""
        self.up(A)
        self.tunnels.check()
        self.clock.advance(CHECK_TIMEOUT - 0.1)
        self.assertTrue(self.tunnels.is_up)
        self.clock.advance(0.1)
        self.assertFalse(self.tunnels.is_up)
        self.assertEqual(self.status(A).error, "no answer within 10 s")

    def test_lost_while_it_is_checked(self) -> None:
        """It is reopened once, no matter which failure is noticed first."""
        self.up(A)
        self.tunnels.check()
        self.fleet.made[0].lose()
        self.health.fail(TunnelLost("gone"))
        self.assertEqual(len(self.fleet.made), 2)
        self.fleet.made[1].let_in()
        self.assertEqual(self.hosts("open"), ["a"])

    def test_an_answer_about_a_closed_tunnel(self) -> None:
        """The check of an old tunnel does not affect the new one."""
        self.up(A)
        self.tunnels.check()
        self.fleet.made[0].lose()
        self.fleet.made[1].let_in()
        self.health.answer("bad")
        self.assertEqual(self.status(A).state, "open")

    def test_left_while_it_is_checked(self) -> None:
        """The check is cancelled and reports nothing."""
        self.up(A)
        self.tunnels.check()
        self.tunnels.update([])
        self.assertEqual(self.health.given_up, 1)
        self.assertEqual(len(self.fleet.made), 1)
        self.nothing_is_left()

    def test_left_before_its_permit(self) -> None:
        """A closed node is not checked."""
        self.up(A, B)
        self.tunnels.check()
        self.health.answer()
        self.tunnels.update([A])
        self.clock.advance(HEALTH_PERIOD)
        self.assertEqual(self.health.asked, [])

    def test_without_health_check(self) -> None:
        """Without a check all tunnels are well, and suspicion lasts until the next round."""
        self.tunnels = self.make(health=None, choose=lambda places: places[0])
        self.up(A)
        self.tunnels.dial("x", 1).addErrback(lambda _: None)
        self.clock.advance(SILENCE)
        self.assertEqual(self.status(A).state, "degraded")
        self.tunnels.check()
        self.assertEqual(self.status(A).state, "open")

    def test_a_health_check_may_be_a_coroutine(self) -> None:
        """Any awaitable will do, and what it raises counts."""

        async def look(_: Any) -> str:
            raise ConnectionError("no")

        self.tunnels = self.make(health=look)
        self.up(A)
        self.tunnels.check()
        self.assertEqual(self.fleet.made[0].calls, ["open", "close"])


class DialTests(ListCase):
    def test_by_name_and_address(self) -> None:
        """The node with that name is dialed, regardless of the others."""
        self.up(A, B, C)
        for host in ("c", C.host):
            dialed = self.tunnels.dial(host, 10250)
            channel = self.fleet.last(C.host).answer()
            self.assertIs(self.successResultOf(dialed), channel)
            self.assertEqual((channel.host, channel.port), (host, 10250))
        self.nothing_is_left()

    def test_a_name_of_two(self) -> None:
        """A shared name belongs to the other node when one leaves, and to none after the other is renamed."""
        one, other = (Node(each.host, each.port, each.name, frozenset(("x",))) for each in (A, B))
        self.up(one, C, other)
        self.tunnels.update([C, other])
        self.tunnels.dial("x", 1)
        self.assertEqual(len(self.fleet.last(B.host).dials), 1)
        self.tunnels.update([C, B])
        self.tunnels.dial("x", 1)
        self.assertEqual([len(self.fleet.last(each.host).dials) for each in (B, C)], [1, 1])

    def test_any_other(self) -> None:
        """An unknown host is dialed through any node."""
        self.up(A, B)
        dialed = self.tunnels.dial("10.96.0.1", 443)
        self.assertIs(self.fleet.made[0].answer(), self.successResultOf(dialed))

    def test_uniform(self) -> None:
        """Without a choice of the test's own, all that are well are chosen equally often."""
        self.tunnels = self.make()
        self.up(A, B, C, D)
        self.tunnels.check()
        self.health.answer("not well")
        times = 3000
        for _ in range(times):
            self.tunnels.dial("x", 1)
        numbers = Counter({tunnel.node.name: len(tunnel.dials) for tunnel in self.fleet.made})
        self.assertEqual(numbers["a"], 0)
        for name in "bcd":  # six standard deviations
            self.assertLess(abs(numbers[name] - times / 3), 6 * (times * 1 / 3 * 2 / 3) ** 0.5)

    def test_no_tunnel(self) -> None:
        """The error has upstream's words, with the user quoted as Go does."""
        for user, quoted in (("joe", '"joe"'), ('a"b\\', r'"a\"b\\"'), ("jörg", '"jörg"')):
            self.tunnels.user = user
            failure = self.failureResultOf(self.tunnels.dial("x", 1), NoTunnels)
            self.assertEqual(
                str(failure.value),
                "No SSH tunnels currently open. Were the targets able to accept an ssh-key for user "
                f"{quoted}?",
            )

    def test_only_those_being_opened(self) -> None:
        """A node whose tunnel is not open yet is not used."""
        self.tunnels.update([A])
        self.failureResultOf(self.tunnels.dial("a", 1), NoTunnels)

    def test_the_next_node(self) -> None:
        """Another node may reach what one cannot."""
        for error in (
            TunnelLost("gone"),
            StreamRefused("not-allowed", "no"),
            StreamRefused("busy", "no"),
            StreamRefused("unreachable", "no"),
            StreamRefused("refused", "no"),
            StreamRefused("name", "no"),
            StreamRefused("timeout", "no"),
            StreamRefused("failed", "no"),
        ):
            self.setUp()
            self.up(A, B)
            dialed = self.tunnels.dial("x", 1)
            self.fleet.made[0].deny(error)
            self.assertIs(self.fleet.made[1].answer(), self.successResultOf(dialed))

    def test_so_many_nodes(self) -> None:
        """A failure of three nodes is reported, with the last one's error."""
        self.up(A, B, C, D)
        dialed = self.tunnels.dial("x", 1)
        for number, tunnel in enumerate(self.fleet.made[:MOST_ASKED]):
            self.assertNoResult(dialed)
            tunnel.deny(StreamRefused("refused", f"refused {number}"))
        failure = self.failureResultOf(dialed, StreamRefused)
        self.assertEqual((str(failure.value), self.fleet.made[3].dials), ("refused 2", []))
        self.nothing_is_left()

    def test_no_node_is_left(self) -> None:
        """With fewer nodes than tries, the last one's error is reported."""
        self.up(A)
        dialed = self.tunnels.dial("x", 1)
        self.fleet.made[0].deny(StreamRefused("refused", "connection refused"))
        self.assertEqual(str(self.failureResultOf(dialed).value), "connection refused")
        self.nothing_is_left()

    def test_the_last_error(self) -> None:
        """The last failure is reported, even of the node that was tried first."""
        self.up(A, B)
        dialed = self.tunnels.dial("x", 1)
        self.clock.advance(SILENCE)
        self.fleet.made[1].deny(StreamRefused("refused", "second"))
        self.assertNoResult(dialed)
        self.fleet.made[0].deny(StreamRefused("refused", "first"))
        self.assertEqual(str(self.failureResultOf(dialed).value), "first")

    def test_a_silent_node(self) -> None:
        """Another node is tried in parallel; the first one is suspect, and checked at once."""
        self.up(A, B)
        dialed = self.tunnels.dial("x", 1)
        self.clock.advance(SILENCE)
        self.assertEqual(self.status(A).state, "degraded")
        self.assertEqual([tunnel.node for tunnel, _ in self.health.asked], [A])
        self.assertIs(self.fleet.made[1].answer(), self.successResultOf(dialed))
        self.assertEqual(self.fleet.made[0].given_up, 1)
        self.tunnels.dial("y", 1)
        self.assertEqual((len(self.fleet.made[0].dials), len(self.fleet.made[1].dials)), (1, 1))

    def test_we_were_slow(self) -> None:
        """An answer that arrived while this process was stalled is read before the node becomes suspect."""
        self.up(A, B)
        dialed = self.tunnels.dial("x", 1)
        self.clock.callLater(SILENCE + 1, self.fleet.made[0].answer)  # the reactor reads it when it continues
        self.clock.advance(SILENCE + 1)
        self.successResultOf(dialed)
        self.assertEqual(self.status(A).state, "open")
        self.assertEqual((self.health.asked, self.fleet.made[1].dials), ([], []))

    def test_a_slow_node_may_be_first(self) -> None:
        """A node that answers after others were asked is as good, and the others are given up."""
        self.up(A, B)
        dialed = self.tunnels.dial("x", 1)
        self.clock.advance(SILENCE)
        self.assertIs(self.fleet.made[0].answer(), self.successResultOf(dialed))
        self.assertEqual(self.fleet.made[1].given_up, 1)
        self.assertEqual(self.status(A).state, "open")
        self.health.answer()
        self.nothing_is_left()

    def test_a_suspect_is_asked_last(self) -> None:
        """Even by its name; a stream or a check that works clears it."""
        self.up(A, B)
        first = self.tunnels.dial("a", 1)
        self.clock.advance(SILENCE)
        self.fleet.made[1].answer()
        self.successResultOf(first)
        self.tunnels.dial("a", 2)
        self.assertEqual(len(self.fleet.made[1].dials), 1)
        self.health.answer()
        self.tunnels.dial("a", 3)
        self.assertEqual(self.fleet.made[0].dials[-1][1], 3)

    def test_suspects_are_better_than_nothing(self) -> None:
        """If there are no other nodes, suspect ones are used."""
        self.up(A)
        self.tunnels.dial("x", 1).addErrback(lambda _: None)
        self.clock.advance(SILENCE)
        self.tunnels.dial("x", 2)
        self.assertEqual(self.fleet.made[0].dials[-1][1], 2)

    def test_a_refusal_is_an_answer(self) -> None:
        """A refusal is an answer, so the node is not suspect."""
        self.up(A)
        dialed = self.tunnels.dial("x", 1)
        self.clock.advance(SILENCE)
        self.fleet.made[0].deny(StreamRefused("refused", "no"))
        self.failureResultOf(dialed)
        self.assertEqual(self.status(A).state, "open")

    def test_a_dial_that_timed_out(self) -> None:
        """It makes its node suspect."""
        self.up(A)
        dialed = self.tunnels.dial("x", 1)
        self.fleet.made[0].deny(StreamRefused("timeout", "a did not connect to x:1 within 10 s"))
        self.failureResultOf(dialed)
        self.assertEqual(self.status(A).error, "a did not connect to x:1 within 10 s")
        self.assertEqual(len(self.health.asked), 1)

    def test_so_long_in_all(self) -> None:
        """If no node answers, the dial fails in time, and nothing is left."""
        self.up(A, B, C, D)
        dialed = self.tunnels.dial("::1", 1)
        for _ in range(int(TIMEOUT) - 1):
            self.clock.advance(1)
        self.assertNoResult(dialed)
        self.clock.advance(1)
        failure = self.failureResultOf(dialed, StreamRefused)
        self.assertEqual(
            (failure.value.code, str(failure.value)), ("timeout", "[::1]:1: no answer within 15 s")
        )
        self.assertEqual([tunnel.given_up for tunnel in self.fleet.made[:4]], [1, 1, 1, 0])
        self.assertEqual([tunnel.dials[0][2] for tunnel in self.fleet.made[:2]], [NODE_TIMEOUT] * 2)

    def test_cancel(self) -> None:
        """Nothing is left of a cancelled dial."""
        self.up(A, B)
        dialed = self.tunnels.dial("x", 1)
        self.clock.advance(SILENCE)
        self.health.answer()
        dialed.cancel()
        self.failureResultOf(dialed, CancelledError)
        self.assertEqual([tunnel.given_up for tunnel in self.fleet.made], [1, 1])
        self.nothing_is_left()

    def test_a_channel_that_comes_too_late(self) -> None:
        """It is aborted."""
        self.up(A, B)
        dialed = self.tunnels.dial("x", 1)
        late = self.fleet.made[0].dials[0][3]
        late._canceller = lambda _: late.callback(channel)
        channel: Any = self.fleet.made[1]
        channel.aborted = False
        channel.abort = lambda: setattr(channel, "aborted", True)
        dialed.cancel()
        self.failureResultOf(dialed, CancelledError)
        self.assertTrue(channel.aborted)

    def test_no_garbage(self) -> None:
        """A finished dial is freed at once, without the collector, after success or failure."""
        gc.disable()
        self.addCleanup(gc.enable)
        self.tunnels = self.make(health=None)
        self.up(A, B)

        def answered(dialed: Deferred[Any]) -> None:
            next(tunnel for tunnel in self.fleet.made if tunnel.dials).answer()
            self.successResultOf(dialed)

        def refused(dialed: Deferred[Any]) -> None:
            while tunnel := next((tunnel for tunnel in self.fleet.made if tunnel.dials), None):
                tunnel.deny(StreamRefused("refused", "no"))
            self.failureResultOf(dialed, StreamRefused)

        def cancelled(dialed: Deferred[Any]) -> None:
            dialed.cancel()
            self.failureResultOf(dialed, CancelledError)

        def too_late(dialed: Deferred[Any]) -> None:
            for _ in range(int(TIMEOUT)):
                self.clock.advance(1)
            self.failureResultOf(dialed, StreamRefused)

        for end in (answered, refused, cancelled, too_late):
            dialed = self.tunnels.dial("x", 1)
            own = weakref.ref(dialed)
            end(dialed)
            del dialed
            self.assertIsNone(own(), end.__name__)

    def test_the_choice_gets_working_nodes(self) -> None:
        """`choose` gets all nodes that are equally good."""
        seen: list[list[str]] = []

        def choose(places: Sequence[NodeSlot]) -> NodeSlot:
            seen.append([place.node.name for place in places])
            return places[-1]

        self.tunnels = self.make(choose=choose)
        self.up(A, B, C)
        self.tunnels.dial("x", 1)
        self.tunnels.dial("b", 1)
        self.fleet.last(B.host).deny(TunnelLost("gone"))
        self.assertEqual(seen, [["a", "b", "c"], ["b"], ["a", "c"]])

    def test_ipv6(self) -> None:
        """A node is found by its IPv6 address, in brackets or not, however it is written."""
        six = Node("2001:db8::5", name="six")
        self.up(A, six)
        for host in ("2001:db8::5", "[2001:db8::5]", "2001:DB8:0:0::5", "SIX"):
            self.tunnels.dial(host, 10250)
        self.assertEqual(len(self.fleet.last(six.host).dials), 4)
        self.assertEqual(self.fleet.last(six.host).dials[1][0], "2001:db8::5")


class ShowTests(ListCase):
    def test_what_is_shown(self) -> None:
        """A node's line has what its tunnel knows."""
        self.up(A)
        tunnel = self.fleet.made[0]
        tunnel.streams, tunnel.round_trip = 4, 0.25
        self.assertEqual(
            self.tunnels.states(),
            [
                NodeStatus(
                    "a",
                    "192.0.2.1:22",
                    "open",
                    1000.0,
                    host_key="SHA256:192.0.2.1",
                    streams=4,
                    round_trip=0.25,
                )
            ],
        )

    def test_the_key_is_remembered(self) -> None:
        """The fingerprint stays when the tunnel is lost."""
        self.up(A)
        self.fleet.made[0].lose()
        self.assertEqual(self.status(A).host_key, "SHA256:192.0.2.1")

    def test_errors_are_one_short_line(self) -> None:
        """Errors with a far end's text are shortened."""
        self.tunnels.update([A])
        self.fleet.made[0].refuse(ConnectionError("x\ny" + "z" * 5000))
        self.assertEqual(self.status(A).error[:3], "x y")
        self.assertEqual(len(self.status(A).error), 500)

    def test_which_nodes(self) -> None:
        """`states` has all nodes of the list, and whether they have a tunnel."""
        self.tunnels.update([A, B])
        self.fleet.last(A.host).let_in()
        self.assertEqual(self.tunnels.nodes, [A, B])
        self.assertIs(self.tunnels.at(A), self.fleet.last(A.host))
        self.assertIsNone(self.tunnels.at(B))
        self.assertIsNone(self.tunnels.at(C))

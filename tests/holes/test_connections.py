"""Holes 11 to 16 and 28: how tunnels come, are lost without a word, and come back."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import LogLevel, capturedLogs

from tests.fakes.gateway import get
from tests.holes.agentkit import MemoryAgent
from tests.holes.case import HoleTestCase
from tests.holes.machinekit import Line
from tests.holes.towerkit import GOODBYE, KEEPALIVE, UPGRADE, MemoryTower, status_of
from tower.conch.transport.keys import KeyPair

API = b"/clusters/alpha/api"


class SilenceTests(HoleTestCase):
    """Hole 11: nothing is closed, and nothing comes any more."""

    def stop_agent(self, agent: MemoryAgent) -> None:
        """Stop an agent from doing anything."""
        for line in self.tower.lines:
            line.frozen = True
        self.patch(agent, "reach_proxy", lambda: Line.pair()[0])

    def test_hole_11_a_stopped_agent_is_noticed(self) -> None:
        """Hole 11: three keepalives after an agent's last sign of life it is out, and users get errors."""
        self.stop_agent(self.agent())
        jane = self.tower.credential("alpha")
        self.tower.sweep(int(3 * KEEPALIVE) + GOODBYE)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])
        user = self.tower.user()
        self.tower.ask(user, get(API, jane))
        self.tower.sweep(12)
        self.assertEqual(status_of(user.taken()), 503)
        found = self.tower.clusters.require("alpha").condition("AgentAvailable")
        assert found is not None
        self.assertEqual((found.status, found.reason), ("False", "AgentDisconnected"))

    def test_hole_11_no_request_goes_to_a_dead_tunnel(self) -> None:
        """Hole 11: one of two agents is stopped; once that is known every request goes to the other."""
        stopped = self.agent()
        self.stop_agent(stopped)
        self.tower.sweep(5)
        other = self.agent(key=KeyPair.generate())
        self.assertEqual(len(self.tower.tunnels.live("alpha")), 2)
        self.tower.sweep(int(3 * KEEPALIVE) + GOODBYE - 5)
        self.assertEqual(len(self.tower.tunnels.live("alpha")), 1)
        jane = self.tower.credential("alpha")
        for _ in range(10):
            self.through(other, self.tower.user(), API, jane)
        self.assertEqual(stopped.dialed, [])

    def test_hole_11_a_stopped_proxy_is_noticed(self) -> None:
        """Hole 11: an agent with a silent proxy drops the tunnel and dials again."""
        agent = self.agent()
        for line in self.tower.lines:
            line.frozen = True
        self.tower.sweep(int(3 * KEEPALIVE) + GOODBYE + 1)
        self.assertEqual((agent.tries, agent.service.state), (2, "connected"))


class RefusalTests(HoleTestCase):
    """Holes 12 and 13: peers that are refused, stay silent, or disconnect too early."""

    def test_hole_12_refused_agents_leave_nothing(self) -> None:
        """Hole 12: after a hundred refusals both sides have closed each connection and hold nothing."""
        before = self.timers()
        for number in range(100):
            agent = MemoryAgent(self.tower, token=f"tower-{number}").start()
            self.assertIn("rejected this agent for cluster", agent.service.state)
            agent.service.stopService()
            self.tower.pump()
        self.assert_nothing_left(before)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])

    def test_hole_12_silence_has_an_end(self) -> None:
        """Hole 12: a peer that goes silent before it is authenticated is closed within 30 s, at any point."""
        before = self.timers()
        for sent in (
            b"",
            b"GET /age",
            UPGRADE,
            UPGRADE + frame(b"SSH-2.0-x"),
            UPGRADE + frame(b"SSH-2.0-x\r\n"),
        ):
            line = self.tower.line()
            line.receiver = Sink()
            line.resume()
            line.send(sent)
        self.tower.pump()
        self.assertEqual(self.tower.plain.connections + self.tower.endpoint.pending, 5)
        self.tower.sweep(31)
        self.assert_nothing_left(before)

    def test_hole_12_no_limitless_reading(self) -> None:
        """Hole 12: data before an agent's authentication is limited, message, frame and all."""
        before = self.timers()
        for sent in (
            b"GET /agent HTTP/1.1\r\nA: " + b"a" * 100_000,
            UPGRADE + frame(b"x" * 60_000) * 20,
            UPGRADE + b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"\0" * 600_000,
            UPGRADE + frame(b"SSH-2.0-x\r\n" + (300_000).to_bytes(4, "big") + b"\4"),
        ):
            line = self.tower.line()
            line.receiver = Sink()
            line.resume()
            line.send(sent)
            self.tower.pump()
            self.assertTrue(line.gone, sent[:200])
        self.assert_nothing_left(before)

    def test_hole_13_an_end_at_any_point(self) -> None:
        """Hole 13: an agent that goes anywhere between its first byte and its last breaks nothing."""
        token = self.tower.token("alpha", uses=1000)
        before = self.timers()
        limit = 0
        while True:
            limit += 97
            agent = MemoryAgent(self.tower, token=token)
            agent.service.startService()
            whole = self.tower.carry(limit)
            for line in self.tower.lines:
                line.lose()
            agent.service.stopService()
            self.assert_nothing_left(before)
            if whole:
                break
        self.assertGreater(limit, 2000)
        self.assertEqual(self.flushLoggedErrors(), [])


class CrowdTests(HoleTestCase):
    """Hole 14."""

    def test_hole_14_two_hundred_agents_of_one_cluster(self) -> None:
        """Hole 14: 200 agents of one cluster at once are all accepted; the record does not change."""
        token = self.tower.token("alpha", uses=2)
        MemoryAgent(self.tower, token=token).start()
        before = self.tower.clusters.require("alpha")
        agents = [MemoryAgent(self.tower) for _ in range(200)]
        for agent in agents:
            agent.service.startService()
        self.tower.pump()
        self.assertEqual({agent.service.state for agent in agents}, {"connected"})
        self.assertEqual(len(self.tower.tunnels.live("alpha")), 201)
        self.assertIs(self.tower.clusters.require("alpha"), before)
        for agent in agents:
            agent.service.stopService()


class ComingBackTests(HoleTestCase):
    """Holes 15, 16 and 28."""

    def test_hole_15_the_port_outlives_the_agents(self) -> None:
        """Hole 15: the last agent goes and another comes: port and users were there all the time."""
        first = self.agent()
        jane = self.tower.credential("alpha")
        user = self.tower.user(6000)
        self.through(first, user, b"/api", jane)
        first.service.stopService()
        self.tower.sweep(2)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])
        self.tower.ask(user, get(b"/api", jane))  # which waits for any agent
        second = self.agent(key=KeyPair.generate())
        self.assertEqual(len(second.servers), 1)
        self.server(second).deliver(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.tower.pump()
        self.assertEqual(status_of(user.taken()), 200)
        self.assertEqual(self.tower.machine.opened, [(6000, "127.0.0.1")])

    def test_hole_16_no_handshake_error_ends_the_agent(self) -> None:
        """Hole 16: after a wrong proxy, an early end or silence, the agent tries again, until it succeeds."""
        played = [
            None,
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            SWITCHED,
            SWITCHED + b"\x82\x05hello",
            SWITCHED + b"\x82\x11SSH-1.0-too-old\r\n",
            SWITCHED + b"\x82\x0bSSH-2.0-x\r\n\x82\x09\0\0\0\5\4\x14abc",
        ]
        agent = MemoryAgent(self.tower, token=self.tower.token("alpha"))
        self.patch(
            agent, "reach_proxy", lambda: self.impostor(played.pop(0)) if played else self.tower.line()
        )
        with capturedLogs() as events:
            agent.service.startService()
            self.tower.sweep(70)
        self.addCleanup(agent.service.stopService)
        self.assertEqual((agent.gave_up, agent.service.state, played), (0, "connected", []))
        failures = [e for e in events if "attempt {failures} to connect failed" in str(e.get("log_format"))]
        self.assertEqual(agent.service.reconnects["attempt-failed"], 6)
        self.assertEqual(len(failures), 5)  # two are the same error
        self.assertTrue(all(e["log_level"] is LogLevel.warn for e in failures))

    def impostor(self, says: bytes | None) -> Line:
        """Return a connection to something other than a proxy; without an answer it closes."""
        near, far = Line.pair()

        def play() -> None:
            far.lose() if says is None else far.send(says)

        far.receiver = Sink(play)
        far.resume()
        self.tower.lines += [near, far]
        return near

    def test_hole_16_giving_up_is_logged(self) -> None:
        """Hole 16: an agent with a limited number of tries logs that it gives up, and ends with an error."""
        agent = MemoryAgent(self.tower, token="tower-wrong", max_retry=2).start()
        self.tower.sweep(45)
        self.assertEqual((agent.gave_up, agent.tries), (1, 3))

    def test_hole_28_a_restarted_proxy_knows_its_agents(self) -> None:
        """Hole 28: after a crash an enrolled agent connects at its first try: records come before ports."""
        agent = self.agent()
        agent.service.stopService()
        self.tower.pump()
        again = MemoryTower(store=self.tower.store)
        self.addCleanup(again.stop)
        self.assertEqual(list(again.machine.open), [6000])
        late = MemoryAgent(again).start()
        self.addCleanup(late.service.stopService)
        self.assertEqual((late.tries, late.service.state), (1, "connected"))


SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: tower-v2\r\n\r\n"
)


class Sink:
    """A receiver that ignores everything.

    :param play: called when something comes, once.
    """

    def __init__(self, play: Callable[[], None] | None = None) -> None:
        self._play = play

    def received(self, data: memoryview) -> None:
        """Take it."""
        play, self._play = self._play, None
        if play is not None:
            play()

    def ended(self) -> None:
        """No-op."""

    def drained(self) -> None:
        """No-op."""

    def closed(self, reason: Exception) -> None:
        """No-op."""


def frame(payload: bytes) -> bytes:
    """Return a client's frame with *payload*, up to 65535 bytes, under a mask that changes nothing."""
    size = len(payload)
    head = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x82%b\0\0\0\0%b" % (head, payload)

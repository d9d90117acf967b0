"""Attack 4: unfinished heads of a hostile proxy cost an agent little, and for a short time."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tests.fakes.relay import passed, relayed, request
from tests.integration.backends import Backend
from tests.integration.harness import PATIENT
from tests.integration.opening import REQUEST, opening
from tests.integration.programs import LOOPBACK, Program, script, wait_for
from tests.integration.raw_peer import CLOSE, CONFIRM, DATA, END, REFUSE, RawPeer, RawProxy, number
from tower.member.unfinished_heads import CAPACITY, HEAD_TIMEOUT, UNUSED_LIMIT, UnfinishedHeads
from tower.net.budget import Budget

MIB = 2**20
MANY = 2000
HALF = REQUEST[:-2] + b"X-A: " + b"a" * (60_000 - len(REQUEST))
BATCH = 100
GROWTH = 32 * MIB  # that 2,000 half heads may cost
REST = 16 * MIB  # the part of it that may stay
AGAIN = 60.0  # s for the agent to give the rest back


class HeadTests(SynchronousTestCase):
    """The agent's end of streams, in memory."""

    def setUp(self) -> None:
        """Start without streams."""
        self.clock, self.budget = Clock(), Budget(8 * CAPACITY)
        self.unfinished = UnfinishedHeads(self.clock, self.budget)

    def opened(self) -> tuple[FakePipe, FakePipe]:
        """Open a stream; return its channel and the connection to the API server."""
        channel, upstream = FakePipe(), FakePipe()
        relayed(channel, upstream, unfinished=self.unfinished)
        return channel, upstream

    def refused(self, channel: FakePipe, upstream: FakePipe, code: int) -> str:
        """Check that a stream is refused with *code* and releases everything; return the reason."""
        head, _, body = channel.taken().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 %d " % code), head)
        self.assertTrue(channel.finished)
        self.assertTrue(upstream.closing)
        message: str = json.loads(body)["message"]
        return message

    def nothing_left(self) -> None:
        """Check that nothing is kept or waited for."""
        self.assertEqual((self.unfinished.held, self.unfinished.unused, self.budget.lent), (0, 0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cut_head(self) -> None:
        """A head in several pieces is forwarded, and its memory is released."""
        channel, upstream = self.opened()
        wire = request(b"A: b")
        for _ in range(2):
            for at in range(len(wire)):
                channel.deliver(wire[at : at + 1])
                self.assertEqual(self.unfinished.held, (at + 1) % len(wire))
            self.assertEqual(upstream.taken(), passed(b"A: b"))
        self.nothing_left()

    def test_too_slow(self) -> None:
        """A head that is incomplete after 10 s is refused, the first on its stream or a later one."""
        for before in (b"", request()):
            channel, upstream = self.opened()
            channel.deliver(before + HALF)
            self.assertEqual(upstream.taken(), passed() if before else b"")
            self.clock.advance(HEAD_TIMEOUT - 1)
            channel.deliver(b"a")
            self.clock.advance(1)
            self.clock.advance(0)
            self.assertIn("incomplete after 10 s", self.refused(channel, upstream, 408))
            self.nothing_left()

    def test_no_room(self) -> None:
        """Heads without room for them are refused; existing ones continue."""
        streams = [self.opened() for _ in range(CAPACITY // len(HALF) + 3)]
        for channel, _ in streams:
            channel.deliver(HALF)
        self.assertLessEqual(self.unfinished.held, CAPACITY)
        for channel, upstream in streams[-3:]:
            self.assertIn("no memory", self.refused(channel, upstream, 503))
        for channel, upstream in streams[:-3]:
            self.assertEqual(channel.taken(), b"")
            channel.deliver(b"\r\n\r\n")
            self.assertTrue(upstream.taken().startswith(b"GET /ping HTTP/1.1\r\n"))
        self.nothing_left()

    def test_disconnected(self) -> None:
        """A stream that ends, is refused or lost keeps nothing."""
        for end in ("end", "lose"):
            channel, _ = self.opened()
            channel.deliver(HALF)
            getattr(channel, end)()
            self.nothing_left()
        channel, _ = self.opened()
        channel.deliver(b"nonsense\r\n\r\n")
        self.nothing_left()
        self.opened()[0].lose()
        self.nothing_left()


class ProxyTests(SynchronousTestCase):
    """A real agent, whose proxy is the test."""

    def setUp(self) -> None:
        """Start the agent and take its tunnel."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        self.proxy = RawProxy()
        self.addCleanup(self.proxy.close)
        argv = [
            *(script("twistd"), "-n", "--pidfile=", "tower-agent", "--name=alpha", PATIENT),
            f"--proxy-server=ws://{LOOPBACK}:{self.proxy.port}",
            f"--host-key={self.proxy.host_key.fingerprint}",
            f"--state-dir={self.folder / 'agent'}",
            f"--kubeconfig={backend.kubeconfig('alpha')}",
        ]
        self.agent = Program("tower-agent", argv, self.folder)
        self.addCleanup(self.agent.stop)
        self.agent.start()
        self.peer = self.tunnel()
        self.stream(0, REQUEST)
        self.peer.next(DATA)
        self.before = self.agent.memory()

    def tunnel(self) -> RawPeer:
        """Return the agent's next tunnel."""
        peer = self.proxy.accept()
        peer.authenticate()
        self.addCleanup(peer.close)
        return peer

    def stream(self, ours: int, data: bytes) -> int:
        """Open a stream and send on it; return the agent's number of it."""
        (remote,) = self.streams(ours, 1)
        self.peer.data(remote, data)
        return remote

    def streams(self, first: int, count: int) -> list[int]:
        """Open up to *count* streams, as many as the agent accepts; return its numbers of them."""
        for ours in range(first, first + count):
            self.peer.say(opening("kubernetes", MIB, MIB, ours))
        answers = [self.peer.next(CONFIRM, REFUSE) for _ in range(count)]
        return [int.from_bytes(answer[5:9], "big") for answer in answers if answer[0] == CONFIRM]

    def half_heads(self, *, used: bool) -> int:
        """Send half heads on all available streams, either used before or not; count them.

        :return: the agent's peak memory, B.
        """
        most, self.count = 0, 0
        for first in range(1, MANY, BATCH):
            opened = self.streams(first, BATCH)
            for remote in opened:
                if used:
                    self.peer.data(remote, REQUEST)
                    self.peer.next(DATA)
                self.peer.data(remote, HALF)
            self.count += len(opened)
            most = max(most, self.agent.memory())
        deadline = time.monotonic() + HEAD_TIMEOUT / 2
        while time.monotonic() < deadline:
            most = max(most, self.agent.memory())
            time.sleep(0.1)
        return most

    def check_given_back(self) -> None:
        """The agent becomes as small as before, while its tunnel is up, and still works."""
        wait_for(
            "the agent's memory",
            lambda: self.agent.memory() < self.before + REST,
            HEAD_TIMEOUT + AGAIN,
            0.5,
        )
        self.assertLess(self.agent.descriptors(), 100)
        self.assertNotIn("Traceback", self.agent.output())

    def test_unused_streams(self) -> None:
        """2,000 half heads on new streams cost less than 32 MiB, and most of it comes back."""
        most = self.half_heads(used=False)
        self.assertGreaterEqual(self.count, UNUSED_LIMIT)
        self.assertLess(most - self.before, GROWTH)
        self.check_given_back()
        self.assertIn("no memory for more incomplete request heads", self.agent.output())

    def test_used_streams(self) -> None:
        """On streams that were used before, which cost a TLS session each, it all comes back as well."""
        self.half_heads(used=True)
        self.assertEqual(self.count, (MANY - 1) // BATCH * BATCH + BATCH)
        self.check_given_back()

    def test_slow_head(self) -> None:
        """A single half head ends after 10 s; other streams of the tunnel are not concerned."""
        remote = self.stream(1, HALF)
        self.peer.next(DATA)
        self.peer.next(END)
        self.assertIn("incomplete after 10 s", self.agent.output())
        self.peer.say(bytes((CLOSE,)) + number(remote))
        self.stream(2, REQUEST)
        self.assertIn(b"HTTP/1.1 200 ", self.peer.next(DATA))

"""An agent with a hostile proxy."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.backends import Backend
from tests.integration.harness import PATIENT
from tests.integration.neighbours import HealthPage, Neighbour
from tests.integration.opening import MIB, REQUEST, opening
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, script, wait_for
from tests.integration.raw_peer import (
    CONFIRM,
    DATA,
    REFUSE,
    Gone,
    RawPeer,
    RawProxy,
)

CLUSTER = "alpha"


class Bench:
    """One agent for many of these tests, whose proxy is the test.

    :param keepalive: the agent's.
    :ivar full: a listener whose backlog is full.
    """

    def __init__(self, folder: Path, keepalive: str) -> None:
        self.folder = folder
        self._keepalive = keepalive
        self.backend = Backend(folder, CLUSTER)
        self.proxy = RawProxy()
        self.health_port = free_port()
        self.full = socket.create_server((LOOPBACK, 0), backlog=0)
        self.filling = [socket.socket() for _ in range(4)]
        for each in self.filling:
            each.setblocking(False)
            each.connect_ex(self.full.getsockname())

    def start(self) -> None:
        """Start backend and agent."""
        self.backend.start()
        argv = [
            *(script("twistd"), "-n", "--pidfile=", "tower-agent"),
            f"--name={CLUSTER}",
            f"--proxy-server=ws://{LOOPBACK}:{self.proxy.port}",
            f"--host-key={self.proxy.host_key.fingerprint}",
            f"--state-dir={self.folder / 'agent'}",
            f"--kubeconfig={self.backend.kubeconfig(CLUSTER)}",
            f"--health-address={LOOPBACK}:{self.health_port}",
            f"--target=full={LOOPBACK}:{self.full.getsockname()[1]}",
            *(self.backend.target(CLUSTER, kind) for kind in ("raw", "slow")),
            *("--max-retry-interval=0.1s", self._keepalive),
        ]
        self.agent = Program("tower-agent", argv, self.folder)
        self.agent.start()
        self.proxy.accept().close()

    def stop(self) -> None:
        """End all of it."""
        self.agent.stop()
        self.backend.program.stop()
        self.proxy.close()
        for each in (self.full, *self.filling):
            each.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def bench(keepalive: str) -> Bench:
    """Return this run's bench with this option of the agent; it ends with the process."""
    made = Bench(Path(tempfile.mkdtemp(prefix="tower-hostile-")), keepalive)
    owner = os.getpid()
    atexit.register(lambda: made.stop() if os.getpid() == owner else None)
    made.start()
    return made


class HostileProxyTestCase(SynchronousTestCase):
    """Base of the tests with a hostile proxy.

    :cvar keepalive: of the agent.  It is long, so that the agent drops a proxy only because of the proxy's
    messages, not because this process or the agent was slow for a while.
    """

    keepalive = PATIENT

    def setUp(self) -> None:
        """Start to watch: the agent must stay healthy and small."""
        self.bench = bench(self.keepalive)
        self.agent = self.bench.agent
        self.before = len(self.agent.output())
        watching = Neighbour(HealthPage(self.bench.health_port), self.agent)
        watching.__enter__()
        self.addCleanup(self._judge, watching)

    def _judge(self, watching: Neighbour) -> None:
        """The agent is healthy; it reconnects and works."""
        watching.__exit__(None, None, None)
        self.assertTrue(self.agent.running(), self.agent.tail())
        self.assertNotIn("Traceback", self.logged())
        peer = self.accepted()
        self.serve(peer)
        self.before = len(self.agent.output())
        peer.close()
        wait_for("a line about the end", lambda: re.search(r"lost the tunnel to \S+", self.logged()))

    def accepted(self) -> RawPeer:
        """Return the agent's next tunnel, authenticated."""
        while True:
            try:
                peer = self.bench.proxy.accept()
                peer.authenticate()
            except (Gone, ConnectionError):
                continue  # the agent had given this one up before it was accepted
            self.addCleanup(peer.close)
            return peer

    def opened(
        self, peer: RawPeer, target: str = "kubernetes", window: int = MIB, longest: int = MIB, ours: int = 5
    ) -> int:
        """Open a stream; return the agent's number of it."""
        peer.say(opening(target, window, longest, ours))
        answer = peer.next(CONFIRM, REFUSE)
        self.assertEqual(answer[0], CONFIRM, answer)
        return int.from_bytes(answer[5:9], "big")

    def serve(self, peer: RawPeer) -> None:
        """A request gets through."""
        stream = self.opened(peer, ours=77)
        peer.data(stream, REQUEST)
        self.assertIn(b"HTTP/1.1 200 OK\r\n", peer.next(DATA))

    def logged(self) -> str:
        """Return the agent's log since the test began."""
        return self.agent.output()[self.before :]

    def assertDropped(self, peer: RawPeer, reason: str, what: str = "", *, known: bool = True) -> None:
        """The agent closes the connection, and its log line about it matches *reason*, a pattern."""
        with contextlib.suppress(Gone):
            peer.end()
        peer.close()
        line = (
            r"(?:lost the|drained) tunnel to \S+(?: closed)?: (.*)"
            if known
            else r"attempt \d+ to connect failed: (.*)"
        )
        logged = wait_for(f"a line about {what or reason}", lambda: re.findall(line, self.logged()))
        self.assertRegex(logged[-1], reason, what)
        self.before = len(self.agent.output())

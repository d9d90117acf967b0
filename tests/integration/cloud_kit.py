"""Fake cloud servers on loopback, and a node with a real sshd that accepts the cloud's keys."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.protocols.policies import WrappingFactory
from twisted.trial.unittest import SkipTest, TestCase
from twisted.web.resource import IResource
from twisted.web.server import Site

from tests.integration.closed_sockets import sockets_closed
from tests.integration.programs import LOOPBACK
from tests.integration.sshd import SSHD, Sshd, write_key
from tower.cloud.errors import CloudError
from tower.cloud.session import CloudSession
from tower.clusters.node import Node
from tower.net.budget import Budget
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import AnyHostKey
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel

reactor: Any = _reactor

PATIENCE = 120.0  # s for one step
MIB = 1 << 20


class Speaker(Protocol):
    """Sends each client something that is not HTTP, or nothing at all."""

    def __init__(self, words: bytes) -> None:
        self._words = words

    def connectionMade(self) -> None:
        """Send it."""
        if self._words and self.transport is not None:
            self.transport.write(self._words)
            self.transport.loseConnection()


class Service:
    """A web service on its own loopback port that can be killed, replaced, and started again.

    :ivar port: its port, also while it is down.
    """

    def __init__(self) -> None:
        self._listener: IListeningPort | None = None
        self._factory = WrappingFactory(Factory())
        self.port = 0

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://{LOOPBACK}:{self.port}"

    def serve(self, resource: IResource) -> None:
        """Serve *resource*."""
        self._listen(Site(resource))

    def speak(self, words: bytes) -> None:
        """Send *words* to every client; see `Speaker`."""
        self._listen(Factory.forProtocol(lambda: Speaker(words)))

    def _listen(self, factory: Any) -> None:
        self._factory = WrappingFactory(factory)
        self._listener = reactor.listenTCP(self.port, self._factory, interface=LOOPBACK)
        where: Any = self._listener.getHost()
        self.port = where.port

    async def stop(self) -> None:
        """End it, with all its connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            stopping = listener.stopListening()
            if stopping is not None:
                await stopping
        connections: dict[Any, Any] = self._factory.protocols
        for each in list(connections):
            each.transport.abortConnection()
        while connections:
            await deferLater(reactor, 0.01)


class CloudNodeTestCase(TestCase):
    """A service for a fake cloud, one sshd, and two keys: one authorized now, one that the cloud adds later.

    :ivar known: file of the key that the node accepts.
    :ivar fresh: file of the key that is not authorized yet.
    :ivar fresh_line: the public half of *fresh*.
    """

    timeout = 4 * PATIENCE

    def setUp(self) -> None:
        """Start service and node."""
        if SSHD is None:
            raise SkipTest("no OpenSSH server")
        self.addCleanup(sockets_closed)
        self.folder = Path(tempfile.mkdtemp(prefix="tower-cloud-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.known, self.fresh = self.folder / "known", self.folder / "fresh"
        self.known_line, self.fresh_line = write_key(self.known), write_key(self.fresh)
        self.node = Sshd(self.folder / "node", authorized=[self.known_line])
        self.addCleanup(self.node.kill)
        self.node.start()
        self.service = Service()
        self._sessions: list[tuple[CloudSession, dict[str, Any]]] = []
        self.addCleanup(lambda: Deferred.fromCoroutine(self.service.stop()))

    async def accepts(self, key: Path) -> bool:
        """Log in through one of Tower's tunnels; return whether that worked."""
        login = NodeLogin(self.node.user, lambda: ClientKey.load(key), AnyHostKey())
        node = Node(self.node.host, self.node.port)
        tunnel = NodeTunnel(reactor, reactor, node, login, Budget(MIB), epoch=time.time)
        try:
            await tunnel.open().addTimeout(PATIENCE, reactor)
        except OpenFailed:
            return False
        lost = tunnel.lost
        tunnel.close("that is all")
        await lost
        return True

    def asking(self, *, rng: Any = None, **limits: float) -> Callable[[Any], CloudSession]:
        """Return a factory of real sessions, with long limits until `skip_waits` gives them these."""

        def make(reactor: Any) -> CloudSession:
            session = CloudSession(reactor, rng=rng)
            self._sessions.append((session, limits))
            return session

        return make

    def skip_waits(self) -> None:
        """Skip the remaining waits of sessions: from now on no server answers as they want."""
        for session, limits in self._sessions:
            for name, value in limits.items():
                setattr(session, f"_{name}", value)

    async def fails(self, ask: Callable[[], Awaitable[object]], within: float) -> str:
        """Return the text of the error that *ask* raises in time."""
        started = time.monotonic()
        try:
            await ask()
        except CloudError as e:
            self.assertLess(time.monotonic() - started, within)
            return str(e)
        raise AssertionError("it did not fail")

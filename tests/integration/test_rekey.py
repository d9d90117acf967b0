"""Keys change every MiB while a GiB goes in each direction, over real sockets, with each cipher."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, DeferredList
from twisted.trial.unittest import TestCase

from tests.integration.closed_sockets import sockets_closed
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.budget import Budget
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.v2.hello import AgentHello
from tower.v2.transport import ClientTransport, ServerTransport
from tower.v2.userauth import Gatekeeper
from tower.websocket.frames import FrameReader, FrameWriter

reactor: Any = installed

#: In each direction, B.
SIZE = 1 << 30
LIMITS = TransportLimits(rekey_bytes=1 << 20)
TIMEOUT = 1800.0
BLOCK = os.urandom(1 << 20)


class AcceptingGatekeeper(Gatekeeper):
    """Lets every key in."""

    def __init__(self) -> None:
        """It has no records."""

    def is_enrolled(self, cluster: str, fingerprint: str) -> bool:
        """Return true."""
        return True

    async def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> None:
        """Never needed."""


class Side:
    """Sends a number of blocks on a channel and digests the received bytes.

    :ivar done: fires with the digest and the size of the received bytes, once the peer has ended.
    """

    def __init__(self, channel: Channel, size: int) -> None:
        self._channel = channel
        self._left = size
        self._digest = hashlib.sha256()
        self._size = 0
        self.done: Deferred[tuple[bytes, int]] = Deferred()
        channel.receiver = self
        channel.resume()
        self.drained()

    def drained(self) -> None:
        """Send as much as the channel takes."""
        while self._left:
            self._left -= len(BLOCK)
            if not self._channel.send(BLOCK):
                return
        self._channel.finish()

    def received(self, data: memoryview) -> None:
        """Digest."""
        self._digest.update(data)
        self._size += len(data)

    def ended(self) -> None:
        """Report."""
        self.done.callback((self._digest.digest(), self._size))

    def closed(self, reason: Exception) -> None:
        """Report, if the end did not come first."""
        if not self.done.called:
            self.done.errback(reason)


class RekeyTests(TestCase):
    """A pair of tunnels over loopback."""

    timeout = TIMEOUT

    def _tunnel(self, cipher: bytes, connection: Connection, *, server: bool) -> tuple[SSHTunnel, Any]:
        ssh: Any
        if server:
            ssh = ServerTransport(reactor, [self.key], AcceptingGatekeeper(), limits=LIMITS)
        else:
            ssh = ClientTransport(
                reactor,
                KeyPair.generate(),
                "alpha",
                [self.key.fingerprint],
                AgentHello(version="test"),
                limits=LIMITS,
            )
        ssh.supportedCiphers = [cipher]
        reader, writer = FrameReader(from_client=server), FrameWriter(to_server=not server)
        return SSHTunnel(reactor, connection, ssh, reader, writer), ssh

    async def _pair(self, cipher: bytes) -> tuple[SSHTunnel, Deferred[Channel]]:
        """Return the proxy's end of an open tunnel, and the next channel at the agent's."""
        self.addCleanup(sockets_closed)
        self.key = KeyPair.generate()
        accepted: Deferred[Connection] = Deferred()
        opened: Deferred[Channel] = Deferred()

        def accept(connection: Connection) -> None:
            connection.pause()
            accepted.callback(connection)

        port = listen(reactor, 0, "127.0.0.1", lambda c: _Later(c, accept))
        self.addCleanup(port.stopListening)
        near = await connect(reactor, "127.0.0.1", port.getHost().port)  # type: ignore[attr-defined]
        far = await accepted
        agent, agent_ssh = self._tunnel(cipher, near, server=False)
        proxy, proxy_ssh = self._tunnel(cipher, far, server=True)

        def take(incoming: Incoming) -> None:
            opened.callback(incoming.accept())

        budget = Budget(32 << 20)
        for tunnel, ssh, answer in ((agent, agent_ssh, take), (proxy, proxy_ssh, None)):
            ssh.ready.addCallback(
                lambda _, tunnel=tunnel, answer=answer: tunnel.open_up("alpha", "", "", 0.0, budget, answer)
            )
            tunnel.start()
        await DeferredList([agent_ssh.ready, proxy_ssh.ready])
        self.ssh = proxy_ssh
        self.ends = [agent, proxy]
        return proxy, opened

    async def _exchange(self, cipher: bytes) -> None:
        size = SIZE
        proxy, opened = await self._pair(cipher)
        changes = [0]
        on_keys = self.ssh.on_keys

        def count() -> None:
            changes[0] += 1
            on_keys()

        self.ssh.on_keys = count
        near = Side(await proxy.open("anything"), size)
        far = Side(await opened, size)
        digest = hashlib.sha256()
        for _ in range(size // len(BLOCK)):
            digest.update(BLOCK)
        for side in (near, far):
            self.assertEqual(await side.done, (digest.digest(), size))
        # one exchange serves both directions, and what is in flight when it begins still uses the old keys
        self.assertGreater(changes[0], size / (8 << 20))
        for tunnel in self.ends:
            tunnel.close("done")
        await DeferredList([tunnel.lost for tunnel in self.ends])

    def test_aes128_gcm(self) -> Deferred[None]:
        """aes128-gcm@openssh.com."""
        return Deferred.fromCoroutine(self._exchange(CIPHERS[0]))

    def test_aes256_gcm(self) -> Deferred[None]:
        """aes256-gcm@openssh.com."""
        return Deferred.fromCoroutine(self._exchange(CIPHERS[1]))

    def test_chacha20_poly1305(self) -> Deferred[None]:
        """chacha20-poly1305@openssh.com."""
        return Deferred.fromCoroutine(self._exchange(CIPHERS[2]))


class _Later:
    """Receiver of an accepted connection that hands it on from its first moment, paused."""

    def __init__(self, connection: Connection, accept: Any) -> None:
        reactor.callLater(0, accept, connection)

    def received(self, data: memoryview) -> None:
        """Never called: the client waits for its tunnel."""

    def ended(self) -> None:
        """No-op."""

    def drained(self) -> None:
        """No-op."""

    def closed(self, reason: Exception) -> None:
        """No-op."""

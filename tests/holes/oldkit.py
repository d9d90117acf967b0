"""An agent of kubesphere-v1 in memory, as the deployed Go program behaves, and an API server behind it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from tests.fakes.certificates import DAY, authority
from tests.fakes.v1_pairs import OldAgent
from tests.holes.agentkit import Handshake
from tests.holes.machinekit import Line
from tests.holes.towerkit import AGENT_TOKEN, UPGRADE, MemoryTower
from tower.conch.connection.channel_open import Incoming
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.budget import Budget
from tower.net.pipes import Pipe
from tower.net.tls.client_certificate import load_pair
from tower.v1.config import CONFIG, AgentConfig
from tower.websocket.frames import FrameReader, FrameWriter

#: Address of the API server in the agent's config.
KUBERNETES = "10.96.0.1:443"
KUBESPHERE = "ks-apiserver.kubesphere-system.svc"

AUTHORITY = authority("member", lifetime=DAY, now=time.time())


@cache
def _server_context(name: str) -> ssl.SSLContext:
    issued = AUTHORITY.server_certificate([name], DAY, time.time())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, issued.certificate_pem, issued.key_pem)
    return context


class SecureServer:
    """An API server with TLS at the end of a channel.

    :param name: in its certificate.
    :ivar asked: what it was asked, decrypted.
    :ivar finished: whether the proxy has ended its side.
    :ivar lost: whether the channel is closed.
    """

    def __init__(self, name: str = "10.96.0.1") -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _server_context(name).wrap_bio(self._in, self._out, server_side=True)
        self._pipe: Pipe | None = None
        self._secure = False
        self.asked = bytearray()
        self.finished = self.lost = False

    def serve(self, pipe: Pipe) -> None:
        """Become the receiver of the agent's channel."""
        self._pipe = pipe
        pipe.receiver = self
        pipe.resume()

    def received(self, data: memoryview) -> None:
        """Decrypt."""
        self._in.write(data)
        try:
            if not self._secure:
                self._tls.do_handshake()
                self._secure = True
            while piece := self._tls.read(1 << 16):
                self.asked += piece
            self.finished = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.finished = True
        except ssl.SSLError:
            self.lose()  # the proxy does not take us for the right one
        self._flush()

    def _flush(self) -> None:
        assert self._pipe is not None
        if self._out.pending:
            self._pipe.send(self._out.read())

    def taken(self) -> bytes:
        """Return what was asked since the last call."""
        data, self.asked = bytes(self.asked), bytearray()
        return data

    def deliver(self, data: bytes) -> None:
        """Answer."""
        self._tls.write(data)
        self._flush()

    def lose(self) -> None:
        """Close the connection, as the agent then closes the channel."""
        assert self._pipe is not None
        self._pipe.close()

    def ended(self) -> None:
        """Do nothing: the end of TLS is what counts."""

    def drained(self) -> None:
        """There is room."""

    def closed(self, reason: Exception) -> None:
        """Record it."""
        self.lost = True


class _Copy:
    """One half of Go's relay: the first end closes both."""

    def __init__(self, own: Pipe, other: Any) -> None:
        self._own, self._other = own, other

    def received(self, data: memoryview) -> None:
        """Copy."""
        self._other.send(data)

    def ended(self) -> None:
        """Close both."""
        self._own.close()
        self._other.close()

    def drained(self) -> None:
        """There is room."""

    def closed(self, reason: Exception) -> None:
        """Close the other."""
        self._other.close()


class _Client(OldAgent):
    """Sends its config when it is authenticated.

    :ivar answer: of the proxy.
    """

    def __init__(self, clock: Any, config: bytes) -> None:
        super().__init__(clock)
        self._config = config
        self.answer: Deferred[bytes] = Deferred()

    def start_connection(self) -> None:
        """Send the config."""
        super().start_connection()
        self.request(CONFIG, self._config).chainDeferred(self.answer)


class MemoryOldAgent:
    """One connection of an old agent.

    :param config: sent in place of a good config.
    :ivar dialed: what it was asked to dial.
    :ivar servers: what it reached.
    :ivar reach: makes what it reaches: a `SecureServer`, a `tests.fakes.pipes.FakePipe`, or an error.
    :ivar refused: the text with which it was refused, as it reads it; None while there is none.
    :ivar registered: whether it takes itself for connected.
    """

    def __init__(self, tower: MemoryTower, config: bytes | None = None, **changes: Any) -> None:
        self._tower = tower
        good = AgentConfig(
            version="v0.2.1",
            name="alpha",
            kubernetes=KUBERNETES,
            kubesphere=KUBESPHERE,
            authority=AUTHORITY.pem,
            bearer=AGENT_TOKEN.encode(),
        )
        self.config = evolve(good, **changes)
        self.dialed: list[str] = []
        self.servers: list[Any] = []
        self.reach: Callable[[], Any] = SecureServer
        self.refused: str | None = None
        self.registered = False
        self.ssh = _Client(tower.machine, self.config.encode() if config is None else config)
        self.line: Line = tower.line()
        self.tunnel = SSHTunnel(
            tower.machine, self.line, self.ssh, FrameReader(from_client=False), FrameWriter(to_server=True)
        )
        self.ssh.answer.addCallbacks(self._answered, self._not_answered)
        self.tunnel.lost.addErrback(lambda _: None)

    def start(self) -> MemoryOldAgent:
        """Connect."""
        handshake = Handshake(self.line)
        handshake.done.addCallbacks(lambda opened: self.tunnel.start(opened[1]), lambda _: None)
        self.line.receiver = handshake
        self.line.resume()
        self.line.send(UPGRADE.replace(b"tower-v2", b"kubesphere-v1"))
        self._tower.pump()
        return self

    @property
    def gone(self) -> bool:
        """Whether the connection is closed."""
        return self.line.gone

    def _answered(self, reply: bytes) -> None:
        """Judge as the Go agent does: a text is an error, in any message."""
        if reply:
            self.refused = reply.decode()
            return
        self.registered = True
        self.tunnel.open_up("alpha", "", "", 0.0, Budget(32 << 20), self._accept)

    def _not_answered(self, failure: Any) -> None:
        if hasattr(failure.value, "reply"):
            self._answered(failure.value.reply)

    def _accept(self, incoming: Incoming) -> None:
        """Accept any channel, then dial; if the dial fails, close it."""
        channel = incoming.accept()
        self.dialed.append(incoming.data.decode())
        try:
            server = self.reach()
        except OSError:
            channel.receiver = _Copy(channel, channel)
            channel.resume()
            channel.close()
            return
        self.servers.append(server)
        if isinstance(server, SecureServer):
            server.serve(channel)
            return
        server.receiver, channel.receiver = _Copy(server, channel), _Copy(channel, server)
        server.resume()
        channel.resume()

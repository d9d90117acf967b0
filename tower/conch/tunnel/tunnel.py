"""A live tunnel: a connection, the frames on it, SSH packets in them, and the channels of SSH."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, fail

from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.connection.liveness import LivenessTransport
from tower.conch.connection.mux import Mux
from tower.conch.connection.traffic import Traffic
from tower.conch.transport.packet_transport import do_nothing
from tower.conch.tunnel.framing import Reader, Writer
from tower.conch.tunnel.inlet import Inlet
from tower.conch.tunnel.outlet import Outlet
from tower.errors import TunnelLost
from tower.net.budget import Budget
from tower.net.pipes import Pipe
from tower.reactor.timers import Clock

#: Type of the channels to a target; the target's name follows as an SSH string.
STREAM = b"stream@tower.kubesphere.io"


class SSHTunnel:
    """One end of a tunnel: create it, `start` it, and call `open_up` once the peer is authenticated.

    :param reactor: see `tower.conch.tunnel.outlet.Outlet`.
    :param pipe: the connection, paused.
    :ivar host: name of the agent's host or pod; empty if unknown.
    :ivar server: the agent's name for its API server; see `tower.v2.hello.AgentHello`.
    :ivar since: when the tunnel opened, s since the epoch.
    :ivar member_status: the state of the API server that the peer reported; None: none so far.
    :ivar request_check: requests that the peer checks its API server now; no-op if it does not support this.
    :ivar draining: whether the peer will soon close, so that new streams need another tunnel.
    :ivar lost: fires with the reason when the tunnel is lost.
    """

    __slots__ = (
        "__weakref__",
        "_over",
        "_pipe",
        "_ssh",
        "draining",
        "fingerprint",
        "host",
        "inlet",
        "lost",
        "member_status",
        "mux",
        "name",
        "on_change",
        "outlet",
        "peer",
        "request_check",
        "server",
        "since",
        "version",
    )

    #: The protocol of both ends.
    protocol: ClassVar[str] = "tower-v2"

    #: The peer checks its API server; see `tower.tunnels.live.Tunnel`.
    check_member: ClassVar[None] = None

    def __init__(
        self, reactor: Clock, pipe: Pipe, ssh: LivenessTransport, reader: Reader, writer: Writer
    ) -> None:
        self._pipe = pipe
        self._ssh = ssh
        self.outlet = Outlet(reactor, pipe, ssh, writer)
        self.inlet = Inlet(ssh, reader, self.outlet)
        self.mux: Mux | None = None
        self._over = False
        self.name = self.fingerprint = self.host = self.version = ""
        self.server = b""
        self.since = 0.0
        self.draining = False
        self.member_status: Any = None
        self.on_change: Callable[[], None] = do_nothing
        self.request_check: Callable[[], None] = do_nothing
        self.lost: Deferred[Exception] = Deferred()
        address = pipe.getPeer() if hasattr(pipe, "getPeer") else None
        self.peer = f"{address.host}:{address.port}" if address is not None else ""

    def start(self, leftover: bytes = b"") -> None:
        """Begin the SSH handshake; *leftover* was received on the connection before."""
        ssh, outlet = self._ssh, self.outlet
        ssh.lost.addCallback(self._lost)
        ssh.on_exchange, ssh.on_keys = outlet.exchange_begins, outlet.exchange_ends
        ssh.on_drain = self._peer_drains
        self._pipe.receiver = self.inlet
        ssh.makeConnection(outlet)
        if leftover and not self._over:
            self.inlet.received(memoryview(bytearray(leftover)))
        self._pipe.resume()

    def open_up(
        self,
        name: str,
        fingerprint: str,
        version: str,
        since: float,
        budget: Budget,
        accept: Callable[[Incoming], None] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """Take over the parsing from SSH, whose peer is authenticated, and carry streams.

        :param accept: decides about streams that the peer opens; None refuses all.
        :param traffic: counts the streams.
        """
        self.name, self.fingerprint, self.version, self.since = name, fingerprint, version, since
        self.mux = self.outlet.mux = mux = Mux(
            self.outlet, budget, owner=self, accept=accept, traffic=traffic
        )
        self.inlet.open_up(mux)

    # Streams

    def rewrite_for(self, target: str) -> None:
        """Rewrite no request heads: the agent does."""

    def open(self, target: str) -> Deferred[Channel]:
        """Open a stream to *target*; see `tower.conch.connection.mux.Mux.open`."""
        data = target.encode()
        return self.open_channel(STREAM, len(data).to_bytes(4, "big") + data)

    def open_channel(self, kind: bytes, data: bytes) -> Deferred[Channel]:
        """Open a channel of any type; see `tower.conch.connection.mux.Mux.open`."""
        if self.mux is None or self.outlet.disconnecting:
            return fail(TunnelLost("the tunnel is closed"))
        return self.mux.open(kind, data)

    def request(self, name: bytes, data: bytes) -> Deferred[bytes]:
        """Send a global request; see `tower.conch.connection.global_requests.ConnectionService.request`."""
        return self._ssh.request(name, data)

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return 0 if self.mux is None else len(self.mux.channels)

    @property
    def round_trip(self) -> float:
        """To the peer, s; 0 until it is measured."""
        return self.outlet.round_trip

    @property
    def bytes_in(self) -> int:
        """Bytes received on the connection."""
        return self.inlet.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes sent on the connection."""
        return self.outlet.bytes_out

    def nudge(self) -> None:
        """Send the peer a probe, which it answers at once."""
        if not self._over:
            self._ssh.nudge()

    # Ends

    def drain(self) -> None:
        """Announce to the peer that we will soon close, so that it stops opening streams."""
        self._ssh.drain()

    def _peer_drains(self) -> None:
        if not self.draining:  # a peer may repeat it
            self.draining = True
            self.on_change()

    def close(self, reason: str) -> None:
        """Close with a message to the peer that has the reason."""
        self._ssh.close(reason)

    def abort(self) -> None:
        """Close the connection now."""
        self.outlet.abortConnection()

    def _lost(self, reason: Exception) -> None:
        self._over = True
        self.inlet.lost()
        self.outlet.lost()
        mux, self.mux = self.mux, None
        if mux is not None:
            mux.lost(reason)
        self.on_change = do_nothing  # drops a reference to us
        self.lost.callback(reason)

"""Every kind of pipe is held to the contract in `tests.net.pipe_contract`."""

from __future__ import annotations

import socket
import ssl

from tests.fakes.muxes import MuxPair
from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tests.fakes.sockets import HOST, SocketReactor, client_context, server_context, socket_pair, take
from tests.fakes.tls_pipes import Ends
from tests.fakes.tunnel_pairs import TunnelPair
from tests.net import pipe_contract
from tower.net.connection import Connection
from tower.net.pipes import Pipe
from tower.net.tls.connection import TLSConnection


class ConnectionTests(pipe_contract.PipeContract):
    """A socket."""

    far: socket.socket

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        self.reactor = SocketReactor()
        near, self.far = socket_pair(1)
        self.addCleanup(self.far.close)
        connection = Connection(self.reactor, near)
        self.addCleanup(connection.abort)
        connection.receiver = self.recorder
        connection.resume()
        return connection

    def carry(self) -> None:
        """See `PipeContract`."""
        self.reactor.run(lambda: bool(take(self.far)))

    def part(self) -> None:
        """See `PipeContract`."""
        self.far.close()

    def rest(self) -> None:
        """See `PipeContract`."""
        self.reactor.run()
        self.pipe.close()  # one that is half closed waits for that


class TLSConnectionTests(pipe_contract.PipeContract):
    """A socket with TLS inside."""

    version = ssl.TLSVersion.TLSv1_3

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        self.reactor = SocketReactor()
        near, far = socket_pair(1)
        client = TLSConnection(self.reactor, near, client_context(), server_side=False, server_hostname=HOST)
        self.far = TLSConnection(self.reactor, far, server_context(self.version))
        for end, receiver in ((client, self.recorder), (self.far, Recorder())):
            self.addCleanup(end.abort)
            end.receiver = receiver
        self.reactor.run()
        client.resume()
        return client

    def carry(self) -> None:
        """See `PipeContract`."""
        self.far.resume()
        self.reactor.run()

    def part(self) -> None:
        """See `PipeContract`."""
        self.far.abort()

    def rest(self) -> None:
        """See `PipeContract`."""
        self.reactor.run()


class OlderTLSConnectionTests(TLSConnectionTests):
    """The same with TLS 1.2."""

    version = ssl.TLSVersion.TLSv1_2


class ChannelTests(pipe_contract.PipeContract):
    """A channel that the peer closes with unread bytes in transit."""

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        self.muxes = MuxPair()
        near, self.far = self.muxes.open(self.recorder, Recorder())
        self.far.pause()
        return near

    def carry(self) -> None:
        """See `PipeContract`."""
        self.muxes.pump()
        self.far.resume()
        self.muxes.pump()

    def part(self) -> None:
        """See `PipeContract`."""
        self.pipe.pause()
        self.far.send(b"the last words")
        self.far.abort()
        self.muxes.pump()

    def rest(self) -> None:
        """See `PipeContract`."""
        self.pipe.resume()
        self.muxes.pump()


class WaitingChannelTests(ChannelTests):
    """The same where it is the tunnel that is full, so that the channel waits for its turn."""

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        pipe = super().connect()
        self.muxes.near.wire.room = 1000
        return pipe

    def carry(self) -> None:
        """See `PipeContract`."""
        self.muxes.near.relieve()
        super().carry()

    def rest(self) -> None:
        """See `PipeContract`."""
        self.muxes.near.relieve()
        super().rest()


class LostChannelTests(ChannelTests):
    """A channel whose tunnel goes under it, from within a send."""

    def part(self) -> None:
        """See `PipeContract`."""
        wire, mux = self.muxes.near.wire, self.muxes.near.mux
        wire.send = lambda payload: self.lose()  # type: ignore[method-assign]
        wire.commit = lambda size: self.lose()  # type: ignore[method-assign]
        self.mux = mux

    def lose(self) -> None:
        """Lose it."""
        self.muxes.near.wire.room = 0
        self.mux.lost(ConnectionError("cut"))

    def rest(self) -> None:
        """See `PipeContract`."""
        self.lose()


class TunnelTests(pipe_contract.PipeContract):
    """A channel in a whole tunnel whose connection breaks, and is still listened to."""

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        self.pair = TunnelPair()
        channel, self.far = self.pair.channel(self.recorder, Recorder())
        self.far.pause()
        return channel

    def carry(self) -> None:
        """See `PipeContract`."""
        self.pair.pump()
        self.far.resume()
        self.pair.pump()

    def part(self) -> None:
        """See `PipeContract`."""
        self.pair.proxy.pipe.broken = True

    def rest(self) -> None:
        """See `PipeContract`."""
        self.pair.proxy.pipe.lose()


class ClosingTunnelTests(TunnelTests):
    """A channel in a tunnel that is about to end, once its connection has sent what it has."""

    def part(self) -> None:
        """See `PipeContract`."""
        self.pair.proxy.tunnel.close("we go")


class TLSPipeTests(pipe_contract.PipeContract, Ends):
    """TLS in a channel that the peer closes with unread bytes in transit."""

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        pipe, self.server = self.secured(self.recorder)
        self.server.channel.pause()
        return pipe

    def carry(self) -> None:
        """See `PipeContract`."""
        self.muxes.pump()
        self.server.channel.resume()
        self.muxes.pump()

    def part(self) -> None:
        """See `PipeContract`."""
        self.pipe.pause()
        self.server.send(b"the last words")
        self.server.channel.abort()
        self.muxes.pump()

    def rest(self) -> None:
        """See `PipeContract`."""
        self.pipe.resume()
        self.muxes.pump()


class MemoryTests(pipe_contract.PipeContract):
    """The pipe that other tests have."""

    def connect(self) -> Pipe:
        """See `PipeContract`."""
        pipe = FakePipe()
        pipe.full = True
        pipe.receiver = self.recorder
        pipe.resume()
        return pipe

    def carry(self) -> None:
        """See `PipeContract`."""
        if self.pipe.closing:
            self.pipe.lose()
        elif not self.pipe.lost:
            self.pipe.drain()

    def part(self) -> None:
        """See `PipeContract`."""
        self.pipe.broken = True

    def rest(self) -> None:
        """See `PipeContract`."""
        self.pipe.lose()

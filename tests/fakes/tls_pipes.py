"""TLS in a channel of two muxes that are joined in memory, and an API server at its far end."""

from __future__ import annotations

import ssl

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.muxes import KIND, MuxPair
from tests.fakes.receivers import Recorder
from tests.fakes.sockets import HOST, client_context, server_context
from tower.conch.connection.channel import Channel
from tower.net.connecting import ConnectFailed
from tower.net.tls.session import PIECE, TLSEnded, TLSSession
from tower.tunnels.tls_handshake import TLSHandshake
from tower.tunnels.tls_pipe import TLSPipe

#: Those in which tickets come with the handshake, and behind it.
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Server:
    """The API server's end: TLS by hand on a channel; it reads all that comes.

    :ivar got: what it read.
    :ivar has_ended: whether the client has ended its side.
    :ivar pieces: how many pieces came on the channel.
    :ivar alert: what the client had against it.
    :ivar lost: why the channel went.
    """

    def __init__(self, channel: Channel, version: ssl.TLSVersion) -> None:
        self.channel = channel
        self.session = TLSSession(server_context(version), server_side=True)
        self.got = bytearray()
        self.is_ready = self.has_ended = False
        self.pieces = 0
        self.alert = ""
        self.lost: Exception | None = None
        channel.receiver = self

    def received(self, data: memoryview) -> None:
        """Take cipher text."""
        self.pieces += 1
        try:
            self._take(data)
        except ssl.SSLError as e:
            self.alert = e.reason

    def _take(self, data: memoryview) -> None:
        self.session.feed(memoryview(bytes(data)))
        if not self.is_ready:
            self.is_ready = self.session.handshake()
            self.channel.send(self.session.take())
        if self.is_ready and not self.has_ended:
            buffer = memoryview(bytearray(1 << 20))
            try:
                while count := self.session.read_into(buffer):
                    self.got += buffer[:count]
            except TLSEnded:
                self.has_ended = True

    def ended(self) -> None:
        """There is no EOF of the channel."""
        raise AssertionError("an old agent would close both ways")

    def drained(self) -> None:
        """No-op."""

    def closed(self, reason: Exception) -> None:
        """Record the close."""
        self.lost = reason

    def send(self, data: bytes) -> None:
        """Send all of it."""
        for start in range(0, len(data), PIECE):
            self.channel.send(self.session.encrypt(data[start : start + PIECE]))

    def end(self) -> None:
        """End the server's side."""
        self.channel.send(self.session.end())


class Ends(SynchronousTestCase):
    """A pipe, and the server at the far end of its channel."""

    def setUp(self) -> None:
        """Create two muxes."""
        self.muxes = MuxPair()
        self.clock = Clock()

    def open(
        self,
        *,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        context: ssl.SSLContext | None = None,
    ) -> tuple[TLSHandshake, Server]:
        """Return both, before the handshake."""
        near, far = self.channels()
        server = Server(far, version)
        far.resume()
        return TLSHandshake(near, context or client_context(), HOST, self.clock), server

    def channels(self) -> tuple[Channel, Channel]:
        """Return both ends of a channel, paused, without receivers."""
        opening = self.muxes.near.mux.open(KIND, b"")
        self.muxes.pump()
        far = self.muxes.far.incoming.pop().accept()
        self.muxes.pump()
        return self.successResultOf(opening), far

    def secured(
        self, recorder: Recorder, *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> tuple[TLSPipe, Server]:
        """Return both after the handshake; the pipe is resumed."""
        handshake, server = self.open(version=version)
        self.muxes.pump()
        pipe = self.successResultOf(handshake.secured)
        pipe.receiver = recorder
        pipe.resume()
        return pipe, server

    def failure(self, handshake: TLSHandshake) -> ConnectFailed:
        """Return why there is no TLS; nothing is left of it."""
        self.muxes.pump()
        error = self.failureResultOf(handshake.secured, ConnectFailed).value
        self.assertEqual((self.clock.getDelayedCalls(), self.muxes.near.mux.channels), ([], {}))
        assert isinstance(error, ConnectFailed)
        return error

"""Tests of `tower.net.lingering_close`, on socket pairs."""

from __future__ import annotations

import socket

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.sockets import SocketReactor, socket_pair, take
from tower.net.lingering_close import LINGER, Lingering


class LingeringTests(SynchronousTestCase):
    """Lingering."""

    def setUp(self) -> None:
        """Make a lingering socket and its far end."""
        self.reactor = SocketReactor()
        near, self.far = socket_pair()
        self.addCleanup(self.far.close)
        near.shutdown(socket.SHUT_WR)
        self.socket = near
        self.lingering = Lingering(self.reactor, near)

    def assert_gone(self) -> None:
        """The socket is closed and nothing is left behind."""
        self.assertEqual((self.socket.fileno(), self.lingering.fileno()), (-1, -1))
        self.assertEqual((self.reactor.readers, self.reactor.getDelayedCalls()), ([], []))

    def test_until_the_end(self) -> None:
        """Received bytes are discarded, without a reset, until the peer's end."""
        self.lingering.doRead()
        self.far.sendall(b"still talking")
        self.reactor.run()
        self.assertEqual(take(self.far), b"")
        self.assertEqual(self.reactor.readers, [self.lingering])
        self.far.close()
        self.reactor.run()
        self.assert_gone()

    def test_not_for_ever(self) -> None:
        """A peer that never ends is left alone after a while."""
        self.reactor.advance(LINGER - 0.1)
        self.assertEqual(self.reactor.readers, [self.lingering])
        self.reactor.advance(0.2)
        self.assert_gone()

    def test_reset(self) -> None:
        """A peer that resets the connection ends the wait."""
        near, far = socket.socketpair()
        near.setblocking(False)
        near.sendall(b"unread")
        near.shutdown(socket.SHUT_WR)
        self.lingering.connectionLost(Failure(ConnectionLost()))
        self.socket, self.lingering = near, Lingering(self.reactor, near)
        far.close()
        self.reactor.run()
        self.assert_gone()

    def test_reactor_stops(self) -> None:
        """The reactor can drop the descriptor, once or twice."""
        self.assertEqual(self.lingering.logPrefix(), "closed connection")
        for _ in range(2):
            self.lingering.connectionLost(Failure(ConnectionLost()))
        self.assert_gone()

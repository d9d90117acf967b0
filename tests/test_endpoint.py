"""Tests of `tower.endpoint.TunnelEndpoint`: Twisted's clients through a tunnel in memory."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.fakes.receivers import Recorder
from tests.fakes.tunnel_pairs import TunnelPair
from tests.fakes.tunnels import FakeTunnel
from tower.endpoint import TunnelEndpoint
from tower.tunnels import Tunnels


class Recording(Protocol):
    """Records its input."""

    got = b""
    lost = False

    def dataReceived(self, data: bytes) -> None:
        """See Protocol."""
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See Protocol."""
        self.lost = True


class TunnelEndpointTests(SynchronousTestCase):
    """Connects protocols to targets."""

    def setUp(self) -> None:
        """Make a tunnel of the cluster alpha."""
        self.pair = TunnelPair()
        self.tunnels = Tunnels(self.pair.clock, self.pair.clock.seconds)
        self.tunnels.add(self.pair.proxy.tunnel)
        self.endpoint = TunnelEndpoint(self.tunnels, "alpha", "postgres")
        self.factory = Factory.forProtocol(Recording)

    def test_interface(self) -> None:
        """It is an endpoint."""
        self.assertTrue(verifyObject(IStreamClientEndpoint, self.endpoint))

    def test_connect(self) -> None:
        """The protocol talks to the target; its end is the stream's."""
        connecting = self.endpoint.connect(self.factory)
        self.pair.pump()
        incoming = self.pair.agent.incoming.pop()
        self.assertEqual(incoming.data, b"\0\0\0\x08postgres")
        channel = incoming.accept()
        channel.receiver = recorder = Recorder()
        channel.resume()
        channel.send(b"welcome")
        self.pair.pump()
        protocol = cast(Recording, self.successResultOf(connecting))
        self.assertEqual(protocol.got, b"welcome")
        assert protocol.transport is not None
        protocol.transport.write(b"thanks")
        protocol.transport.loseConnection()
        self.pair.pump()
        self.assertEqual((recorder.got, recorder.log), (b"thanks", ["received", "closed"]))
        self.assertTrue(protocol.lost)

    def test_refused(self) -> None:
        """The error has the agent's reason."""
        connecting = self.endpoint.connect(self.factory)
        self.pair.pump()
        self.pair.agent.incoming.pop().refuse("no-such-target", "there is no target postgres")
        self.pair.pump()
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertIn("there is no target postgres", str(error))

    def test_tunnel_lost(self) -> None:
        """A tunnel that goes in between is an error too."""
        connecting = self.endpoint.connect(self.factory)
        self.pair.pump()
        self.pair.proxy.pipe.lose()
        self.failureResultOf(connecting, ConnectError)

    def test_no_tunnel(self) -> None:
        """Without a tunnel it waits a while."""
        connecting = TunnelEndpoint(self.tunnels, "beta", "postgres", patience=2.0).connect(self.factory)
        self.pair.clock.advance(2.0)
        self.assertIn("beta", str(self.failureResultOf(connecting, ConnectError).value))

    def test_no_stream_as_the_agent(self) -> None:
        """If the proxy holds the agent's credential, no stream to the API server is opened."""
        for target, refused in (("kubernetes", True), ("kubesphere", False)):
            tunnels: Any = Tunnels(self.pair.clock, self.pair.clock.seconds)
            tunnel = FakeTunnel(rewrite=lambda head, plain: head)
            tunnels.add(tunnel)
            connecting = TunnelEndpoint(tunnels, "alpha", target).connect(self.factory)
            self.assertEqual(tunnel.targets, [] if refused else [target])
            if refused:
                self.assertIn("alpha", str(self.failureResultOf(connecting, ConnectError).value))

    def test_cancelled(self) -> None:
        """Cancelling leaves no stream, in any phase."""
        waiting = TunnelEndpoint(self.tunnels, "beta", "postgres").connect(self.factory)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        opening = self.endpoint.connect(self.factory)
        self.pair.pump()
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.pair.agent.incoming.pop().accept()
        self.pair.pump()
        self.assertEqual((self.pair.proxy.tunnel.streams, self.pair.agent.tunnel.streams), (0, 0))

    def test_no_protocol(self) -> None:
        """No stream is opened for a factory that returns no protocol."""
        factory = Factory()
        factory.buildProtocol = lambda address: None  # type: ignore[method-assign,assignment]
        connecting = self.endpoint.connect(factory)
        self.pair.pump()
        self.pair.agent.incoming.pop().accept()
        self.pair.pump()
        self.assertIsNotNone(self.failureResultOf(connecting).value)
        self.assertEqual(self.pair.proxy.tunnel.streams, 0)

"""Connections without a network; `tests.integration.test_connecting` has the other tests."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.sockets import SocketReactor
from tower.net.connecting import ConnectFailed, connect


class Resolver:
    """Answers when the test calls it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self._receiver: Any = None

    def resolveHostName(self, receiver: Any, name: str, port: int) -> None:
        """See IHostnameResolver."""
        self.asked.append((name, port))
        self._receiver = receiver
        receiver.resolutionBegan(None)

    def answer(self, *addresses: IPv4Address | IPv6Address) -> None:
        """Return the addresses of the name."""
        for address in addresses:
            self._receiver.addressResolved(address)
        self._receiver.resolutionComplete()


class ResolvingReactor(SocketReactor):
    """A reactor with a resolver."""

    def __init__(self) -> None:
        super().__init__()
        self.nameResolver = Resolver()


class NameTests(SynchronousTestCase):
    """Connections to a name, which is resolved first."""

    def setUp(self) -> None:
        """Ask."""
        self.reactor = ResolvingReactor()
        self.connecting = connect(self.reactor, "member.example", 6443, timeout=5)
        self.assertEqual(self.reactor.nameResolver.asked, [("member.example", 6443)])

    def assert_nothing_left(self) -> None:
        """Nothing goes on."""
        self.assertEqual((self.reactor.readers, self.reactor.writers), ([], []))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_no_address(self) -> None:
        """A name without addresses has its own error."""
        self.reactor.nameResolver.answer()
        error = self.failureResultOf(self.connecting, ConnectFailed).value
        self.assertEqual((error.kind, str(error)), ("name", "member.example:6443: the name has no address"))
        self.assert_nothing_left()

    def test_too_late(self) -> None:
        """A resolver that takes too long is not waited for, and its answer starts nothing."""
        self.reactor.advance(5)
        error = self.failureResultOf(self.connecting, ConnectFailed).value
        self.assertEqual((error.kind, str(error)), ("timeout", "member.example:6443: no answer within 5 s"))
        self.reactor.nameResolver.answer(IPv4Address("TCP", "192.0.2.1", 6443))
        self.assert_nothing_left()

    def test_no_address_too_late(self) -> None:
        """An empty answer that is late is not another error."""
        self.reactor.advance(5)
        self.failureResultOf(self.connecting, ConnectFailed)
        self.reactor.nameResolver.answer()
        self.assert_nothing_left()

    def test_cancelled(self) -> None:
        """After cancelling, nothing follows."""
        self.connecting.cancel()
        self.failureResultOf(self.connecting, CancelledError)
        self.reactor.nameResolver.answer(IPv6Address("TCP", "2001:db8::1", 6443))
        self.assert_nothing_left()

    def test_impossible_address(self) -> None:
        """An address that no socket takes fails like one that does not answer."""
        self.reactor.nameResolver.answer(IPv6Address("TCP", "fe80::1%nosuchinterface", 6443))
        error = self.failureResultOf(self.connecting, ConnectFailed).value
        self.assertEqual(error.kind, "unreachable")
        self.assert_nothing_left()


class NoNameTests(SynchronousTestCase):
    """Names that no resolver accepts."""

    def test_refused(self) -> None:
        """It fails at once: Twisted's resolver would raise without a listener, and never answer."""
        for host in ("a..b", ".", "a" * 64, "b." + "a" * 300):
            reactor = ResolvingReactor()
            error = self.failureResultOf(connect(reactor, host, 22), ConnectFailed).value
            self.assertEqual((error.kind, str(error)), ("name", f"{host}:22: invalid host name"))
            self.assertEqual(reactor.nameResolver.asked, [])
            self.assertEqual(reactor.getDelayedCalls(), [])

    def test_names(self) -> None:
        """Other names are resolved, however odd."""
        for host in ("a_b", "a.", "-a", "\u00e4", "nodes.example"):
            reactor = ResolvingReactor()
            connect(reactor, host, 22).addErrback(lambda _: None)
            self.assertEqual(reactor.nameResolver.asked, [(host, 22)])
            reactor.advance(30)

"""`tower.net.connecting` and `tower.net.listening` over the loopback."""

from __future__ import annotations

import os
import socket
from typing import Any, cast

from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.fakes.receivers import Recorder
from tests.fakes.sockets import HOST, client_context, server_context
from tests.integration.closed_sockets import sockets_closed
from tower.net.connecting import ConnectFailed, connect
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.reactor.interfaces import ISocketReactor

reactor: Any = _reactor

MUCH = 2**20  # B; fits the buffers of the kernel
SUSPENDED = 3.0  # s


class Resolver:
    """Resolves one name."""

    def __init__(self, *addresses: IPv4Address) -> None:
        self._addresses = addresses

    def resolveHostName(self, receiver: Any, name: str, port: int) -> None:
        """See IHostnameResolver."""
        receiver.resolutionBegan(None)
        for address in self._addresses:
            receiver.addressResolved(address)
        receiver.resolutionComplete()


class WithResolver:
    """The reactor with another resolver."""

    def __init__(self, *addresses: IPv4Address) -> None:
        self.nameResolver = Resolver(*addresses)

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


def with_resolver(*addresses: IPv4Address) -> ISocketReactor:
    """Return the reactor, in which every name has *addresses*."""
    return cast(ISocketReactor, WithResolver(*addresses))


class Echo(Recorder):
    """Echoes, and ends when the peer ends."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(ended=connection.finish)
        self._connection = connection

    def received(self, data: memoryview) -> None:
        """Send it back."""
        self._connection.send(data)


class Waiting(Recorder):
    """Provides a Deferred for the end."""

    def __init__(self) -> None:
        super().__init__(closed=lambda: self.over.callback(None))
        self.over: Deferred[None] = Deferred()


def closed_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


class ConnectTests(TestCase):
    """Connects, or reports the reason for the failure."""

    timeout = 120

    def setUp(self) -> None:
        """Start without any connections."""
        self.addCleanup(sockets_closed)
        self.accepted: list[Connection] = []
        self.is_serving = False

    def serve(self, accept: Any = Echo, tls: bool = False) -> int:
        """Listen; return the port."""
        self.is_serving = True

        def note(connection: Connection) -> Any:
            self.accepted.append(connection)
            return accept(connection)

        port: Any = listen(reactor, 0, "127.0.0.1", note, server_context() if tls else None)
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    def serve_one(self) -> tuple[int, Deferred[Connection]]:
        """Listen; return the port, and the first connection."""
        accepted: Deferred[Connection] = Deferred()

        def accept(connection: Connection) -> Recorder:
            reactor.callLater(0, accepted.callback, connection)
            return Recorder()

        return self.serve(accept), accepted

    def silent(self) -> int:
        """Return the port of a server that accepts connections and sends nothing."""
        sock = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(sock.close)
        number: int = sock.getsockname()[1]
        return number

    async def echoed(self, connection: Connection) -> None:
        """Send something and receive its echo."""
        connection.receiver = recorder = Waiting()
        connection.send(b"hello" * 100_000)
        connection.finish()
        connection.resume()
        await recorder.over
        self.assertTrue(recorder.got == b"hello" * 100_000)
        self.assertEqual(recorder.log[-2:], ["ended", "closed"])

    async def failing(self, *arguments: Any, **options: Any) -> ConnectFailed:
        """Return the failure's reason; trial checks that nothing is left behind."""
        before = len(self.accepted)
        try:
            await connect(*arguments, **options)
        except ConnectFailed as e:
            while self.is_serving and len(self.accepted) == before:
                await deferLater(reactor, 0.01, lambda: None)
            while any(each.fileno() >= 0 for each in self.accepted):  # the server's end is closed, too
                await deferLater(reactor, 0.01, lambda: None)
            return e
        raise AssertionError("it connected")

    async def test_stale_event(self) -> None:
        """An event of an earlier descriptor with the same number, under load, does not end the attempt."""
        before = set(reactor.getWriters())
        connecting = connect(reactor, "127.0.0.1", self.serve())
        (attempt,) = set(reactor.getWriters()) - before
        attempt.doRead()
        await self.echoed(await connecting)

    async def test_plain(self) -> None:
        """By address, and by name."""
        port = self.serve()
        connection = await connect(reactor, "127.0.0.1", port)
        self.assertEqual(connection.getPeer(), IPv4Address("TCP", "127.0.0.1", port))
        await self.echoed(connection)
        await self.echoed(
            await connect(with_resolver(IPv4Address("TCP", "127.0.0.1", port)), "some.name", port)
        )

    async def test_second_address(self) -> None:
        """If the first address does not answer, the next is tried."""
        port = self.serve()
        both = with_resolver(
            IPv4Address("TCP", "127.0.0.1", closed_port()), IPv4Address("TCP", "127.0.0.1", port)
        )
        await self.echoed(await connect(both, "some.name", port))

    async def test_refused(self) -> None:
        """Nothing listens."""
        port = closed_port()
        error = await self.failing(reactor, "127.0.0.1", port)
        self.assertEqual((error.kind, str(error)), ("refused", f"127.0.0.1:{port}: connection refused"))

    async def test_tls(self) -> None:
        """The handshake is part of connecting."""
        port = self.serve(tls=True)
        connection = await connect(reactor, "127.0.0.1", port, tls=client_context(), server_hostname=HOST)
        self.assertIsNotNone(connection.peer_certificate())
        await self.echoed(connection)

    async def test_tls_not_trusted(self) -> None:
        """A server with another name, or with an untrusted certificate, is rejected."""
        port = self.serve(lambda connection: Recorder(), tls=True)
        error = await self.failing(
            reactor, "127.0.0.1", port, tls=client_context(), server_hostname="other.example"
        )
        self.assertEqual(error.kind, "tls")
        self.assertIn("Hostname mismatch", str(error))
        error = await self.failing(
            reactor, "127.0.0.1", port, tls=client_context(trusting=False), server_hostname=HOST
        )
        self.assertIn("self-signed", str(error))

    async def test_tls_impossible_name(self) -> None:
        """A name that no certificate can have is refused with the reason."""
        port = self.serve()
        error = await self.failing(
            reactor, "127.0.0.1", port, tls=client_context(), server_hostname=".nobody"
        )
        self.assertEqual(error.kind, "tls")
        self.assertIn("'.nobody'", str(error))

    async def test_tls_cut(self) -> None:
        """A server that disconnects at once, which is seen before the handshake or in it."""
        port = self.serve(lambda connection: None)
        error = await self.failing(reactor, "127.0.0.1", port, tls=client_context(), server_hostname=HOST)
        self.assertIn(error.kind, ("tls", "unreachable"))

    async def test_timeout(self) -> None:
        """A server that sends nothing is not waited for longer than wanted."""
        port = self.silent()
        error = await self.failing(
            reactor, "127.0.0.1", port, tls=client_context(), server_hostname=HOST, timeout=0.1
        )
        self.assertEqual((error.kind, str(error)), ("timeout", f"127.0.0.1:{port}: no answer within 0.1 s"))

    async def test_cancel(self) -> None:
        """Cancelling leaves nothing behind, before the connection or during the handshake."""
        port = self.silent()
        for pause in (0, 0.05):
            connecting = connect(reactor, "127.0.0.1", port, tls=client_context(), server_hostname=HOST)
            await deferLater(reactor, pause, lambda: None)
            connecting.cancel()
            self.failureResultOf(connecting, CancelledError)

    async def test_reset_is_no_end(self) -> None:
        """Data before a reset is delivered, but the reset is not an end of the stream."""
        port, accepted = self.serve_one()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            connection = await accepted
            connection.receiver = recorder = Waiting()
            sock.sendall(b"too large")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await recorder.over
        self.assertNotIn("ended", recorder.log)
        self.assertIsInstance(recorder.reason, OSError)

    async def test_abort_resets(self) -> None:
        """An abort arrives as a reset."""
        port, accepted = self.serve_one()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            connection = await accepted
            connection.abort()
            self.assertRaises(ConnectionResetError, sock.recv, 1)

    async def test_late_reader(self) -> None:
        """A peer that is suspended, and sends something before it reads, receives all that was sent."""
        data = os.urandom(MUCH)
        port, accepted = self.serve_one()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            connection = await accepted
            connection.send(data)
            connection.close()
            await deferLater(reactor, SUSPENDED)
            sock.sendall(b"late")
            await deferLater(reactor, 0.1)
            sock.shutdown(socket.SHUT_WR)
            received = await deferToThread(read_all, sock)
        self.assertTrue(received == data)


def read_all(sock: socket.socket) -> bytes:
    """Return all bytes until the end of the stream."""
    with sock.makefile("rb") as stream:
        return stream.read()

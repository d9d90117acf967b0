"""Tests of `tower.net.pipe_transport`: Twisted's protocols and producers on a pipe."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from operator import methodcaller
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IHalfCloseableProtocol, IPushProducer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.basic import FileSender, LineReceiver
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tests.fakes.sockets import SocketReactor, socket_pair, take
from tower.net.connection import Connection
from tower.net.pipe_transport import PipeTransport


class Noting(Protocol):
    """Records events.

    :ivar on_made: called when it is connected.
    """

    transport: PipeTransport

    def __init__(self) -> None:
        self.got = b""
        self.lost: Failure | None = None
        self.on_made: Callable[[PipeTransport], object] = lambda _: None

    def connectionMade(self) -> None:
        """See Protocol."""
        self.on_made(self.transport)

    def dataReceived(self, data: bytes) -> None:
        """See Protocol."""
        assert isinstance(data, bytes)
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See Protocol."""
        assert self.lost is None
        self.lost = reason


class Hasty(Protocol):
    """Closes as soon as it gets something.

    :ivar events: what happened, in order.
    """

    transport: PipeTransport

    def __init__(self) -> None:
        self.events: list[str] = []

    def dataReceived(self, data: bytes) -> None:
        """See Protocol."""
        self.events.append("data")
        self.transport.abortConnection()
        self.events.append("through")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See Protocol."""
        self.events.append("lost")


@implementer(IHalfCloseableProtocol)
class HalfClosing(Noting):
    """Knows half closes."""

    ended = 0

    def readConnectionLost(self) -> None:
        """See IHalfCloseableProtocol."""
        self.ended += 1

    def writeConnectionLost(self) -> None:
        """See IHalfCloseableProtocol."""


class Producer:
    """Records calls.

    :ivar write: what a pull producer writes next, if anything.
    """

    def __init__(self, write: Any = None) -> None:
        self.told: list[str] = []
        self.write = write

    def pauseProducing(self) -> None:
        """See IPushProducer."""
        self.told.append("pause")

    def resumeProducing(self) -> None:
        """See IPushProducer."""
        self.told.append("resume")
        if self.write is not None:
            self.write()

    def stopProducing(self) -> None:
        """See IPushProducer."""
        self.told.append("stop")


class TransportTestCase(SynchronousTestCase):
    """A protocol on a pipe."""

    def setUp(self) -> None:
        """Start."""
        self.start(Noting())

    def start(self, protocol: Noting) -> None:
        """Run this protocol on a new pipe."""
        self.pipe = FakePipe()
        self.protocol = protocol
        self.transport = PipeTransport(self.pipe, protocol)
        self.transport.start()


class ProtocolTests(TransportTestCase):
    """Drives a protocol."""

    def test_interfaces(self) -> None:
        """It provides its interfaces."""
        for interface in (ITransport, IConsumer, IPushProducer):
            self.assertTrue(verifyObject(interface, self.transport))

    def test_bytes(self) -> None:
        """Both ways."""
        self.pipe.deliver(b"in")
        self.transport.write(b"out")
        self.transport.writeSequence([b"a", b"b"])
        self.assertEqual((self.protocol.got, self.pipe.sent), (b"in", b"outab"))

    def test_pause(self) -> None:
        """The protocol can pause delivery, from the start on."""
        protocol = Noting()
        protocol.on_made = methodcaller("pauseProducing")
        self.start(protocol)
        self.assertTrue(self.pipe.paused)
        self.transport.resumeProducing()
        self.assertFalse(self.pipe.paused)

    def test_lose(self) -> None:
        """LoseConnection flushes; the protocol gets a clean end; later writes are dropped."""
        self.transport.write(b"last")
        self.transport.loseConnection()
        self.transport.loseConnection()
        self.transport.write(b"late")
        self.assertTrue(self.pipe.closing)
        self.pipe.lose()
        self.assertEqual(self.pipe.sent, b"last")
        assert self.protocol.lost is not None
        self.assertIsInstance(self.protocol.lost.value, ConnectionDone)
        self.transport.write(b"later")
        self.transport.loseConnection()

    def test_stop_producing(self) -> None:
        """As a producer it stops by closing."""
        self.transport.stopProducing()
        self.assertTrue(self.pipe.closing)

    def test_abort(self) -> None:
        """AbortConnection is now."""
        self.transport.abortConnection()
        self.assertTrue(self.pipe.aborted)
        self.assertIsNotNone(self.protocol.lost)

    def test_lost(self) -> None:
        """A connection that breaks is not a clean end."""
        self.pipe.lose(ConnectionResetError("reset"))
        assert self.protocol.lost is not None
        self.assertIsInstance(self.protocol.lost.value, ConnectionLost)
        self.assertIn("reset", str(self.protocol.lost.value))

    def test_end(self) -> None:
        """For most protocols the peer's end is the end."""
        self.pipe.end()
        self.assertTrue(self.pipe.closing)
        self.transport.write(b"late")
        self.pipe.lose()
        assert self.protocol.lost is not None
        self.assertIsInstance(self.protocol.lost.value, ConnectionDone)
        self.assertEqual(self.pipe.sent, b"")

    def test_half_close(self) -> None:
        """Those that know it go on."""
        protocol = HalfClosing()
        self.start(protocol)
        self.pipe.end()
        self.assertEqual(protocol.ended, 1)
        self.transport.write(b"answer")
        self.transport.loseWriteConnection()
        self.assertEqual((self.pipe.sent, self.pipe.finished, self.pipe.closing), (b"answer", True, False))

    def test_release(self) -> None:
        """The pipe can be released, even in connectionMade; the protocol gets and sends nothing more."""
        for at_once in (False, True):
            protocol = Noting()
            if at_once:
                protocol.on_made = PipeTransport.release
            self.start(protocol)
            self.assertIs(self.transport.release(), self.pipe)
            self.assertTrue(self.pipe.paused)
            for call in (
                self.transport.resumeProducing,
                self.transport.pauseProducing,
                self.transport.loseConnection,
                self.transport.abortConnection,
                self.transport.loseWriteConnection,
                self.transport.ended,
            ):
                call()
            self.transport.write(b"late")
            self.assertEqual((self.pipe.paused, self.pipe.closing, self.pipe.finished), (True, False, False))
            self.pipe.lose()
            self.assertIsNone(protocol.lost)
            self.assertEqual(self.pipe.sent, b"")

    def test_addresses(self) -> None:
        """Addresses of the pipe, or 0.0.0.0."""
        self.assertEqual(self.transport.getPeer(), IPv4Address("TCP", "0.0.0.0", 0))
        here = IPv4Address("TCP", "192.0.2.1", 5)
        self.pipe.getHost = lambda: here  # type: ignore[attr-defined]
        self.assertIs(self.transport.getHost(), here)

    def test_options(self) -> None:
        """Options that protocols like to set are set already."""
        self.transport.setTcpNoDelay(enabled=True)
        self.transport.setTcpKeepAlive(enabled=True)


class EndingTests(SynchronousTestCase):
    """A connection that is lost while the protocol gets bytes."""

    def test_not_before_it_is_through(self) -> None:
        """The protocol is notified after its handling, whether the bytes came first or later."""
        for first, later in ((b"bye", b""), (b"", b"bye")):
            pipe, protocol = FakePipe(), Hasty()
            PipeTransport(pipe, protocol, first).start()
            if later:
                pipe.deliver(later)
            self.assertEqual(protocol.events, ["data", "through", "lost"])


class ProducerTests(TransportTestCase):
    """Lets producers follow the pipe."""

    def test_streaming(self) -> None:
        """A push producer is paused while the pipe is full."""
        producer = Producer()
        self.transport.registerProducer(producer, streaming=True)
        self.transport.write(b"1")
        self.assertEqual(producer.told, [])
        self.pipe.full = True
        self.transport.write(b"2")
        self.transport.write(b"3")
        self.assertEqual(producer.told, ["pause"])
        self.pipe.drain()
        self.assertEqual(producer.told, ["pause", "resume"])
        self.transport.unregisterProducer()
        self.pipe.full = True
        self.transport.write(b"4")
        self.pipe.drain()
        self.assertEqual(producer.told, ["pause", "resume"])

    def test_full_already(self) -> None:
        """A producer that registers with a full pipe is paused at once."""
        self.pipe.full = True
        self.transport.write(b"1")
        producer = Producer()
        self.transport.registerProducer(producer, streaming=True)
        self.assertEqual(producer.told, ["pause"])

    def test_pull(self) -> None:
        """A pull producer is called until the pipe is full, and again when it has room."""
        producer = Producer(lambda: self.transport.write(b"x"))
        self.pipe.full = True
        self.transport.registerProducer(producer, streaming=False)
        self.assertEqual(self.pipe.sent, b"x")
        for count in range(2, 5):
            self.transport.drained()
            self.assertEqual(self.pipe.sent, b"x" * count)
        self.assertEqual(set(producer.told), {"resume"})

    def test_pull_later(self) -> None:
        """One that has nothing yet goes on by writing."""
        producer = Producer()
        self.transport.registerProducer(producer, streaming=False)
        self.assertEqual(producer.told, ["resume"])
        self.transport.write(b"x")
        self.assertEqual(producer.told, ["resume", "resume"])

    def test_file(self) -> None:
        """Twisted's own pull producer sends a whole file, however often the pipe is full."""
        data = bytes(range(256)) * 4096
        for full in (False, True):
            self.start(Noting())
            self.pipe.full = full
            result: Deferred[bytes] = FileSender().beginFileTransfer(BytesIO(data), self.transport)
            for _ in range(len(data) // FileSender.CHUNK_SIZE + 1):
                self.transport.drained()
            self.successResultOf(result)
            self.assertTrue(self.pipe.sent == data)

    def test_broken(self) -> None:
        """A producer of either kind waits on a pipe that takes nothing more, and is stopped with it."""
        for is_pushing in (True, False):
            self.start(Noting())
            producer = Producer(lambda: self.transport.write(b"x"))
            self.pipe.broken = True
            self.transport.registerProducer(producer, streaming=is_pushing)
            self.transport.write(b"x")
            self.transport.write(b"x")
            self.assertEqual(producer.told, ["pause"] if is_pushing else ["resume"])
            self.pipe.lose()
            self.assertEqual(producer.told[1:], ["stop"])

    def test_breaks_under_it(self) -> None:
        """A producer that was stopped because the pipe went while it wrote is not paused afterwards."""
        producer = Producer()
        self.transport.registerProducer(producer, streaming=True)
        self.pipe.send = lambda data: self.pipe.lose() or False  # type: ignore[method-assign,func-returns-value]
        self.transport.write(b"x")
        self.assertEqual(producer.told, ["stop"])

    def test_one(self) -> None:
        """There is one producer at a time."""
        self.transport.registerProducer(Producer(), streaming=True)
        self.assertRaises(RuntimeError, self.transport.registerProducer, Producer(), streaming=True)

    def test_lost(self) -> None:
        """A producer is stopped when the connection closes, or has closed, and may be replaced then."""
        producer = Producer()
        self.transport.registerProducer(producer, streaming=True)
        self.pipe.lose()
        self.assertEqual(producer.told, ["stop"])
        for _ in range(2):
            late = Producer()
            self.transport.registerProducer(late, streaming=False)
            self.assertEqual(late.told, ["stop"])

    def test_lose_waits(self) -> None:
        """LoseConnection waits until the producer is done, as in ITransport."""
        self.transport.registerProducer(Producer(), streaming=True)
        self.transport.loseConnection()
        self.assertFalse(self.pipe.closing)
        self.transport.write(b"the rest")
        self.transport.unregisterProducer()
        self.assertEqual((self.pipe.closing, self.pipe.sent), (True, b"the rest"))

    def test_lose_and_lost(self) -> None:
        """If the connection goes in between, it is stopped and that is all."""
        producer = Producer()
        self.transport.registerProducer(producer, streaming=True)
        self.transport.loseConnection()
        self.pipe.lose()
        self.transport.unregisterProducer()
        self.assertEqual((producer.told, self.pipe.closing), (["stop"], False))


class Greeter(LineReceiver):
    """Answers lines."""

    def lineReceived(self, line: bytes) -> None:
        """See LineReceiver."""
        if line == b"quit":
            assert self.transport is not None
            self.transport.loseConnection()
        else:
            self.sendLine(b"hello " + line)


class ConnectionTests(SynchronousTestCase):
    """With a real connection."""

    def test_line_receiver(self) -> None:
        """A protocol of Twisted's runs on it unchanged."""
        reactor = SocketReactor()
        near, far = socket_pair()
        self.addCleanup(far.close)
        transport = PipeTransport(Connection(reactor, near), Greeter())
        transport.start()
        far.sendall(b"jane\r\njo")
        reactor.run()
        far.sendall(b"e\r\nquit\r\nnobody\r\n")
        reactor.run()
        self.assertEqual(take(far), b"hello jane\r\nhello joe\r\n")
        self.assertEqual(take(far), b"")
        far.close()
        reactor.run()
        self.assertEqual((reactor.readers, reactor.writers, reactor.getDelayedCalls()), ([], [], []))

    def test_handed_over(self) -> None:
        """Bytes after release are for the next receiver."""
        reactor = SocketReactor()
        near, far = socket_pair()
        self.addCleanup(far.close)
        protocol = Noting()
        transport = PipeTransport(Connection(reactor, near), protocol)
        transport.start()
        far.sendall(b"first")
        reactor.run()
        pipe = transport.release()
        self.addCleanup(pipe.abort)
        far.sendall(b"second")
        reactor.run()
        pipe.receiver = recorder = Recorder()
        pipe.resume()
        reactor.run()
        self.assertEqual((protocol.got, recorder.got), (b"first", b"second"))

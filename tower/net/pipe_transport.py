"""A pipe as a Twisted transport, for protocols that are not written for pipes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    ITransport,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.net.pipes import Pipe

_log = Logger()


@implementer(ITransport, IConsumer, IPushProducer)
class PipeTransport:
    """Runs *protocol* on *pipe* until it closes or `release`; delivers *first*, received before."""

    disconnecting = False
    disconnected = False

    def __init__(self, pipe: Pipe, protocol: IProtocol, first: bytes = b"") -> None:
        self.pipe = pipe
        self._protocol = protocol
        self._first = first
        self._producer: Any = None
        self._streaming = False
        self._full = False
        self._clean = False
        self._held = False
        self._pulling = self._pulled = False
        self._released = False
        self._delivering = False
        self._reason: Exception | None = None

    def start(self) -> None:
        """Connect the protocol and deliver bytes, unless it pauses at once."""
        self.attach()
        self.flow()

    def attach(self) -> None:
        """Connect the protocol without delivering bytes; `flow` follows."""
        self.pipe.receiver = self
        self._protocol.makeConnection(self)

    def flow(self) -> None:
        """Deliver bytes, unless the protocol has paused."""
        if self._first and not (self._released or self._held or self.disconnecting or self.disconnected):
            first, self._first = self._first, b""
            self._deliver(first)
        if not (self._released or self._held):
            self.pipe.resume()

    def release(self) -> Pipe:
        """Return the pipe, paused; the protocol gets no more events, and its writes are dropped."""
        self._released = self.disconnecting = True
        self._producer = None
        self.pipe.pause()
        return self.pipe

    # tower.net.pipes.Receiver

    def received(self, data: memoryview) -> None:
        """Deliver bytes to the protocol."""
        self._deliver(bytes(data))

    def _deliver(self, data: bytes) -> None:
        """Deliver bytes; a loss of the connection is reported after the protocol has handled them.

        Twisted's transports guarantee this, and its TLS fails without.
        """
        outer, self._delivering = self._delivering, True
        try:
            self._protocol.dataReceived(data)
        finally:
            self._delivering = outer
            reason = self._reason
            if reason is not None and not outer:
                self._reason = None
                self._lose(reason)

    def ended(self) -> None:
        """Half close as in Twisted: notify a protocol that supports it, close for others."""
        self._clean = True
        if self._released:
            return
        half = getattr(self._protocol, "readConnectionLost", None)
        if half is None:
            self.disconnecting = True
            self.pipe.close()
        else:
            half()

    def drained(self) -> None:
        """Resume the producer."""
        self._full = False
        if self._producer is None:
            return
        if self._streaming:
            self._producer.resumeProducing()
        else:
            self._pull()

    def _pull(self) -> None:
        """Call a pull producer until the pipe is full; it may write nothing now, and later."""
        self._pulled = True
        if self._pulling:
            return
        self._pulling = True
        try:
            while self._pulled and not (self._full or self._producer is None or self._streaming):
                self._pulled = False
                self._producer.resumeProducing()
        finally:
            self._pulling = False

    def closed(self, reason: Exception) -> None:
        """Notify the producer and the protocol."""
        self.disconnected = True
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        if self._delivering:
            self._reason = reason
        else:
            self._lose(reason)

    def _lose(self, reason: Exception) -> None:
        if self._released:
            return
        clean = self._clean or self.disconnecting
        lost = ConnectionDone() if clean else ConnectionLost(str(reason))
        self._protocol.connectionLost(Failure(lost))

    # ITransport

    def write(self, data: bytes) -> None:
        """Send *data*; dropped once the connection is closing, except from a registered producer."""
        producer = self._producer
        if self.disconnected or (self.disconnecting and producer is None):
            return
        if self.pipe.send(data):
            if producer is not None and not self._streaming:
                self._pull()
        elif not self._full:
            self._full = True
            if self._producer is not None and self._streaming:
                self._producer.pauseProducing()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send the pieces as one."""
        self.write(b"".join(data))

    def loseConnection(self, *_: Any) -> None:
        """Close after the queued bytes, and after those of a registered producer."""
        if not self.disconnecting:
            self.disconnecting = True
            if self._producer is None:
                self.pipe.close()

    def loseWriteConnection(self) -> None:
        """End our stream after the queued bytes."""
        if not self._released:
            self.pipe.finish()

    def abortConnection(self) -> None:
        """Close now."""
        if not self._released:
            self.disconnecting = True
            self.pipe.abort()

    def getPeer(self) -> IAddress:
        """Return the peer's address if the pipe has one."""
        return _address(self.pipe, "getPeer")

    def getHost(self) -> IAddress:
        """Return the local address if the pipe has one."""
        return _address(self.pipe, "getHost")

    def setTcpNoDelay(self, enabled: bool) -> None:
        """No-op: pipes never delay."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """No-op: connections have it on."""

    # IConsumer

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Apply the pipe's flow control to *producer*."""
        if self._producer is not None:
            raise RuntimeError(f"a producer is registered already: {self._producer!r}")
        self._producer, self._streaming = producer, streaming
        if self.disconnected:
            self._producer = None
            producer.stopProducing()
        elif not streaming:
            self._pull()
        elif self._full:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        """Remove the producer; close if `loseConnection` waited for it."""
        producer, self._producer = self._producer, None
        if producer is not None and self.disconnecting and not self.disconnected:
            self.pipe.close()

    # IPushProducer

    def pauseProducing(self) -> None:
        """Stop delivering bytes."""
        if not self._released:
            self._held = True
            self.pipe.pause()

    def resumeProducing(self) -> None:
        """Deliver bytes again."""
        self._held = False
        self.flow()

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()


def _address(pipe: Pipe, which: str) -> IAddress:
    find = getattr(pipe, which, None)
    address: IAddress = IPv4Address("TCP", "0.0.0.0", 0) if find is None else find()
    return address


def connected(
    opening: Deferred[tuple[Pipe, bytes]], factory: IProtocolFactory, address: IAddress
) -> Deferred[IProtocol]:
    """Return a Deferred that fires with the connected protocol, before its first bytes.

    Cancelling it cancels *opening*, which fires with a paused pipe and the bytes received on it.
    """
    result: Deferred[IProtocol] = Deferred(lambda _: opening.cancel())

    def run(opened: tuple[Pipe, bytes]) -> None:
        pipe, first = opened
        try:
            protocol: Any = factory.buildProtocol(address)
            if protocol is None:
                raise ConnectError(string="the factory returned no protocol")
            transport = PipeTransport(pipe, protocol, first)
            transport.attach()
            result.callback(protocol)
            transport.flow()
        except BaseException:
            pipe.abort()
            raise

    def failed(failure: Failure) -> None:
        if result.called:
            _log.failure("the protocol failed on its first bytes", failure)
        else:
            result.errback(failure)

    opening.addCallback(run).addErrback(failed)
    return result

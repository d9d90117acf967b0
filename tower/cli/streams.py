"""Raw streams to a target of a cluster: opening one, and carrying a connection of this machine over it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tower.connection import Connection
from tower.errors import TowerError
from tower.kube.kubeconfig import KubeAccess
from tower.pipes import Pipe, join

from .client import bearer_token, quoted, server_address, tls_context
from .errors import CommandFailed

OPEN_TIMEOUT = 30.0  # s until a stream has to be open
HEAD_LIMIT = 64 << 10  # B, of the answer to the upgrade
BODY_LIMIT = 64 << 10  # B, of the Status that says why not


@frozen
class Way:
    """How to open streams to one target.

    :ivar request: the head of the request that opens one.
    :ivar until: when the credential in it ends, Unix time, s; None if it is not ours to renew.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str
    request: bytes = field(repr=False)
    until: float | None = None


def upgrade_request(access: KubeAccess, path: str, target: str) -> bytes:
    """Return the head of the request for a raw stream to *target* of the cluster at *path* on the server."""
    url = urlsplit(access.server)
    token = bearer_token(access)
    lines = [
        f"GET {path}/targets/{quoted(target)} HTTP/1.1",
        f"Host: {url.netloc}",
        "Connection: Upgrade",
        "Upgrade: tower-stream",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii")


def way_of(access: KubeAccess, path: str, target: str, until: float | None = None) -> Way:
    """Return the way that *access* gives to *target* of the cluster at *path*."""
    host, port, secure = server_address(access)
    context = tls_context(access) if secure else None
    request = upgrade_request(access, path, target)
    return Way(host, port, context, access.tls_server_name or host, request, until)


class Opening:
    """Receiver of a new stream until the proxy has answered the upgrade (RFC 9110 section 7.8).

    :param opened: called with what followed the 101.
    :param failed: called once with the reason if there is no stream.
    """

    def __init__(self, pipe: Pipe, opened: Callable[[bytes], None], failed: Callable[[str], None]) -> None:
        self._pipe = pipe
        self._opened = opened
        self._failed: Callable[[str], None] | None = failed
        self._buffer = bytearray()
        self._body = -1  # where the body of a refusal begins

    def received(self, data: memoryview) -> None:
        """Collect the head, or the body of a refusal."""
        self._buffer += data
        if self._body < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_LIMIT:
                    self._fail("the proxy's answer is too long")
                return
            if self._buffer.startswith(b"HTTP/1.1 101 "):
                self._failed = None
                self._opened(bytes(self._buffer[end + 4 :]))
                return
            self._body = end + 4
        if len(self._buffer) - self._body > BODY_LIMIT or self._message() is not None:
            self.ended()

    def ended(self) -> None:
        """Say why there is no stream, as far as the proxy told."""
        status = bytes(self._buffer.partition(b"\r\n")[0]).decode("latin-1")
        self._fail(self._message() or f"the proxy answered {status!r}")

    def drained(self) -> None:
        """Nothing waits for room."""

    def closed(self, reason: Exception) -> None:
        """Say that the proxy went away."""
        if self._failed is not None:
            self._fail(f"the proxy closed the connection: {reason}")

    def _message(self) -> str | None:
        """Return the message of a whole Status, None as long as it is not whole."""
        if self._body < 0:
            return None
        try:
            value = json.loads(self._buffer[self._body :])
        except ValueError:
            return None
        return str(value["message"]) if isinstance(value, dict) and value.get("message") else None

    def _fail(self, text: str) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            self._pipe.abort()
            failed(text)


class Local:
    """Receiver of a connection of this machine until its stream is open; takes one piece at most.

    :ivar opening: the attempt to open the stream, given up when the connection goes.
    :ivar is_over: the connection has gone.
    """

    opening: Deferred[None] | None = None

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._early = b""
        self.is_over = self._ended = False

    def received(self, data: memoryview) -> None:
        """Keep the first bytes, and no more."""
        self._early += bytes(data)
        self.pipe.pause()

    def ended(self) -> None:
        """Note that the other side has sent everything."""
        self._ended = True

    def drained(self) -> None:
        """Nothing was sent."""

    def closed(self, reason: Exception) -> None:
        """Give the stream up."""
        self.is_over = True
        if self.opening is not None:
            self.opening.cancel()

    def fail(self) -> None:
        """Close the connection: there is no stream for it."""
        self.opening = None
        self.pipe.abort()

    def carry(self, stream: Pipe, leftover: bytes) -> None:
        """Copy both ways from now on; *leftover* came on the stream already."""
        if self._early:
            stream.send(self._early)
        if leftover:
            self.pipe.send(leftover)
        join(self.pipe, stream)
        if self._ended and not self.is_over:
            self.pipe.receiver.ended()


class Forwarder:
    """Opens a stream for each connection.

    :param way: returns the way, with a credential that is good for a while.
    :param dial: opens a connection to the proxy.
    :param say: tells the user what went wrong.
    """

    def __init__(
        self,
        way: Callable[[], Deferred[Way]],
        dial: Callable[[Way], Deferred[Connection]],
        say: Callable[[str], None],
        clock: Any,
    ) -> None:
        self._way = way
        self._dial = dial
        self._say = say
        self._clock = clock

    def accept(self, connection: Pipe) -> Local:
        """Take a new connection; see `tower.listening.listen`."""
        connection.receiver = local = Local(connection)  # now: all may be over before we return
        local.opening = Deferred.fromCoroutine(self._open(local)).addErrback(self._failed, local)
        return local

    async def _open(self, local: Local) -> None:
        way = await self._way()
        stream = await self._dial(way)
        done: Deferred[bytes] = Deferred(lambda _: stream.abort())

        def failed(text: str) -> None:
            if not done.called:
                done.errback(CommandFailed(text))

        stream.receiver = Opening(stream, done.callback, failed)
        stream.send(way.request)
        done.addTimeout(OPEN_TIMEOUT, self._clock, _too_late)
        stream.resume()
        leftover = await done
        local.carry(stream, leftover)

    def _failed(self, failure: Failure, local: Local) -> None:
        if local.is_over or failure.check(CancelledError):
            return  # the one who asked has gone
        local.fail()
        error = failure.value
        self._say(str(error) if isinstance(error, TowerError) else f"{type(error).__name__}: {error}")


def _too_late(_: object, seconds: float) -> Failure:
    return Failure(CommandFailed(f"the proxy did not open the stream in {seconds:g} s"))

"""Client of raw streams through the front door: ``GET .../targets/<t>`` with ``Upgrade: tower-stream``."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable
from urllib.parse import quote, urlsplit

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.errors import ConfigurationError, TowerError
from tower.kube.connection_settings import bearer_token, server_address, tls_context
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.pipes import Pipe
from tower.reactor.interfaces import ISocketReactor

OPEN_TIMEOUT = 30.0  # s
HEAD_LIMIT = 64 << 10  # B, of the response to the upgrade
BODY_LIMIT = 64 << 10  # B, of the Status of a refusal

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_PRINTABLE = re.compile(r"[ -~]+")


class StreamNotOpened(TowerError):
    """The proxy opened no stream; the text has its reason, if any.

    :ivar code: HTTP status of the answer; 0 without one.
    """

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


@frozen
class FrontDoorAddress:
    """Address of one target's streams.

    :ivar request: head of the request that opens a stream.
    :ivar until: expiry of its credential, Unix time, s; None if the caller does not renew it.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str
    request: bytes = field(repr=False)
    until: float | None = None


def upgrade_request(access: KubeAccess, path: str, target: str) -> bytes:
    """Return the head of the request for a raw stream to *target* of the cluster at *path* on the server.

    :raise ConfigurationError: server or token in *access* has invalid characters.
    """
    url = urlsplit(access.server)
    token = bearer_token(access)
    lines = [
        f"GET {path}/targets/{quote(target, safe=':@')} HTTP/1.1",
        f"Host: {url.netloc}",
        "Connection: Upgrade",
        "Upgrade: tower-stream",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    if not all(map(_PRINTABLE.fullmatch, lines)):
        raise ConfigurationError(
            f"the kubeconfig for {access.server!r}: the server or the token has characters that are not "
            "printable ASCII"
        )
    return "\r\n".join((*lines, "", "")).encode("ascii")


def front_door_address(
    access: KubeAccess, path: str, target: str, until: float | None = None
) -> FrontDoorAddress:
    """Return the address of *target* of the cluster at *path*, with the credential of *access*.

    :raise ConfigurationError: the certificate, key or token is invalid.
    """
    host, port, secure = server_address(access)
    context = tls_context(access) if secure else None
    request = upgrade_request(access, path, target)
    return FrontDoorAddress(host, port, context, access.tls_server_name or host, request, until)


def dial(reactor: ISocketReactor, address: FrontDoorAddress) -> Deferred[Connection]:
    """Connect to the proxy; see `tower.net.connecting.connect`."""
    return connect(reactor, address.host, address.port, tls=address.tls, server_hostname=address.server_name)


class Opening:
    """Receiver of a new stream until the proxy's response to the upgrade (RFC 9110 section 7.8).

    :param opened: called with the bytes after the 101; the stream is paused then.
    :param failed: called once with the reason.
    """

    def __init__(self, pipe: Pipe, opened: Callable[[bytes], None], failed: Callable[[str], None]) -> None:
        self._pipe = pipe
        self._opened = opened
        self._failed: Callable[[str], None] | None = failed
        self._buffer = bytearray()
        self._body = -1  # start of the body of a refusal

    @property
    def code(self) -> int:
        """HTTP status of the answer; 0 without one."""
        found = _STATUS.match(self._buffer)
        return int(found[1]) if found else 0

    def abandon(self) -> None:
        """Close the connection without an event."""
        self._failed = None
        self._pipe.abort()

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
                self._pipe.pause()
                self._opened(bytes(self._buffer[end + 4 :]))
                return
            self._body = end + 4
        if len(self._buffer) - self._body > BODY_LIMIT or self._message() is not None:
            self.ended()

    def ended(self) -> None:
        """Fail with the proxy's reason, if received."""
        status = bytes(self._buffer.partition(b"\r\n")[0]).decode("latin-1")
        self._fail(self._message() or f"the proxy answered {status!r}")

    def drained(self) -> None:
        """See `Receiver`."""

    def closed(self, reason: Exception) -> None:
        """Fail, unless the stream is open."""
        if self._failed is not None:
            self._fail(f"the proxy closed the connection: {reason}")

    def _message(self) -> str | None:
        """Return the message of the Status; None while it is incomplete."""
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


def open_stream(stream: Pipe, address: FrontDoorAddress, clock: IReactorTime) -> Deferred[bytes]:
    """Request the upgrade on *stream*, a new connection to the proxy.

    :return: fires with the first bytes of the stream once it is open; it is paused then.  Cancelling closes
        the connection.
    :raise StreamNotOpened: through the Deferred; the connection is closed.
    """
    done: Deferred[bytes] = Deferred(lambda _: opening.abandon())

    def failed(text: str) -> None:
        done.errback(StreamNotOpened(text, opening.code))

    stream.receiver = opening = Opening(stream, done.callback, failed)
    stream.send(address.request)
    if not done.called:
        done.addTimeout(OPEN_TIMEOUT, clock, _too_late)
        stream.resume()
    return done


def _too_late(_: object, seconds: float) -> Failure:
    return Failure(StreamNotOpened(f"the proxy did not open the stream within {seconds:g} s"))

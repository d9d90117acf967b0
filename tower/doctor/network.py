"""I/O of the checks: names, connections, certificate chains, and small HTTP requests."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import TypeVar

from attrs import define, evolve, frozen
from cryptography import x509
from twisted.internet import defer
from twisted.internet.defer import Deferred

from tower.errors import TowerError
from tower.kube.apiserver import APIServer
from tower.kube.client import APIClient
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.pipes import Pipe
from tower.net.proxied_connection import open_connection
from tower.net.proxy_environment import HTTPProxy, ServerURL
from tower.net.tls.ca_pinning import ChainReader, ChainUnknown
from tower.reactor.interfaces import ISocketReactor

#: Longest connect, TLS handshake or answer, s.
PATIENCE = 8.0

#: Longest head of an answer, B.
_HEAD_LIMIT = 64 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_DATE = re.compile(rb"(?im)^date:[ \t]*([ -~]+?)[ \t]*\r?$")

T = TypeVar("T")


@frozen
class Glimpse:
    """The start of a server's answer.

    :ivar code: HTTP status; 0 if the answer is not HTTP.
    :ivar date: its ``Date``, s since the epoch; None if there is none.
    :ivar first: its first bytes.
    """

    code: int
    date: float | None
    first: bytes

    @classmethod
    def of(cls, data: bytes) -> Glimpse:
        """Return what *data* is the start of."""
        status = _STATUS.match(data)
        found = _DATE.search(data.partition(b"\r\n\r\n")[0]) if status else None
        date = None
        if found is not None:
            try:
                date = parsedate_to_datetime(found[1].decode("ascii")).timestamp()
            except ValueError:
                pass
        return cls(int(status[1]) if status else 0, date, data[:64])


class _HeadReceiver:
    """Collects the head of an answer; `done` fires with its bytes, or those before the end."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._data = b""
        self.done: Deferred[bytes] = Deferred(lambda _: pipe.abort())

    def received(self, data: memoryview) -> None:
        """Collect; finish after the head, or after bytes that are not HTTP."""
        self._data += bytes(data)
        is_other = len(self._data) >= 5 and not self._data.startswith(b"HTTP/")
        if is_other or b"\r\n\r\n" in self._data or len(self._data) > _HEAD_LIMIT:
            self._finish()

    def ended(self) -> None:
        """Finish."""
        self._finish()

    def drained(self) -> None:
        """No-op: the request is small."""

    def closed(self, reason: Exception) -> None:
        """Finish."""
        self._finish()

    def _finish(self) -> None:
        if not self.done.called:
            self.done.callback(self._data)
            self._pipe.abort()


@define(eq=False, repr=False)
class Network:
    """Connections of the doctor.

    :param lookup: resolves a host name and a port, as `socket.getaddrinfo` does.
    """

    reactor: ISocketReactor
    lookup: Callable[..., Sequence[tuple[object, ...]]] = socket.getaddrinfo
    connect: Callable[..., Deferred[Connection]] = connect

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host*.

        :raise OSError: it has none.
        """
        found = self.lookup(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))  # type: ignore[index]

    async def open(
        self,
        url: ServerURL,
        proxy: HTTPProxy | None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> Connection:
        """Connect to the server of *url*, through *proxy* if given, with *tls* if given.

        :raise ConnectFailed: with the failed part.
        """
        return await open_connection(
            self.reactor,
            url,
            proxy,
            tls=tls,
            server_name=server_name or url.host,
            timeout=PATIENCE,
            connect=self.connect,
        )

    async def chain(self, url: ServerURL, proxy: HTTPProxy | None, name: str = "") -> list[x509.Certificate]:
        """Return the certificates that the server presents, which are not verified.

        :raise ChainUnknown: there is no TLS handshake at that port.
        :raise ConnectFailed: the server cannot be reached.
        """
        reader = ChainReader(await self.open(url, proxy), name or url.host)
        reader.start()
        try:
            return await self._within(reader.chain, "no answer to the TLS handshake")
        except _TooSlow as e:
            raise ChainUnknown(str(e)) from e

    async def glimpse(
        self, url: ServerURL, proxy: HTTPProxy | None, path: str, tls: ssl.SSLContext | None = None
    ) -> Glimpse:
        """Request *path* without a credential; return the start of the answer.

        :raise ConnectFailed: the server cannot be reached.
        """
        connection = await self.open(url, proxy, tls)
        receiver = _HeadReceiver(connection)
        connection.receiver = receiver
        connection.send(
            f"GET {path} HTTP/1.1\r\nHost: {url.authority}\r\nConnection: close\r\n\r\n".encode("ascii")
        )
        connection.resume()
        try:
            return Glimpse.of(await self._within(receiver.done, "no answer"))
        except _TooSlow:
            return Glimpse(0, None, b"")

    def client(self, access: KubeAccess, proxy: HTTPProxy | None) -> APIClient:
        """Return a client of the API server of *access*.

        :raise ConfigurationError: the certificate, key or token is invalid.
        """
        server = APIServer(lambda: evolve(access, proxy_url=None))
        url = ServerURL(secure=server.tls is not None, host=server.host, port=server.port, resource="/")
        return APIClient(
            self.reactor,
            lambda: self.open(url, proxy, server.tls, server.server_name),
            server.upstream,
            timeout=PATIENCE,
            persistent=False,
            program=b"tower-doctor",
        )

    async def _within(self, waiting: Deferred[T], text: str) -> T:
        try:
            return await waiting.addTimeout(PATIENCE, self.reactor)
        except defer.TimeoutError:
            raise _TooSlow(f"{text} within {PATIENCE:g} s") from None


class _TooSlow(TowerError):
    """The peer did not answer in time."""

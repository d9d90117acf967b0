"""The agent's connection to the proxy: TCP, optional HTTP proxy, TLS, and the WebSocket handshake."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define, field
from autobahn.twisted.websocket import WebSocketClientFactory
from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.net.addresses import join_address
from tower.net.connect_proxy import connect_through
from tower.net.connecting import ConnectFailed, connect
from tower.net.connection import Connection, ConnectionEnded
from tower.net.pipe_transport import PipeTransport
from tower.net.proxy_environment import HTTPProxy, ServerURL
from tower.net.tls.ca_pinning import (
    ChainReader,
    ChainUnknown,
    NotThePinnedCA,
    find_authority,
    key_hash,
    pinned_context,
)
from tower.net.tls.connection import TLSFailed, start_tls
from tower.net.tls.validity import is_about_dates, validity_problem
from tower.reactor.interfaces import ISocketReactor
from tower.websocket.client_handshake import ClientSocket, DialFailed, HandshakeDropped, SubprotocolRefused
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2

__all__ = ["DialFailed", "Dialer", "SubprotocolRefused"]

#: Timeouts of TCP with TLS, and of each response after it, s.
CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 10.0

#: OpenSSL's errors about a server that does not speak TLS.
_NO_TLS = ("wrong version number", "record layer failure", "packet length too long", "http request")

#: Cure of an error without TLS.
_UNREACHABLE = ": check --proxy-server, and that the proxy runs there"

T = TypeVar("T")


@define(eq=False, repr=False)
class Dialer:
    """Opens WebSockets to one proxy.

    :param context: verifies the proxy's TLS; None with `ws`, or to find the CA by *hashes*.
    :param hashes: of the proxy's CA, see `tower.net.tls.ca_pinning`; the first dial learns the CA by another
        connection.
    :param epoch: returns the time of day, s since the epoch; compared with the dates of certificates.
    :param announced: returns more such hashes, which the proxy announced to this agent; they also help if
        *context* rejects the proxy.
    """

    _log = Logger()

    _reactor: ISocketReactor
    url: ServerURL
    _context: ssl.SSLContext | None = None
    _hashes: Sequence[str] = ()
    _proxy: HTTPProxy | None = None
    _connect: Callable[..., Deferred[Connection]] = connect
    _epoch: Callable[[], float] = time.time
    _announced: Callable[[], Sequence[str]] = tuple
    _learned: ssl.SSLContext | None = field(default=None, init=False)
    _logged: str = field(default="", init=False)
    _factory: WebSocketClientFactory = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._factory = WebSocketClientFactory(protocols=[TOWER_V2, KUBESPHERE_V1], reactor=self._reactor)
        self._factory.setProtocolOptions(
            openHandshakeTimeout=0,  # has its own timeout, see `_within`
            maxFramePayloadSize=1,
            maxMessagePayloadSize=1,
        )

    async def dial(self, protocol: str = TOWER_V2) -> tuple[Connection, bytes]:
        """Return a connection, paused, with an open WebSocket, and the bytes received after the handshake.

        :param protocol: the only requested subprotocol.
        :raise SubprotocolRefused: the server does not speak it.
        :raise DialFailed: the proxy cannot be reached.
        """
        try:
            connection = await self._reach_verified() if self.url.secure else await self._reach(None)
        except ConnectFailed as e:
            raise await self._explained(e) from e
        except (ChainUnknown, NotThePinnedCA, DialFailed) as e:
            cure = tls_cure(str(e), self.url, pinned=True)
            raise self._failed(f"{e}{cure}", permanent=e.permanent or bool(cure)) from e
        return connection, await self._shake_hands(connection, protocol)

    async def _explained(self, error: ConnectFailed) -> DialFailed:
        """Return the error of a dial with its cure."""
        text = str(error).removeprefix(f"{self.url.authority}: ")
        if error.kind != "tls":
            return self._failed(f"{text}{'' if self._proxy else _UNREACHABLE}", permanent=False)
        cure = tls_cure(text, self.url, pinned=bool(self._hashes))
        if is_about_dates(text):
            try:
                problem = validity_problem(await self._chain(), self._epoch())
            except (ConnectFailed, ChainUnknown, DialFailed):
                problem = None
            cure = f": {problem or 'set the clock of this machine, or renew the certificate'}"
        return self._failed(f"{text}{cure}", permanent=bool(cure))

    def _failed(self, text: str, *, permanent: bool) -> DialFailed:
        failure = DialFailed(f"cannot reach {self.url}: {text}")
        failure.permanent = permanent
        return failure

    async def _reach_verified(self) -> Connection:
        """Connect with TLS, by the context that worked last.

        If it fails, the proxy may have changed to another CA with a known hash.
        """
        context = self._learned or self._context
        if context is not None:
            try:
                return await self._reach(context)
            except ConnectFailed as e:
                self._learned = None
                if e.kind != "tls" or not self._announced():
                    raise
                failure = e
            try:
                return await self._reach_learned()
            except NotThePinnedCA:
                raise failure from None
        return await self._reach_learned()

    async def _reach_learned(self) -> Connection:
        learned = await self._learn()
        connection = await self._reach(learned)
        self._learned = learned
        return connection

    async def _learn(self) -> ssl.SSLContext:
        """Return a context with the proxy's CA, found by its hash."""
        authority = find_authority(await self._chain(), (*self._hashes, *self._announced()))
        digest = key_hash(authority)
        if digest not in (*self._hashes, self._logged):
            self._log.info(
                "using CA {digest} of {proxy}, which the proxy announced earlier",
                digest=digest,
                proxy=str(self.url),
            )
        self._logged = digest
        return pinned_context(authority)

    async def _chain(self) -> list[x509.Certificate]:
        """Return the proxy's certificates, which are not verified."""
        connection = await self._reach(None)
        reader = ChainReader(connection, self.url.host)
        reader.start()
        return await self._within(reader.chain, "the proxy did not answer the TLS handshake")

    async def _reach(self, tls: ssl.SSLContext | None) -> Connection:
        """Connect, through the HTTP proxy if any, with *tls* if given."""
        url, proxy = self.url, self._proxy
        if proxy is None:
            return await self._connect(
                self._reactor, url.host, url.port, tls=tls, server_hostname=url.host, timeout=CONNECT_TIMEOUT
            )
        try:
            connection = await self._connect(self._reactor, proxy.host, proxy.port, timeout=CONNECT_TIMEOUT)
        except ConnectFailed as e:
            name = proxy.variable
            cure = f": correct or unset {name}, or add {url.host} to NO_PROXY" if name else ""
            text = str(e).removeprefix(f"{join_address(proxy.host, proxy.port)}: ")
            raise ConnectFailed(e.kind, f"the HTTP proxy {proxy} cannot be reached: {text}{cure}") from e
        await self._within(connect_through(connection, proxy, url), f"the HTTP proxy {proxy} did not answer")
        if tls is None:
            return connection
        try:
            return await start_tls(self._reactor, connection.detach(), tls, url.host)
        except (TLSFailed, ConnectionEnded, OSError) as e:
            raise ConnectFailed("tls", str(e)) from e

    async def _shake_hands(self, connection: Connection, protocol: str) -> bytes:
        client = ClientSocket(self.url, connection, protocol, echoed=protocol != KUBESPHERE_V1)
        client.factory = self._factory
        transport = PipeTransport(connection, client)
        transport.start()
        try:
            leftover = await self._within(client.done, "it did not answer the WebSocket handshake")
        except DialFailed as e:
            is_plain = isinstance(e, HandshakeDropped) and not self.url.secure
            cure = f": if this is a TLS port, use wss://{self.url.authority}" if is_plain else ""
            failure = type(e)(f"cannot open a tunnel to {self.url}: {e}{cure}")
            failure.permanent = e.permanent or is_plain
            raise failure from e
        transport.release()
        client.forget()
        return leftover

    def _within(self, waiting: Deferred[T], text: str) -> Deferred[T]:
        """Cancel *waiting* after `ANSWER_TIMEOUT`."""

        def too_late(_: object, seconds: float) -> Failure:
            return Failure(DialFailed(f"{text} within {seconds:g} s"))

        return waiting.addTimeout(ANSWER_TIMEOUT, self._reactor, too_late)


def tls_cure(text: str, url: ServerURL, *, pinned: bool) -> str:
    """Return the cure of OpenSSL's error *text*, after a colon; empty: none is known.

    :param pinned: whether `--ca-hash` is set.
    """
    if any(each in text for each in _NO_TLS):
        return (
            ": this port does not use TLS: use the port in the proxy's --secure-port, or, for a connection "
            f"without TLS, ws://{url.authority} without --ca-hash and --ca-cert"
        )
    if "mismatch" in text:
        return (
            f": use a name of its certificate, or restart the proxy with --publish-service-address {url.host}"
        )
    if "certificate verify failed" in text and not pinned:
        return ": set --ca-hash, which 'tower join' prints, or --ca-cert to the CA of this proxy"
    return ""

"""Health checks of node tunnels: an HTTP request to the API server or a kubelet, through that tunnel alone.

Any answer proves that the tunnel works, so no credential is sent: 401 and 403 count as healthy.
"""

from __future__ import annotations

import re
import ssl
from urllib.parse import urlsplit

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.conch.connection.channel import Channel
from tower.errors import ConfigurationError, PeerError, StreamRefused, TowerError, TunnelLost
from tower.net.addresses import join_address
from tower.net.connecting import ConnectFailed
from tower.net.pipes import Pipe
from tower.net.tls.resumption import Resumption
from tower.net.tls.unverified import unverified_context
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.kubelet_address import LOOPBACK, KubeletAddresses
from tower.nodes.tunnels.context import HealthCheck
from tower.nodes.tunnels.tunnel import NodeTunnel
from tower.reactor.timers import within
from tower.tunnels.tls_handshake import TLSHandshake

#: Time limit for one check, s; less than what the list of tunnels allows, so that the check can report the
#: cause.
TIMEOUT = 8.0

#: Path requested from API servers; every release has it.
_PATH = b"/healthz"

#: Most bytes of an answer that are read.
_LONGEST = 4096

#: Cure when a member's API server cannot be verified.
_CURE = (
    "; its address and its CA are in the member's kubeconfig: replace it with "
    "'tower cluster set … --member-kubeconfig FILE'"
)

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")

#: Healthy answers other than 2xx: the server only misses a credential.
_HEALTHY = frozenset((401, 403))


class Unhealthy(PeerError):
    """No answer came through the tunnel."""


class _Probe:
    """The `tower.nodes.tunnels.context.NodeDialer` of one check; notes whether the sshd answered."""

    def __init__(self, tunnel: NodeTunnel) -> None:
        self._tunnel = tunnel
        self._bytes_before = tunnel.bytes_in
        self._was_answered = False

    @property
    def is_alive(self) -> bool:
        """Whether anything came from the node's sshd since the check began.

        An sshd that connects to an address without an answer reports that after two minutes only, but
        meanwhile answers SSH's keepalives, which come more often than a check takes.
        """
        return self._was_answered or self._tunnel.bytes_in > self._bytes_before

    def dial(self, host: str, port: int) -> Deferred[Channel]:
        """Return a channel, and note whether the node answered."""
        return self._tunnel.dial(host, port, TIMEOUT).addCallbacks(self._opened, self._refused)

    def _opened(self, channel: Channel) -> Channel:
        self._was_answered = True
        return channel

    def _refused(self, failure: Failure) -> Failure:
        error = failure.value
        self._was_answered = isinstance(error, StreamRefused) and error.reason != 0
        return failure


class _NoResumption(Resumption):
    """Stores no TLS session: reading one costs memory, and the next check is for another node."""

    __slots__ = ()

    def learn(self, tls: ssl.SSLObject, offered: ssl.SSLSession | None) -> None:
        """Do nothing."""


_NO_RESUMPTION = _NoResumption()


class _HealthAnswer:
    """The receiver of a pipe on which a request was sent; *code* fires with the HTTP status."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._head = b""
        self._over = False
        self.code: Deferred[int] = Deferred(lambda _: self._leave())

    def received(self, data: memoryview) -> None:
        """Read the status line; the rest of the answer is not read."""
        if self._over:
            return
        self._head += data[:_LONGEST]
        match = _STATUS_LINE.match(self._head)
        if match is not None:
            self._end(int(match.group(1)))
        elif b"\n" in self._head or len(self._head) >= _LONGEST:
            self._end(Unhealthy("the answer is not HTTP"))

    def ended(self) -> None:
        """See `tower.net.pipes.Receiver`."""
        self._end(Unhealthy("the connection was closed without an answer"))

    def drained(self) -> None:
        """See `tower.net.pipes.Receiver`."""

    def closed(self, reason: Exception) -> None:
        """See `tower.net.pipes.Receiver`."""
        self._end(Unhealthy(f"the connection broke: {reason}"))

    def _end(self, result: int | Exception) -> None:
        if self._over:
            return
        self._leave()
        if isinstance(result, int):
            self.code.callback(result)
        else:
            self.code.errback(result)

    def _leave(self) -> None:
        self._over = True
        self._pipe.abort()


async def _request(pipe: Pipe, path: bytes, host_line: bytes) -> int:
    """Return the status of one request on *pipe*, and close it; raise `Unhealthy` without an answer."""
    answer = _HealthAnswer(pipe)
    pipe.receiver = answer
    pipe.send(
        b"GET %b HTTP/1.1\r\n%bUser-Agent: tower-proxy\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        % (path, host_line)
    )
    pipe.resume()
    return await answer.code


def _problem(server: str, code: int) -> str:
    return "" if code in _HEALTHY or 200 <= code < 300 else f"{server} answered {code}"


def kubelet_health(url: str, clock: IReactorTime, authority: ssl.SSLContext | None = None) -> HealthCheck:
    """Return kube-apiserver's check: a GET of *url* on a new connection, as the node sees it.

    The tunnel is dead without an answer, and degraded after a bad one.  A kubelet that does not listen on the
    loopback is asked at its node's own address.

    :param url: such as ``https://127.0.0.1:10250/healthz``.
    :param authority: verifies the kubelet; None: no verification, and no secret is sent.
    :raise ConfigurationError: *url* is invalid.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not host or not url.isascii() or not url.isprintable():
        raise ConfigurationError(f"health URL {url!r} is not like https://127.0.0.1:10250/healthz")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    context = None if parts.scheme == "http" else authority or unverified_context()
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host_line = f"Host: {join_address(host, port)}\r\n".encode()

    addresses = KubeletAddresses()

    async def ask(tunnel: NodeTunnel) -> str:
        if host == LOOPBACK:
            channel = await addresses.dial(tunnel, tunnel.node, port)
        else:
            channel = await tunnel.dial(host, port, TIMEOUT)
        try:
            pipe = await _secured(channel, context, host, clock)
        except ConnectFailed as error:
            if error.kind != "tls":
                raise
            return f"the kubelet's TLS: {error}"
        return _problem("the kubelet", await _request(pipe, path.encode(), host_line))

    async def check(tunnel: NodeTunnel) -> str:
        try:
            return await within(clock, TIMEOUT, Deferred.fromCoroutine(ask(tunnel)), defer.TimeoutError)
        except defer.TimeoutError:
            raise Unhealthy(f"Get {url}: no answer within {TIMEOUT:g} s") from None
        except TowerError as error:
            raise Unhealthy(f"Get {url}: {error}") from error

    return check


async def _secured(channel: Channel, context: ssl.SSLContext | None, host: str, clock: IReactorTime) -> Pipe:
    if context is None:
        return channel
    return await TLSHandshake(channel, context, host, clock, _NO_RESUMPTION, timeout=TIMEOUT).secured


def member_health(apiserver: MemberAPIServer, clock: IReactorTime) -> HealthCheck:
    """Return the check of a cluster's API server, which is asked as users' requests are sent.

    The tunnel is dead if its node is silent; after any other failure it is degraded.
    """

    async def ask(probe: _Probe) -> int:
        pipe = await apiserver.open(probe)
        upstream = apiserver.upstream()
        return await _request(pipe, upstream.prefix + _PATH, upstream.host_line)

    async def check(tunnel: NodeTunnel) -> str:
        probe = _Probe(tunnel)
        try:
            code = await within(clock, TIMEOUT, Deferred.fromCoroutine(ask(probe)), defer.TimeoutError)
        except TunnelLost:
            raise
        except defer.TimeoutError:
            if not probe.is_alive:
                raise Unhealthy(f"the node did not answer within {TIMEOUT:g} s") from None
            return f"cannot reach the API server: no answer within {TIMEOUT:g} s"
        except TowerError as error:
            if isinstance(error, StreamRefused) and error.code == "timeout" and not probe.is_alive:
                raise
            cure = _CURE if isinstance(error, StreamRefused) and error.code == "tls" else ""
            return f"cannot reach the API server: {error}{cure}"
        return _problem("the API server", code)

    return check

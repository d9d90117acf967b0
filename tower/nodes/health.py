"""Whether a node's tunnel works: something behind it is asked for its health, through that tunnel alone.

What is asked proves the tunnel by its answer, so no credential goes along: 401 and 403 are as good as 200.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable
from typing import Any, Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TooLate

from tower.clusters.node import Node
from tower.errors import ConfigurationError, PeerError, StreamRefused, TowerError, TunnelLost
from tower.kube.head_policy import Upstream
from tower.net.addresses import join_address
from tower.net.connecting import ConnectFailed
from tower.net.pipes import Pipe
from tower.net.tls.resumption import Resumption
from tower.nodes.kubelet_address import LOOPBACK, KubeletAddresses
from tower.nodes.tunnels.interfaces import HealthCheck
from tower.reactor.timers import within
from tower.tunnels.tls_handshake import TLSHandshake

#: How long one look may take, s; less than what a list allows for it, so that it can say what was wrong.
TIMEOUT = 8.0

#: What is asked of an API server; every release has it.
_PATH = b"/healthz"

#: The longest beginning of an answer that is looked at, B.
_LONGEST = 4096

#: What helps where a member's API server is not whom the proxy takes it for.
_CURE = (
    "; its address and who vouches for it are in the member's kubeconfig: give another --member-kubeconfig"
)

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")

#: Answers of somebody who is well, beside 2xx: he would only like to know who asks.
_WELL = frozenset((401, 403))


class Unhealthy(PeerError):
    """Nothing came back through the tunnel."""


class Dialler(Protocol):
    """A node's tunnel."""

    @property
    def node(self) -> Node:
        """Where it leads."""

    @property
    def bytes_in(self) -> int:
        """What came from the node so far, answers to probes too."""

    def dial(self, host: str, port: int, timeout: float = ...) -> Deferred[Any]:
        """Return a channel to *host*, as the node reaches it."""


class Gate(Protocol):
    """What is needed of `tower.nodes.apiserver.MemberAPIServer`."""

    def upstream(self) -> Upstream:
        """Return what heads need."""

    def open(self, dialler: Any) -> Awaitable[Pipe]:
        """Return a pipe to the API server by way of *dialler*, TLS up in it."""


class _Look:
    """One look through *tunnel*."""

    def __init__(self, tunnel: Dialler) -> None:
        self._tunnel = tunnel
        self._heard = tunnel.bytes_in
        self._was_answered = False

    @property
    def is_alive(self) -> bool:
        """Whether anything came from its sshd since we began.

        One that connects to where nobody answers is silent about that for two minutes, while it goes on
        answering the probes of SSH, which come more often than a look takes.
        """
        return self._was_answered or self._tunnel.bytes_in > self._heard

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Return a channel, and note whether the node answered."""
        return self._tunnel.dial(host, port, TIMEOUT).addCallbacks(self._opened, self._refused)

    def _opened(self, channel: Any) -> Any:
        self._was_answered = True
        return channel

    def _refused(self, failure: Any) -> Any:
        error = failure.value
        self._was_answered = isinstance(error, StreamRefused) and error.reason != 0
        return failure


class _EachTimeAnew(Resumption):
    """Keeps no session: each look at one costs memory, and the next question is for another node."""

    __slots__ = ()

    def learn(self, tls: ssl.SSLObject, offered: ssl.SSLSession | None) -> None:
        """Do not look."""


_EACH_TIME_ANEW = _EachTimeAnew()


class _HealthAnswer:
    """The receiver of a pipe on which a question was asked.

    :ivar code: fires with the status of the answer.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._head = b""
        self._over = False
        self.code: Deferred[int] = Deferred(lambda _: self._leave())

    def received(self, data: memoryview) -> None:
        """Take the beginning of the answer, and no more than that."""
        if self._over:
            return
        self._head += data[:_LONGEST]
        match = _STATUS_LINE.match(self._head)
        if match is not None:
            self._end(int(match.group(1)))
        elif b"\n" in self._head or len(self._head) >= _LONGEST:
            self._end(Unhealthy("the answer is not HTTP"))

    def ended(self) -> None:
        """No answer will come."""
        self._end(Unhealthy("the connection was closed without an answer"))

    def drained(self) -> None:
        """Nothing waits to be sent."""

    def closed(self, reason: Exception) -> None:
        """No answer will come."""
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


async def _code(pipe: Pipe, path: bytes, host_line: bytes) -> int:
    """Return the status of the answer to one question; nothing of *pipe* is left.

    :raise Unhealthy: there was no answer.
    """
    answer = _HealthAnswer(pipe)
    pipe.receiver = answer
    pipe.send(
        b"GET %b HTTP/1.1\r\n%bUser-Agent: tower-proxy\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        % (path, host_line)
    )
    pipe.resume()
    return await answer.code


def _judged(what: str, code: int) -> str:
    return "" if code in _WELL or 200 <= code < 300 else f"{what} answered {code}"


def kubelet_health(url: str, clock: Any, authority: ssl.SSLContext | None = None) -> HealthCheck:
    """Return kube-apiserver's check: *url* is asked for on a fresh connection, as the node sees it.

    The tunnel is dead if no answer comes, and degraded if a bad one comes.  A kubelet that is not on the
    loopback is asked at its node's own address.

    :param url: such as ``https://127.0.0.1:10250/healthz``.
    :param clock: an ``IReactorTime``.
    :param authority: verifies the kubelet; None: nobody does, and nothing secret is said.
    :raise ConfigurationError: *url* is no such URL.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not host or not url.isascii() or not url.isprintable():
        raise ConfigurationError(f"health URL {url!r} is not like https://127.0.0.1:10250/healthz")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    context = None if parts.scheme == "http" else authority or _trusting()
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host_line = f"Host: {join_address(host, port)}\r\n".encode()

    places = KubeletAddresses()

    async def look(tunnel: Dialler) -> str:
        if host == LOOPBACK:
            channel = await places.dial(tunnel, tunnel.node, port)
        else:
            channel = await tunnel.dial(host, port, TIMEOUT)
        try:
            pipe = await _secured(channel, context, host, clock)
        except ConnectFailed as error:
            if error.kind != "tls":
                raise
            return f"the kubelet's TLS: {error}"
        return _judged("the kubelet", await _code(pipe, path.encode(), host_line))

    async def check(tunnel: Dialler) -> str:
        try:
            return await within(clock, TIMEOUT, Deferred.fromCoroutine(look(tunnel)), TooLate)
        except TooLate:
            raise Unhealthy(f"Get {url}: no answer in {TIMEOUT:g} s") from None
        except TowerError as error:
            raise Unhealthy(f"Get {url}: {error}") from error

    return check


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _secured(channel: Any, context: ssl.SSLContext | None, host: str, clock: Any) -> Pipe:
    if context is None:
        pipe: Pipe = channel
        return pipe
    return await TLSHandshake(channel, context, host, clock, _EACH_TIME_ANEW, timeout=TIMEOUT).secured


def member_health(gate: Gate, clock: Any) -> HealthCheck:
    """Return the check for a cluster's API server, reached by the way that requests go.

    The tunnel is dead if its node says nothing; whatever else goes wrong, it is degraded.

    :param clock: an ``IReactorTime``.
    """

    async def ask(look: _Look) -> int:
        pipe = await gate.open(look)
        upstream = gate.upstream()
        return await _code(pipe, upstream.prefix + _PATH, upstream.host_line)

    async def check(tunnel: Dialler) -> str:
        look = _Look(tunnel)
        try:
            code = await within(clock, TIMEOUT, Deferred.fromCoroutine(ask(look)), TooLate)
        except TunnelLost:
            raise
        except TooLate:
            if not look.is_alive:
                raise Unhealthy(f"the node said nothing in {TIMEOUT:g} s") from None
            return f"the API server is not reached: no answer in {TIMEOUT:g} s"
        except TowerError as error:
            if isinstance(error, StreamRefused) and error.code == "timeout" and not look.is_alive:
                raise
            cure = _CURE if isinstance(error, StreamRefused) and error.code == "tls" else ""
            return f"the API server is not reached: {error}{cure}"
        return _judged("the API server", code)

    return check

# mypy: untyped-calls-exclude=twisted
"""An SSH connection to one node, and streams through it to addresses that the node reaches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import Factory, define, field, frozen
from twisted.conch.ssh.common import NS
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.clusters.node import Node
from tower.conch.connection.channel import Channel
from tower.conch.transport.keys import fingerprint
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.endings import ending
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import StreamRefused, TowerError, TunnelLost
from tower.net.addresses import join_address
from tower.net.budget import Budget
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe
from tower.nodes.ssh.client import (
    CONNECT,
    KEEPALIVE_INTERVAL,
    Dial,
    NodePeer,
    NodeTransport,
    authenticated,
    dial_node,
    tcp_dialer,
)
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.failures import OpenFailed, connection_ended
from tower.nodes.ssh.host_keys import HostKeys, describe_node
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.timers import Clock, Timers, within
from tower.tunnels.counters import TunnelCounters

#: Time limit for opening a stream, s.
DIAL = 10.0

#: How often a retiring tunnel is checked for open streams, s.
_RETIRE_PERIOD = 0.5

_DIRECT = b"direct-tcpip"

#: RFC 4254's reasons for not opening a channel (section 5.1).
_PROHIBITED, _CONNECT_FAILED, _UNKNOWN_TYPE, _SHORTAGE = range(1, 5)

#: Texts of OpenSSH and other servers when the node could not connect, and our codes for them.
_TEXTS = (
    ("connection refused", "refused"),
    ("connection timed out", "timeout"),
    ("operation timed out", "timeout"),
    ("i/o timeout", "timeout"),
    ("no route to host", "unreachable"),
    ("network is unreachable", "unreachable"),
    ("host is unreachable", "unreachable"),
    ("name or service not known", "name"),
    ("no address associated", "name"),
    ("temporary failure in name resolution", "name"),
    ("no such host", "name"),
    ("too many open files", "busy"),
)


class NotOpened(TowerError):
    """The tunnel was never open."""


@frozen
class NodeLogin:
    """How to log in to nodes.

    :ivar key: returns the private key; called for each tunnel, because the key may change.
    :ivar host_keys: verifies the nodes.
    """

    user: str
    key: Callable[[], ClientKey]
    host_keys: HostKeys


@define(eq=False, repr=False)
class NodeTunnel:
    """An SSH connection to one node; `open` it once, and create another when it is lost.

    :param reactor: for the connection; see `tower.net.connecting.connect`.
    :param clock: for timeouts and keepalives.
    :param epoch: returns the time of day, s since the epoch.
    :param keepalive: interval between probes of the node, s; a silent node is given up within three of them.
    :param connect: time limit for the TCP connection, s.
    :param limits: of the SSH connection; default: those of `NodeTransport`.
    :param dial: connects to the node's sshd; default: with *reactor*, within *connect* s.
    :param counters: those of the cluster; default: none.
    :ivar login: used by `open`.
    :ivar host_key: fingerprint of the node's key; empty before the login.
    :ivar version: of the node's SSH server.
    :ivar draining: whether it accepts no new streams.
    :ivar lost: fires with the reason when the open tunnel is lost.
    """

    _reactor: ISocketReactor
    _clock: Clock
    node: Node
    login: NodeLogin
    _budget: Budget
    _epoch: Callable[[], float] = field(kw_only=True)
    _keepalive: float = field(default=KEEPALIVE_INTERVAL, kw_only=True)
    _connect: float = field(default=CONNECT, kw_only=True)
    _limits: TransportLimits | None = field(default=None, kw_only=True)
    _dial: Dial | None = field(default=None, kw_only=True)
    _counters: TunnelCounters | None = field(default=None, kw_only=True)
    host_key: str = field(default="", init=False)
    version: str = field(default="", init=False)
    draining: bool = field(default=False, init=False)
    lost: Deferred[Exception] = field(factory=Deferred, init=False)
    _timers: Timers = field(default=Factory(lambda self: Timers(self._clock), takes_self=True), init=False)
    _opening: Deferred[None] | None = field(default=None, init=False)
    _tunnel: SSHTunnel | None = field(default=None, init=False)
    _was_opened: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed" if self._was_opened else "not open"
        return f"<NodeTunnel {self.login.user}@{self.node.address} {state}>"

    # Opening

    def open(self) -> Deferred[None]:
        """Connect and log in; fires once streams can be opened.  Cancelling leaves nothing behind.

        :raise ConfigurationError: through the Deferred: the private key is unusable; no connection was tried.
        :raise OpenFailed: through the Deferred.
        """
        assert self._opening is None, "a tunnel is opened once"
        opening: Deferred[None] = Deferred.fromCoroutine(self._open())
        self._opening = opening
        return opening

    async def _open(self) -> None:
        node, user, key = self.node, self.login.user, self.login.key()
        dial = self._dial or tcp_dialer(self._reactor, self._connect)
        ssh = NodeTransport(
            self._clock, node, user, key, self.login.host_keys, keepalive=self._keepalive, limits=self._limits
        )
        try:
            pipe = await dial_node(self._clock, node, dial, self._connect)
            peer = await self._authenticate(pipe, ssh)
        except CancelledError:
            raise
        except Exception as error:
            raise OpenFailed(user, node, error) from error
        self.host_key, self.version = fingerprint(peer.host_key), peer.version

    def _authenticate(self, pipe: Pipe, ssh: NodeTransport) -> Deferred[NodePeer]:
        tunnel = SSHTunnel(self._reactor, pipe, ssh, UNFRAMED, UNFRAMED)
        tunnel.lost.addCallback(self._gone)
        ssh.ready.addCallback(self._open_up, tunnel)
        opened = authenticated(ssh, tunnel.abort)
        tunnel.start()
        return opened

    def _open_up(self, peer: NodePeer, tunnel: SSHTunnel) -> NodePeer:
        self._tunnel, self._was_opened = tunnel, True
        tunnel.open_up(
            self.node.name,
            fingerprint(peer.host_key),
            peer.version,
            self._epoch(),
            self._budget,
            traffic=None if self._counters is None else self._counters.traffic,
        )
        return peer

    def _gone(self, reason: Exception) -> None:
        self._timers.cancel_all()
        if self._tunnel is not None:
            self._tunnel = None
            if self._counters is not None:
                self._counters.disconnects[ending(reason)] += 1
            self.lost.callback(connection_ended(reason))

    # Streams

    def dial(self, host: str, port: int, timeout: float = DIAL) -> Deferred[Channel]:
        """Open a stream to *port* of *host*, a name or an address as the node sees it.

        The channel comes paused.  Cancelling is allowed.

        :param timeout: s.
        :raise StreamRefused: through the Deferred: the node did not connect in time, or at all.
        :raise TunnelLost: through the Deferred: the tunnel is closed or closing.
        :raise NotOpened: through the Deferred: the tunnel was never open.
        """
        tunnel = self._tunnel
        if tunnel is None:
            if not self._was_opened:
                return fail(NotOpened("tunnel is not opened."))
            return fail(TunnelLost(f"the tunnel to {describe_node(self.node)} is closed"))
        if self.draining:
            return fail(TunnelLost(f"the tunnel to {describe_node(self.node)} accepts no new streams"))
        where = NS(host.encode()) + port.to_bytes(4, "big")
        from_here = NS(b"127.0.0.1") + bytes(4)
        opening = tunnel.open_channel(_DIRECT, where + from_here)
        target = join_address(host, port)
        node = self.node

        def late() -> StreamRefused:
            return StreamRefused(
                "timeout", f"{describe_node(node)} did not connect to {target} within {timeout:g} s"
            )

        def refused(failure: Failure) -> Channel:
            error = failure.value
            if isinstance(error, StreamRefused) and error.reason:
                raise _refusal(error, node, target) from None
            failure.raiseException()

        return within(self._clock, timeout, opening, late).addErrback(refused)

    def endpoint(self, host: str, port: int) -> IStreamClientEndpoint:
        """Return a Twisted endpoint for *port* of *host*, as the node sees it; it uses only this tunnel."""
        return NodeEndpoint(self, host, port)

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return 0 if self._tunnel is None else self._tunnel.streams

    @property
    def round_trip(self) -> float:
        """Round-trip time to the node, s; 0 while unknown."""
        return 0.0 if self._tunnel is None else self._tunnel.round_trip

    @property
    def bytes_in(self) -> int:
        """Bytes received from the node, including answers to probes; 0 while not open."""
        return 0 if self._tunnel is None else self._tunnel.bytes_in

    @property
    def since(self) -> float:
        """When it opened, s since the epoch; 0 while not open."""
        return 0.0 if self._tunnel is None else self._tunnel.since

    @property
    def is_open(self) -> bool:
        """Whether streams can be opened."""
        return self._tunnel is not None

    # Closing

    def close(self, reason: str) -> None:
        """Close the tunnel with all of its streams, or cancel its opening.

        :param reason: the result of `lost`; it is not sent to the node.
        :raise NotOpened: `open` was never called.
        """
        if self._opening is None:
            raise NotOpened("Cannot close tunnel. Tunnel was not opened.")
        if self._tunnel is not None:
            self._tunnel.close(reason)
        else:
            self._opening.cancel()

    def retire(self, grace: float) -> None:
        """Accept no new streams; close when the open ones have ended, after *grace* s at the latest.

        Connection pools do not reuse connections through this tunnel.
        """
        tunnel = self._tunnel
        self.draining = True
        if tunnel is None:
            if self._opening is not None:
                self._opening.cancel()
            return
        tunnel.draining = True
        self._timers.set("grace", grace, partial(self.close, "the node left the list"))
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self.streams:
            self.close("the node left the list")
        else:
            self._timers.set("idle", _RETIRE_PERIOD, self._close_if_idle)


@implementer(IStreamClientEndpoint)
class NodeEndpoint:
    """See `NodeTunnel.endpoint`."""

    def __init__(self, tunnel: NodeTunnel, host: str, port: int) -> None:
        self.tunnel = tunnel
        self._host = host
        self._port = port

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a stream and connect a protocol of *protocolFactory* to it.

        :raise twisted.internet.error.ConnectError: through the Deferred, with the node's reason.
        """
        opening = self.tunnel.dial(self._host, self._port).addCallbacks(_no_data, _not_connected)
        return connected(opening, protocolFactory, HostnameAddress(self._host.encode(), self._port))


def _no_data(channel: Channel) -> tuple[Pipe, bytes]:
    return channel, b""


def _not_connected(failure: Failure) -> tuple[Pipe, bytes]:
    error = failure.value
    if isinstance(error, TowerError):
        raise ConnectError(string=str(error)) from error
    failure.raiseException()


def _refusal(refused: StreamRefused, node: Node, target: str) -> StreamRefused:
    """Translate a node's refusal; the server's text is more precise than its reason code."""
    text = refused.reported_by("its sshd")
    reason = refused.reason
    if reason == _PROHIBITED:
        return StreamRefused(
            "not-allowed",
            f"{describe_node(node)} does not allow connections to {target} ({text}): set AllowTcpForwarding "
            "yes in its sshd_config, and add the address to PermitOpen there or to permitopen in "
            "authorized_keys, if set",
            reason,
        )
    code = "failed"
    if reason == _SHORTAGE:
        code = "busy"
    elif reason == _CONNECT_FAILED:
        lower = text.lower()
        code = next((code for known, code in _TEXTS if known in lower), "failed")
    return StreamRefused(code, f"{describe_node(node)} did not connect to {target}: {text}", reason)

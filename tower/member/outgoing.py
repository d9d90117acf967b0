"""The agent's streams: the proxy opens them, the agent dials their targets if the owner allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import BadMessage, Incoming, parse_string
from tower.conch.tunnel.tunnel import STREAM
from tower.errors import StreamRefused, TunnelLost
from tower.kube.apiserver import APIServer
from tower.kube.head_policy import HeadPolicy
from tower.member.apiserver_relay import RequestRelay, Rewrite
from tower.member.policy.owner_gate import OwnerGate
from tower.member.stream_tally import StreamTally
from tower.member.targets import TargetRefused, Targets
from tower.member.unfinished_heads import UNUSED_LIMIT, UnfinishedHeads
from tower.net.budget import Budget
from tower.net.connecting import ConnectFailed, connect
from tower.net.connection import Connection
from tower.net.pipes import join
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.log_batch import Summary
from tower.tunnels.targets import KUBERNETES

#: Timeout for connecting to a target, TLS included, s.
DIAL_TIMEOUT = 10.0

#: Concurrent dials of one tunnel.
DIAL_LIMIT = 512


class Destinations(Protocol):
    """The targets of a tunnel's streams."""

    def requested(self, incoming: Incoming) -> str:
        """Return the name of the requested target.

        :raise TargetRefused: the request is malformed.
        """

    def describe(self, incoming: Incoming) -> str:
        """Return the requested target for the log, even if it is malformed."""

    def target_of(self, name: str) -> str:
        """Return the target of *name* for metrics: never an address."""

    def dial(self, name: str) -> Deferred[Connection]:
        """Connect to the target of that name.

        :raise TargetRefused: the owner does not allow it.
        """

    def join(self, name: str, channel: Channel, connection: Connection) -> None:
        """Relay bytes between *channel* and *connection*."""


def _ignore(error: ConnectFailed | None) -> None:
    """No-op: nothing follows the connections."""


@define(eq=False)
class Outgoing:
    """Dials the targets of one agent's streams.

    A stream is accepted when its target has answered, for the API server after the TLS handshake.  So the
    user gets the reason of a failure.

    :param owner: enforces the policy of the cluster's owner; None: there is none.
    :param connect: `tower.net.connecting.connect`, or a replacement in tests.
    :ivar on_dialed: called after each attempt to connect to the API server, with its error or None.
    :ivar unfinished: the streams to the API server that wait for the head of a request.
    :ivar rejections: summarizes the log lines about requests that are rejected.
    """

    _log = Logger()

    _reactor: ISocketReactor
    _member: APIServer
    _policy: HeadPolicy
    _targets: Targets
    _budget: Budget
    _owner: OwnerGate | None = field(default=None, kw_only=True)
    _connect: Callable[..., Deferred[Connection]] = field(default=connect, kw_only=True)
    _opening: int = field(default=0, init=False)  # to the API server
    tally: StreamTally = field(init=False)
    unfinished: UnfinishedHeads = field(init=False)
    rejections: Summary = field(init=False)
    on_dialed: Callable[[ConnectFailed | None], None] = field(default=_ignore, init=False)

    def __attrs_post_init__(self) -> None:
        """Start without streams."""
        self.tally = StreamTally(self._reactor, self._targets.names)
        self.unfinished = UnfinishedHeads(self._reactor, self._budget)
        self.rejections = Summary(self._reactor, self._log)

    def for_tunnel(self) -> Dialing:
        """Return the acceptor of one tunnel's streams."""
        return Dialing(self, self.tally)

    def requested(self, incoming: Incoming) -> str:
        """See `Destinations.requested`."""
        if incoming.kind != STREAM:
            raise TargetRefused("not-allowed", f"only channels of type {STREAM.decode()} are supported")
        try:
            name, end = parse_string(memoryview(incoming.data), 0)
        except BadMessage as e:
            raise TargetRefused("not-allowed", "the channel request has no target") from e
        if end != len(incoming.data):
            raise TargetRefused("not-allowed", "the channel request has data after the target")
        return name.decode("ascii", "replace")

    def describe(self, incoming: Incoming) -> str:
        """See `Destinations.describe`."""
        return incoming.data[4:104].decode("ascii", "replace")

    def target_of(self, name: str) -> str:
        """See `Destinations.target_of`."""
        return name

    def dial(self, name: str) -> Deferred[Connection]:
        """See `Destinations.dial`."""
        if name == KUBERNETES:
            return self._dial_api_server()
        target = self._targets.find(name)
        if self._owner is not None:
            self._owner.check_target(name)
        return self._connect(self._reactor, target.host, target.port, timeout=DIAL_TIMEOUT)

    def _dial_api_server(self) -> Deferred[Connection]:
        if self._opening + self.unfinished.unused >= UNUSED_LIMIT:
            raise TargetRefused(
                "busy",
                f"{UNUSED_LIMIT} streams, the limit, are being opened or wait for their first request: "
                "retry later",
            )
        member = self._member
        dialing = self._connect(
            self._reactor,
            member.host,
            member.port,
            tls=member.tls,
            server_hostname=member.server_name,
            timeout=DIAL_TIMEOUT,
        )
        self._opening += 1
        return dialing.addBoth(self._opened)

    def _opened(self, result: Any) -> Any:
        self._opening -= 1
        if not isinstance(result, Failure):
            self.on_dialed(None)
        elif isinstance(result.value, ConnectFailed):
            self.on_dialed(result.value)
        return result

    def join(self, name: str, channel: Channel, connection: Connection) -> None:
        """See `Destinations.join`; requests for the API server pass the policy."""
        owner = self._owner
        if name == KUBERNETES:
            rewrite: Rewrite = self._policy.rewrite
            if owner is not None:
                rewrite = owner.guard(channel, rewrite)
            RequestRelay(channel, connection, rewrite, self.rejections, self.unfinished).start()
            return
        join(channel, connection)
        text = owner.watch_stream(channel, name) if owner is not None else ""
        if text:
            self.rejections.log("streams were cut", "cut stream: {text}", text=text)


@define(eq=False)
class Dialing:
    """The dials in progress of one tunnel; call `lost` when the tunnel is lost."""

    _destinations: Destinations
    _tally: StreamTally
    _pending: set[Deferred[Any]] = field(factory=set, init=False)

    def accept(self, incoming: Incoming) -> None:
        """Dial the target of a stream that the proxy requests, or reject the stream."""
        destinations = self._destinations
        try:
            name = destinations.requested(incoming)
            if len(self._pending) >= DIAL_LIMIT:
                raise TargetRefused("busy", f"{DIAL_LIMIT} streams, the limit, are being opened: retry later")
            dialing = destinations.dial(name)
        except TargetRefused as e:
            self._tally.not_allowed(e.code)
            self._tally.refuse(destinations.describe(incoming), incoming, e.code, str(e))
            return
        self._pending.add(dialing)
        dialing.addBoth(self._dialed, dialing, name, incoming, self._tally.seconds())

    def _dialed(
        self,
        result: Connection | Failure,
        dialing: Deferred[Any],
        name: str,
        incoming: Incoming,
        began: float,
    ) -> None:
        self._pending.discard(dialing)
        target = self._destinations.target_of(name)
        if isinstance(result, Failure):
            self._tally.failed(name, incoming, result, target)
        else:
            self._tally.dials[target].times.observe(self._tally.seconds() - began)
            self._join(name, incoming, result, target)

    def _join(self, name: str, incoming: Incoming, connection: Connection, target: str) -> None:
        """Open the stream and relay its bytes."""
        try:
            channel = incoming.accept()
        except (TunnelLost, StreamRefused) as e:
            connection.abort()
            if isinstance(e, StreamRefused):
                self._tally.refuse(name, incoming, e.code, str(e))
            return
        self._tally.dialed += 1
        channel.label = target
        self._destinations.join(name, channel, connection)

    def lost(self, reason: Exception) -> Exception:
        """Cancel all dials, because the tunnel is lost; return *reason*."""
        for dialing in list(self._pending):
            dialing.cancel()
        return reason

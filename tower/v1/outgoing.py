"""Streams that an old proxy opens: to the two registered addresses only."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define
from twisted.internet.defer import Deferred

from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.member.outgoing import DIAL_TIMEOUT, Dialing
from tower.member.stream_tally import StreamTally
from tower.member.targets import TargetRefused
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.pipes import join
from tower.reactor.interfaces import ISocketReactor
from tower.tunnels.targets import KUBERNETES, KUBESPHERE
from tower.v1.config import CHANNEL
from tower.v1.redaction import Redactor
from tower.v1.registration import Registration

#: Longest address accepted, B.
_LONGEST_ADDRESS = 512


@define(eq=False)
class RegisteredDestinations:
    """Destinations of one tunnel: the addresses of its registration.

    Bytes are relayed unchanged: TLS is between the proxy and the API server.

    :param connect: `tower.net.connecting.connect`, or a test's replacement.
    """

    _reactor: ISocketReactor
    _registration: Registration
    _connect: Callable[..., Deferred[Connection]]

    def requested(self, incoming: Incoming) -> str:
        """See `tower.member.outgoing.Destinations.requested`."""
        if incoming.kind != CHANNEL:
            raise TargetRefused(
                "not-allowed", f"channels of type {CHANNEL.decode()} are opened here, and no others"
            )
        name = incoming.data[:_LONGEST_ADDRESS].decode("ascii", "replace").lower()
        if name not in self._registration.addresses:
            raise TargetRefused(
                "not-allowed", "this agent dials the two addresses that it registered, and no others"
            )
        return name

    def describe(self, incoming: Incoming) -> str:
        """See `tower.member.outgoing.Destinations.describe`."""
        return Redactor(self._registration.config).redact(incoming.data) if incoming.data else ""

    def target_of(self, name: str) -> str:
        """See `tower.member.outgoing.Destinations.target_of`."""
        return KUBESPHERE if name == self._registration.config.kubesphere.lower() else KUBERNETES

    def dial(self, name: str) -> Deferred[Connection]:
        """See `tower.member.outgoing.Destinations.dial`."""
        address = self._registration.addresses[name]
        return self._connect(self._reactor, address.host, address.port, timeout=DIAL_TIMEOUT)

    def join(self, name: str, channel: Channel, connection: Connection) -> None:
        """See `tower.member.outgoing.Destinations.join`."""
        join(channel, connection)


class V1Outgoing:
    """Dials for the streams of one agent.

    :param connect: `tower.net.connecting.connect`, or a test's replacement.
    :ivar tally: of all streams.
    """

    def __init__(
        self, reactor: ISocketReactor, *, connect: Callable[..., Deferred[Connection]] = connect
    ) -> None:
        self._reactor = reactor
        self._connect = connect
        self.tally = StreamTally(reactor, (KUBERNETES, KUBESPHERE))

    def for_tunnel(self, registration: Registration) -> Dialing:
        """Return the acceptor of one tunnel's streams."""
        return Dialing(RegisteredDestinations(self._reactor, registration, self._connect), self.tally)

"""The agent's outgoing side: streams that the proxy opens, led to where the owner allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import BadMessage, Incoming, parse_string
from tower.conch.tunnel.tunnel import STREAM
from tower.errors import StreamRefused, TunnelLost
from tower.kube.apiserver import APIServer
from tower.kube.head_policy import HeadPolicy
from tower.member.apiserver_relay import RequestRelay
from tower.member.targets import TargetRefused, Targets
from tower.member.unfinished_heads import UNUSED_LIMIT, UnfinishedHeads
from tower.net.budget import Budget
from tower.net.connecting import ConnectFailed, connect
from tower.net.connection import Connection
from tower.net.pipes import join
from tower.tunnels.targets import KUBERNETES

#: How long a target may take to answer, TLS included, s.
DIAL_TIMEOUT = 10.0

#: Targets being dialled at one time for one tunnel.
DIAL_LIMIT = 512

#: Refusals that are logged at once, and so many a second; the others are counted.
REFUSALS = 50.0
REFUSALS_RATE = 1.0


class Destinations(Protocol):
    """Knows where the streams of a tunnel may lead."""

    def wanted(self, incoming: Incoming) -> str:
        """Return the name of what is wanted.

        :raise TargetRefused: that is nothing we know.
        """

    def shown(self, incoming: Incoming) -> str:
        """Return what is wanted for the log, whatever it is."""

    def dial(self, name: str) -> Deferred[Connection]:
        """Connect to the target of that name.

        :raise TargetRefused: the owner does not allow it.
        """

    def join(self, name: str, channel: Channel, connection: Connection) -> None:
        """Let bytes flow."""


class StreamTally:
    """Counts the streams of an agent and logs why some were refused: so many lines, however many those are.

    :ivar dialled: connections opened so far.
    :ivar refused: streams refused so far.
    """

    _log = Logger()

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._allowance = REFUSALS
        self._counted_at = 0.0
        self._unsaid = 0
        self.dialled = self.refused = 0

    def refuse(self, name: str, incoming: Incoming, code: str, text: str) -> None:
        """Say no, to the proxy and in the log."""
        self.refused += 1
        incoming.refuse(code, text)
        now = self._clock.seconds()
        self._allowance = min(REFUSALS, self._allowance + (now - self._counted_at) * REFUSALS_RATE)
        self._counted_at = now
        if self._allowance < 1.0:
            self._unsaid += 1
            return
        self._allowance -= 1.0
        if self._unsaid:
            self._log.info("{unsaid} more streams were refused", unsaid=self._unsaid)
            self._unsaid = 0
        self._log.info(
            "a stream to {target!r} was refused: {code}: {reason}", target=name, code=code, reason=text
        )

    def failed(self, name: str, incoming: Incoming, failure: Failure) -> None:
        """Say why the target was not reached; after a cancellation there is nobody to tell."""
        error = failure.value
        if isinstance(error, ConnectFailed):
            self.refuse(name, incoming, error.kind, str(error))
        elif not isinstance(error, CancelledError):
            self._log.failure("cannot dial {target!r}", failure, target=name)
            incoming.refuse("failed", "the agent could not dial; its log says why")


class Outgoing:
    """Dials for the streams of one agent.

    A stream is accepted when its target has answered and, for the API server, TLS is up; so the proxy's
    user hears why it failed.

    :param budget: of the process.
    :param connect: `tower.net.connecting.connect`, or what a test has instead.
    :ivar tally: of all streams.
    :ivar unfinished: the streams to the API server that wait for the head of a request.
    """

    def __init__(
        self,
        reactor: Any,
        member: APIServer,
        policy: HeadPolicy,
        targets: Targets,
        budget: Budget,
        *,
        connect: Callable[..., Deferred[Connection]] = connect,
    ) -> None:
        self._reactor = reactor
        self._member = member
        self._policy = policy
        self._targets = targets
        self._connect = connect
        self._opening = 0  # to the API server
        self.tally = StreamTally(reactor)
        self.unfinished = UnfinishedHeads(reactor, budget)

    def for_tunnel(self) -> Dialing:
        """Return what accepts the streams of one tunnel."""
        return Dialing(self, self.tally)

    def wanted(self, incoming: Incoming) -> str:
        """See `Destinations.wanted`."""
        if incoming.kind != STREAM:
            raise TargetRefused(
                "not-allowed", f"channels of type {STREAM.decode()} are opened here, and no others"
            )
        try:
            name, end = parse_string(memoryview(incoming.data), 0)
        except BadMessage as e:
            raise TargetRefused("not-allowed", "the stream names no target") from e
        if end != len(incoming.data):
            raise TargetRefused("not-allowed", "the stream names more than a target")
        return name.decode("ascii", "replace")

    def shown(self, incoming: Incoming) -> str:
        """See `Destinations.shown`."""
        return incoming.data[4:104].decode("ascii", "replace")

    def dial(self, name: str) -> Deferred[Connection]:
        """See `Destinations.dial`."""
        if name == KUBERNETES:
            return self._dial_api_server()
        target = self._targets.find(name)
        return self._connect(self._reactor, target.host, target.port, timeout=DIAL_TIMEOUT)

    def _dial_api_server(self) -> Deferred[Connection]:
        if self._opening + self.unfinished.unused >= UNUSED_LIMIT:
            raise TargetRefused(
                "busy", f"{UNUSED_LIMIT} streams are being opened or wait for their first request"
            )
        member = self._member
        dialling = self._connect(
            self._reactor,
            member.host,
            member.port,
            tls=member.tls,
            server_hostname=member.server_name,
            timeout=DIAL_TIMEOUT,
        )
        self._opening += 1
        return dialling.addBoth(self._opened)

    def _opened(self, result: Any) -> Any:
        self._opening -= 1
        return result

    def join(self, name: str, channel: Channel, connection: Connection) -> None:
        """See `Destinations.join`; what goes to the API server goes by way of the policy."""
        if name == KUBERNETES:
            RequestRelay(channel, connection, self._policy.rewrite, self.unfinished).start()
        else:
            join(channel, connection)


class Dialing:
    """What is being dialled for one tunnel; `stop` it when the tunnel is gone."""

    def __init__(self, ways: Destinations, tally: StreamTally) -> None:
        self._ways = ways
        self._tally = tally
        self._pending: set[Deferred[Any]] = set()

    def accept(self, incoming: Incoming) -> None:
        """Decide about a stream that the proxy wants."""
        ways = self._ways
        try:
            name = ways.wanted(incoming)
            if len(self._pending) >= DIAL_LIMIT:
                raise TargetRefused("busy", f"{DIAL_LIMIT} streams are being opened already")
            dialling = ways.dial(name)
        except TargetRefused as e:
            self._tally.refuse(ways.shown(incoming), incoming, e.code, str(e))
            return
        self._pending.add(dialling)
        dialling.addBoth(self._dialled, dialling, name, incoming)

    def _dialled(
        self, result: Connection | Failure, dialling: Deferred[Any], name: str, incoming: Incoming
    ) -> None:
        self._pending.discard(dialling)
        if isinstance(result, Failure):
            self._tally.failed(name, incoming, result)
        else:
            self._join(name, incoming, result)

    def _join(self, name: str, incoming: Incoming, connection: Connection) -> None:
        """Open the stream, and let bytes flow."""
        try:
            channel = incoming.accept()
        except (TunnelLost, StreamRefused) as e:
            connection.abort()
            if isinstance(e, StreamRefused):
                self._tally.refuse(name, incoming, e.code, str(e))
            return
        self._tally.dialled += 1
        self._ways.join(name, channel, connection)

    def stop(self) -> None:
        """Give up what is being dialled."""
        for dialling in list(self._pending):
            dialling.cancel()

"""Connections after a change of protocol: upgrades, and raw streams to a target of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tower.kube.status import StatusError
from tower.net.pipes import Pipe, Splice
from tower.web.gateway.exchange import Exchange
from tower.web.gateway.notice.stop_notice import StopNotice
from tower.web.gateway.upstream.channel_pool import Attempt
from tower.web.outcome import RawStream

if TYPE_CHECKING:
    from tower.web.gateway.http_channel import HTTPChannel
    from tower.web.gateway.request import Request
    from tower.web.gateway.upstream.cluster_upstream import ClusterUpstream

#: The protocol that ``tower forward`` upgrades to.
TOWER_STREAM = b"tower-stream"

_SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tower-stream\r\n\r\n"


class _UserSplice(Splice):
    """The user's half of a splice; ends the channel when it closes."""

    def __init__(self, channel: HTTPChannel, pipe: Pipe) -> None:
        super().__init__(channel.connection, pipe)
        self._channel = channel

    def closed(self, reason: Exception) -> None:
        """See `tower.net.pipes.Receiver.closed`."""
        super().closed(reason)
        self._channel.forget()


class _MemberSplice(Splice):
    """The member's half of a splice; records that the member or the tunnel broke the stream off."""

    def __init__(self, pipe: Pipe, channel: HTTPChannel) -> None:
        super().__init__(pipe, channel.connection)
        self._channel = channel

    def closed(self, reason: Exception) -> None:
        """See `tower.net.pipes.Receiver.closed`."""
        request = self._channel.request
        if self.other is not None and not self._ended and request is not None:
            request.aborted("member")
        super().closed(reason)


class _Notified:
    """Receiver of a user's connection after a notice: waits until the user closes it.

    If the proxy closed first, the close could overtake the notice: in kubectl, different goroutines deliver
    frames and the end of the connection.
    """

    def __init__(self, channel: HTTPChannel) -> None:
        self._channel = channel

    def received(self, data: memoryview) -> None:
        """Discard bytes that were sent before the notice was read."""

    def ended(self) -> None:
        """See `tower.net.pipes.Receiver.ended`."""
        self._channel.connection.close()

    def drained(self) -> None:
        """See `tower.net.pipes.Receiver.drained`."""

    def closed(self, reason: Exception) -> None:
        """See `tower.net.pipes.Receiver.closed`."""
        self._channel.forget()


class FramedSplice(_MemberSplice):
    """A `_MemberSplice` for a protocol with a `StopNotice`: follows the frames to the user.

    :ivar notified: the notice was sent.
    """

    def __init__(self, pipe: Pipe, channel: HTTPChannel, notice: StopNotice) -> None:
        super().__init__(pipe, channel)
        self._boundaries = notice.boundaries
        self._last_frames = notice.last_frames
        self._reason = ""
        self.notified = False

    def received(self, data: memoryview) -> None:
        """See `tower.net.pipes.Receiver.received`."""
        if not self._reason:
            self._boundaries.follow(data)
            super().received(data)
            return
        boundary = self._boundaries.find(data)
        super().received(data if boundary < 0 else data[:boundary])
        if boundary >= 0:
            self._end()

    def end_with(self, reason: str) -> None:
        """Send *reason* to the user once the current frame has ended, and end the member's side."""
        self._reason = reason
        if self._boundaries.is_at_one:
            self._end()

    def _end(self) -> None:
        request, there = self._channel.request, self.other
        if there is None or request is None:
            return
        request.aborted("tower")
        self.notified = True
        self.other = there.other = None
        user = self._channel.connection
        user.send(self._last_frames(self._reason))
        user.receiver = _Notified(self._channel)
        user.resume()
        self._source.abort()


def go_raw(channel: HTTPChannel, pipe: Pipe, first: bytes, notice: StopNotice | None = None) -> None:
    """Send *first* to the user, then pass bytes both ways between the user and *pipe*.

    :param notice: how a stopping proxy ends the stream; None: it cuts the connection.
    """
    early = channel.release()
    user = channel.connection
    there = _UserSplice(channel, pipe)
    if notice is None:
        back = _MemberSplice(pipe, channel)
    else:
        back = channel.upgraded = FramedSplice(pipe, channel, notice)
    there.other, back.other = back, there
    user.receiver, pipe.receiver = there, back
    pipe.pause()
    if user.send(first):
        pipe.resume()
    if not early or pipe.send(early):
        user.resume()


class StreamOpening(Exchange):
    """Opens a raw stream for one request."""

    def __init__(self, request: Request, stream: RawStream) -> None:
        if request.fields.upgrade.lower() != TOWER_STREAM:
            raise StatusError(
                426, f"a stream requires the fields Connection: Upgrade and Upgrade: {TOWER_STREAM.decode()}"
            )
        if request.fields.body:
            raise StatusError(400, "an upgrade request must not have a body", close=True)
        self._request = request
        self._stream = stream
        self._opening: Deferred[ClusterUpstream] | None = None
        self._attempt: Attempt | None = None
        self._age = 0

    def start(self) -> None:
        """Open the stream."""
        pool = self._request.channel.gateway.pool
        attempt = self._attempt = Attempt(self._request.client, self._age)
        opening = self._opening = pool.open(self._stream.cluster, self._stream.target, attempt)
        opening.addCallbacks(self._opened, self._not_opened)

    def _opened(self, upstream: ClusterUpstream) -> None:
        self._opening = None
        request = self._request
        request.switched()
        go_raw(request.channel, upstream.channel, _SWITCHED)

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        if not (self._request.over or failure.check(CancelledError)):
            self._request.failed(failure)

    def abandon(self) -> None:
        """Cancel the opening."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()

    def tick(self, age: int) -> None:
        """Fail if the tunnel does not answer in time; try another one if this one is silent."""
        self._age = age
        tunnel = None if self._attempt is None else self._attempt.tunnel
        if tunnel is not None and self._request.channel.gateway.pool.is_silent(tunnel):
            self.abandon()
            self.start()
            return
        limit = self._request.channel.gateway.limits.answer
        if age > limit:
            text = f"cluster {self._stream.cluster} did not open the stream within {limit:.0f} s"
            self._request.fail(StatusError(504, text))

# mypy: untyped-calls-exclude=twisted
"""Global requests (RFC 4254 section 4), and their service.

`ConnectionService` is ``ssh-connection`` as a service of Conch's transport: it handles global requests itself
and passes channel messages (90-100) to the mux, once there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.internet.defer import Deferred, fail, succeed

from tower.conch.connection.mux import Mux
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.limits import TokenBucket
from tower.conch.transport.userauth_messages import CONNECTION
from tower.errors import PeerError, TowerError
from tower.reactor.timers import Clock

if TYPE_CHECKING:
    from tower.conch.connection.liveness import LivenessTransport

MSG_GLOBAL_REQUEST = 80
MSG_REQUEST_SUCCESS = 81
MSG_REQUEST_FAILURE = 82

#: Limit of our requests without a reply.
PENDING = 32
#: The peer's requests: burst, and rate per second (one keepalive a second would be much).
BURST = 200.0
RATE = 20.0


class RequestRefused(TowerError):
    """The peer refused our request, or does not know it; or we refuse the peer's.

    :ivar reply: payload of the refusal: none by RFC 4254, a text in ``kubesphere-v1``.
    """

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply


class Unanswered(TowerError):
    """No reply will come: the connection is over, or too many requests are pending."""


#: Handles a request: gets the transport and the request's data, returns the reply's data.
Answer = Callable[[Any, bytes], bytes]


class ConnectionService(SSHService):
    """Global requests, both ways, in order.

    :ivar mux: gets the messages 90-100; without one they end the connection.
    :ivar answers: handlers by name of the request; they may raise `RequestRefused`.
    :ivar unknown: payload of the refusal of any other request.
    """

    __slots__ = ("_allowance", "_clock", "_over", "_pending", "answers", "mux", "transport", "unknown")

    name = CONNECTION
    transport: LivenessTransport | None

    def __init__(self, clock: Clock, answers: Mapping[bytes, Answer]) -> None:
        self._clock = clock
        self._pending: list[Deferred[bytes]] = []
        self._allowance = TokenBucket(BURST, RATE, 0.0)
        self._over = False
        self.mux: Mux | None = None
        self.answers = answers
        self.unknown = b""
        self.transport = None

    def serviceStarted(self) -> None:
        """Start the rate limit."""
        self._allowance = TokenBucket(BURST, RATE, self._clock.seconds())

    def serviceStopped(self) -> None:
        """Fail all pending requests and drop references."""
        self._over = True
        self.transport = self.mux = None
        while self._pending:
            self._pending.pop(0).errback(Unanswered("the connection is over"))

    def request(self, name: bytes, data: bytes = b"", *, want_reply: bool = True) -> Deferred[bytes]:
        """Send a request; return its reply's data, or b"" at once if no reply is wanted.

        :raise RequestRefused: through the Deferred.
        :raise Unanswered: through the Deferred.
        """
        if self._over or len(self._pending) >= PENDING:
            return fail(
                Unanswered("the connection is over" if self._over else "too many requests are pending")
            )
        assert self.transport is not None
        answer: Deferred[bytes] = succeed(b"")
        if want_reply:
            answer = Deferred()
            self._pending.append(answer)
        self.transport.sendPacket(MSG_GLOBAL_REQUEST, NS(name) + (b"\1" if want_reply else b"\0") + data)
        return answer

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Handle a message, 50 and above."""
        assert self.transport is not None
        if 90 <= messageNum <= 100:
            if self.mux is None:
                raise PeerError("a channel message before the hello")
            self.mux.message(messageNum, memoryview(b"%c%b" % (messageNum, packet)))
        elif messageNum == MSG_GLOBAL_REQUEST:
            self._requested(packet)
        elif messageNum in {MSG_REQUEST_SUCCESS, MSG_REQUEST_FAILURE}:
            self._replied(messageNum, packet)
        elif messageNum >= 80:
            self.transport.sendUnimplemented()
        # RFC 4252 section 5.3: authentication messages are ignored once it is over.

    def _requested(self, packet: bytes) -> None:
        transport = self.transport
        assert transport is not None
        if not self._allowance.take(self._clock.seconds()):
            raise PeerError("too many global requests")
        fields = MessageReader(packet)
        name, wants_reply, data = fields.string(), fields.boolean(), fields.remaining()
        answer = self.answers.get(name)
        try:
            if answer is None:
                raise RequestRefused("unknown", self.unknown)
            reply, kind, callback = answer(transport, data), MSG_REQUEST_SUCCESS, transport.answered
        except RequestRefused as refused:
            reply, kind, callback = refused.reply, MSG_REQUEST_FAILURE, transport.refused
        if wants_reply:
            transport.sendPacket(kind, reply)
        if not self._over:  # sending may have ended the connection
            callback(name)

    def _replied(self, kind: int, packet: bytes) -> None:
        if not self._pending:
            raise PeerError("a reply without a request")
        answer = self._pending.pop(0)
        if kind == MSG_REQUEST_SUCCESS:
            answer.callback(packet)
        else:
            answer.errback(RequestRefused("the peer refused a global request", packet))

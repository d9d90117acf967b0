"""The proxy's end of the relay: one request goes to a cluster, its answer comes back.

The names are those of ``twisted.web.proxy``: a request's ``proxyClientFactoryClass`` finds a way into the
cluster and makes, with its ``protocol``, the client that receives the answer.  Underneath is a pooled
channel instead of a new connection for each request, and bodies are passed on while they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import Unauthorized
from tower.kube.canonical_head import plain_fields
from tower.kube.request_info import parse_request_info
from tower.kube.status import StatusError
from tower.web.gateway.proxy_client import ProxyClient
from tower.web.outcome import Relay

if TYPE_CHECKING:
    from tower.web.gateway.channel_pool import ClusterUpstream
    from tower.web.gateway.request import Request


class ProxyClientFactory:
    """Finds a way into the cluster for one request.

    :ivar protocol: makes what receives the answer.
    :ivar client: that, until the answer is complete.
    """

    protocol: ClassVar[type[ProxyClient]] = ProxyClient

    __slots__ = ("_head", "_opening", "client", "pool", "relay", "request")

    def __init__(self, request: Request, relay: Relay) -> None:
        self.request = request
        self.relay = relay
        self.pool = request.channel.gateway.pool
        self.client: ProxyClient | None = None
        self._opening: Deferred[ClusterUpstream] | None = None
        self._head = b""

    def start(self) -> None:
        """Write the head and send it on an unused channel, or open one.

        :raise TowerError: the request is not to be sent.
        """
        request, relay = self.request, self.relay
        channel, fields, identity = request.channel, request.fields, request.identity
        if identity is None:
            raise Unauthorized(reason="the router let a request pass that nobody vouches for")
        target, prefix = request.target, relay.prefix
        if prefix:
            rest = target[len(prefix) :]
            simple = rest.startswith(b"/") and target.startswith(prefix)
            target = rest if simple else relative_target(target, prefix)
        plain, session = relay.plain, channel.session
        if identity is not session.identity or relay.cluster != session.cluster:
            channel.enter(identity, relay.cluster)
        if plain:
            bearer = fields.bearer
            lines = plain_fields(fields, relay.target, bearer=bearer is None or not identity.spent(bearer))
        else:
            lines = session.write(fields)
            if request.entry is not None and (told := request.entry.header):
                lines = b"%b%b\r\n" % (lines[:-2], told)
        self._head = b"%b %b HTTP/1.1\r\n%b" % (request.method, target, lines)
        if fields.upgrade:
            if fields.body:
                raise StatusError(400, "a request that changes the protocol has no body", close=True)
            upstream = None  # the agent takes an upgrade on a new channel alone
        else:
            upstream = self.pool.take(relay.cluster, relay.target)
        if upstream is None:
            self._open()
        else:
            self.client = client = self.protocol(self, upstream)
            client.begin(self._head, plain)

    def _open(self) -> None:
        opening = self._opening = self.pool.open(self.relay.cluster, self.relay.target)
        opening.addCallbacks(self._opened, self._not_opened)

    def _opened(self, upstream: ClusterUpstream) -> None:
        self._opening = None
        self.client = client = self.protocol(self, upstream)
        client.begin(self._head, self.relay.plain)

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        if not self.request.over:
            self.request.failed(failure)

    def lost(self, client: ProxyClient) -> None:
        """Note that the channel ended before the answer did: try once more, or say so."""
        if client.repeatable:
            self.client = None
            self.request.channel.take_body(None)
            self._open()  # a new channel, so this happens once
            return
        self.request.fail(
            StatusError(
                502, f"the connection to cluster {self.relay.cluster} broke before its answer was complete"
            )
        )

    # What the request asks of whoever makes its answer

    def drained(self) -> None:
        """Read the answer again."""
        if self.client is not None:
            self.client.resume()

    def abandon(self) -> None:
        """Let go of everything."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        client, self.client = self.client, None
        if client is not None:
            client.abandon()

    def complete(self) -> None:
        """Note that the body is through."""

    def tick(self, age: int) -> None:
        """Give up on a cluster that does not answer, unless the request is one that may take for ever."""
        client = self.client
        limit = self.request.channel.gateway.limits.answer
        if age <= limit or (client is not None and client.answering):
            return
        target = relative_target(self.request.target, self.relay.prefix)
        if client is None or not parse_request_info(self.request.method, target).is_long_running:
            self.request.fail(
                StatusError(504, f"cluster {self.relay.cluster} did not answer within {limit:.0f} s")
            )


def relative_target(target: bytes, prefix: bytes) -> bytes:
    """Return *target* without *prefix*, which it has to begin with.

    :raise Refusal: it does not: sending it would reach something else.
    """
    rest = target[len(prefix) :]
    if not target.startswith(prefix) or rest[:1] not in (b"", b"/", b"?"):
        raise StatusError(500, "the request does not belong where its router sent it", close=True)
    return rest if rest.startswith(b"/") else b"/" + rest

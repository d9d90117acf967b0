"""The proxy's end of the relay: sends one request to a cluster.

The names are those of ``twisted.web.proxy``: a request's ``proxyClientFactoryClass`` connects to the cluster
and makes, with its ``protocol``, the client that receives the answer.  Unlike there, a pooled channel serves
many requests, and bodies are streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tower.errors import Forbidden, Unauthorized
from tower.kube.canonical_head import plain_fields
from tower.kube.request_info import parse_request_info
from tower.kube.status import StatusError
from tower.tunnels.targets import KUBERNETES
from tower.web.gateway.exchange import Exchange
from tower.web.gateway.proxy_client import ProxyClient, relative_target
from tower.web.gateway.refusals import break_off, request_timeout
from tower.web.gateway.upstream.channel_pool import Attempt
from tower.web.gateway.upstream.open_failures import silent_text
from tower.web.outcome import Relay

if TYPE_CHECKING:
    from tower.web.gateway.request import Request
    from tower.web.gateway.upstream.cluster_upstream import ClusterUpstream

_ONLY_KUBERNETES: Final = "users are impersonated at the API server only: omit Impersonate-* fields (--as)"

#: Cure of a failed request that the cluster may have received.
_CHECK_EFFECT: Final = "check whether the request had an effect, then retry"


@mypyc_attr(allow_interpreted_subclasses=True)
class ProxyClientFactory(Exchange):
    """Sends one request on a channel into its cluster; `client` receives the answer, until it is complete."""

    protocol: ClassVar[type[ProxyClient]] = ProxyClient

    __slots__ = ("_age", "_attempt", "_head", "_opening", "client", "pool", "relay", "request")

    def __init__(self, request: Request, relay: Relay) -> None:
        self.request = request
        self.relay = relay
        self.pool = request.channel.gateway.pool
        self.client: ProxyClient | None = None
        self._opening: Deferred[ClusterUpstream] | None = None
        self._attempt: Attempt | None = None
        self._head = b""
        self._age = 0

    def start(self) -> None:
        """Make the head and send it on an idle channel, or open one.

        :raise TowerError: the request must not be sent.
        """
        request, relay = self.request, self.relay
        channel, fields, identity = request.channel, request.fields, request.identity
        if identity is None:
            raise Unauthorized(reason="the router accepted a request without an identity")
        target, prefix = request.target, relay.prefix
        if prefix:
            rest = target[len(prefix) :]
            simple = rest.startswith(b"/") and target.startswith(prefix)
            target = rest if simple else relative_target(target, prefix)
        plain, session = relay.plain, channel.session
        if identity is not session.identity or relay.cluster != session.cluster:
            channel.enter(identity, relay.cluster)
        if plain:
            if identity.is_acting or (fields.foreign and identity.is_trusted_caller):
                raise Forbidden(_ONLY_KUBERNETES, "impersonation")
            bearer = fields.bearer
            address = channel.peer.address if relay.names_client else ""
            own = bearer is None or not identity.uses(bearer)
            lines = plain_fields(fields, relay.target, bearer=own, client=address)
        else:
            lines = session.write(fields)
        if request.id_line and not plain:
            self._head = b"%b %b HTTP/1.1\r\n%b%b\r\n" % (request.method, target, lines[:-2], request.id_line)
        else:
            self._head = b"%b %b HTTP/1.1\r\n%b" % (request.method, target, lines)
        if fields.upgrade:
            if fields.body:
                raise StatusError(400, "an upgrade request must not have a body", close=True)
            upstream = None  # the agent accepts an upgrade only as the first request of a channel
        else:
            upstream = self.pool.take(relay.cluster, relay.target)
        if upstream is None:
            self._open()
        else:
            self.client = client = self.protocol(self, upstream)
            client.begin(self._head, plain)

    def _open(self) -> None:
        attempt = self._attempt = Attempt(self.request.client, self._age)
        opening = self._opening = self.pool.open(self.relay.cluster, self.relay.target, attempt)
        opening.addCallbacks(self._opened, self._not_opened)

    def _opened(self, upstream: ClusterUpstream) -> None:
        self._opening = None
        try:
            self.client = client = self.protocol(self, upstream)
            client.begin(self._head, self.relay.plain)
        except Exception as e:  # noqa: BLE001 - in a Deferred, it would let the client wait
            if self.client is None and upstream.shelf is None:
                upstream.discard()
            break_off(self.request, e, self.relay.cluster)

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        if not (self.request.over or failure.check(CancelledError)):
            self.request.failed(failure)

    def lost(self, client: ProxyClient) -> None:
        """Retry once on a new channel, or fail: the channel was lost before the end of the answer."""
        if client.repeatable:
            self.client = None
            self.request.channel.take_body(None)
            self._open()  # a new channel, so this happens once
            return
        text = f"the connection to cluster {self.relay.cluster} was lost before its answer was complete: "
        text += "retry" if client.is_safe else _CHECK_EFFECT
        self.request.fail(StatusError(502, text))

    # See `tower.web.gateway.exchange.Exchange`

    def drained(self) -> None:
        """Resume reading the answer."""
        if self.client is not None:
            self.client.resume()

    def conclude(self) -> None:
        """End the answer after the last chunk."""
        if self.client is not None:
            self.client.conclude()

    def abandon(self) -> None:
        """Cancel the opening, or discard the channel."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        client, self.client = self.client, None
        if client is not None:
            client.abandon()

    def tick(self, age: int) -> None:
        """Fail if the cluster does not answer in time, unless the request is a long-running one."""
        client = self.client
        if client is not None and client.answering:
            return
        self._age = age
        if self._is_silent():
            self._give_tunnel_up()
            return
        error = self._unanswered(age) if self.relay.target == KUBERNETES else None
        if error is not None:
            self.abandon()
            self.request.fail(error)
            return
        limit = self.request.channel.gateway.limits.answer
        if age > limit and not (client is not None and self._is_long_running):
            self.request.fail(request_timeout(f"cluster {self.relay.cluster}", limit, "check its load"))

    @property
    def _is_long_running(self) -> bool:
        target = relative_target(self.request.target, self.relay.prefix)
        return parse_request_info(self.request.method, target).is_long_running

    def _unanswered(self, age: int) -> StatusError | None:
        """Return the error if the API server is known not to answer, and the request need not wait."""
        client, cluster = self.client, self.relay.cluster
        if client is None:
            return None if self._attempt is None else self.pool.unanswered(cluster, self._attempt, age)
        attempt = Attempt(self.request.client, tunnel=client.upstream.tunnel)
        error = self.pool.unanswered_since(cluster, attempt, age)
        if error is None or self._is_long_running or self.request.fields.upgrade:
            return None
        return error if client.is_safe else StatusError(504, f"{error.message}; {_CHECK_EFFECT}")

    def _is_silent(self) -> bool:
        """Return whether the tunnel that the request waits for does not answer."""
        if self.client is not None:
            return self.pool.is_silent(self.client.upstream.tunnel)
        tunnel = None if self._attempt is None else self._attempt.tunnel
        return tunnel is not None and self.pool.is_silent(tunnel)

    def _give_tunnel_up(self) -> None:
        """Use another tunnel, if there is one and the request was not sent or may be repeated."""
        client = self.client
        self.abandon()
        if client is None or client.is_safe:
            self._open()
            return
        text = f"{silent_text(self.relay.cluster)}; it may have received the request"
        self.request.fail(StatusError(504, text))

"""Receives a cluster's answer to one request and sends it to the user; see `tower.web.gateway.relay`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from tower.errors import TowerError, Unauthorized
from tower.http.bodies import CHUNKED, UNTIL_CLOSE, BadBody, ChunkedBody
from tower.http.responses import PLAIN, BadResponse, ResponseHead, check_unfinished
from tower.kube.status import StatusError
from tower.net.pipes import Buffer
from tower.tunnels.targets import KUBERNETES
from tower.web.gateway.notice.stop_notice import stop_notice_for
from tower.web.gateway.raw_streams import go_raw
from tower.web.gateway.refusals import break_off
from tower.web.gateway.upstream.confinement import ACTS_ON_ORIGIN, TRAILERS, confined
from tower.web.gateway.upstream.locations import REDIRECTED, leads_user_away, location_for_user
from tower.web.gateway.upstream.member_errors import LONGEST, member_error

if TYPE_CHECKING:
    from tower.web.gateway.relay import ProxyClientFactory
    from tower.web.gateway.upstream.cluster_upstream import ClusterUpstream

# The end of a body in chunks.
_LAST_CHUNK: Final = b"0\r\n\r\n"

# Methods that may be retried if the channel was just closing (RFC 9110 section 9.2.2; as Go's HTTP client).
_REPEATABLE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))

#: Maximum number of interim answers (1xx) before the final one.
_MOST_INTERIM: Final = 100

#: Longest Status of a member, for an error or a deletion, that the audit log has, B.
STATUS_LIMIT: Final = 8192

# Answers that may be about the agent's credential, not about the user.
_REJECTIONS: Final = frozenset((401, 403))


@mypyc_attr(allow_interpreted_subclasses=True)
class ProxyClient:
    """Receives the answer to one request from a channel; a `tower.net.pipes.Receiver`.

    To see or change answers, override `handleResponseHead`, `handleResponsePart`, `handleResponseEnd`.
    """

    __slots__ = (
        *("_body_sent", "_chunks", "_head", "_interim", "_keep", "_left", "_over", "_paused"),
        *("_rejection", "_reusable", "_scope", "_status", "_uploads"),
        *("channel", "factory", "request", "upstream"),
    )

    def __init__(self, factory: ProxyClientFactory, upstream: ClusterUpstream) -> None:
        self.factory = factory
        self.request = request = factory.request
        self.channel = channel = request.channel
        self.upstream = upstream
        self._scope = factory.relay.scope
        self._head: bytearray | None = None  # an incomplete head, or the body of `_rejection`
        self._rejection: ResponseHead | None = None  # whose body must be read first
        self._interim = 0  # answers before the final one
        self._status = 0  # of the final answer, after its head was sent
        self._left = 0  # of its body, B; or UNTIL_CLOSE
        self._chunks: ChunkedBody | None = None
        # a server that rejects an upgrade may still read further bytes as that protocol (CVE-2018-1002105)
        fields = request.fields
        self._reusable = not fields.upgrade
        self._keep = self._reusable and not (fields.close or not request.minor or channel.gateway.stopping)
        self._uploads = fields.body != 0
        self._body_sent = self._over = self._paused = False

    # Hooks

    _hooked: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls._hooked = True

    def handleResponseHead(self, status: int, head: bytes) -> bytes:
        """Return the head for the user, including the empty line."""
        return head

    def handleResponsePart(self, data: Buffer) -> Buffer:
        """Return this part of the body for the user, of the same length."""
        return data

    def handleResponseEnd(self) -> None:
        """Called when the answer is complete."""

    # The request

    def begin(self, head: bytes, plain: bool) -> None:
        """Send the request; *head* has the agent's canonical form, *plain* is as in `Relay`."""
        request, upstream = self.request, self.upstream
        pipe = upstream.channel
        if upstream.rewrite is not None:
            try:
                head = upstream.rewrite(head, plain)
            except StatusError as e:
                self._refuse(e)
                return
        elif plain and self.factory.relay.target == KUBERNETES:
            self._refuse(_no_agent_credential(self.factory.relay.cluster))
            return
        pipe.receiver = self
        if not request.fields.body:
            pipe.send(head)
        else:
            early, request.early = request.early, b""
            self._body_sent = bool(early)
            roomy = pipe.send(head + early)
            if self.channel.body_pending and not self._over:
                self.channel.take_body(self._send_body, roomy=roomy)
        if not upstream.reused:
            pipe.resume()

    def _refuse(self, error: TowerError) -> None:
        """Answer with a Status; the channel is still unused, so it goes back to the pool."""
        self._over = True
        self.factory.client = None
        relay, upstream = self.factory.relay, self.upstream
        is_new = not upstream.reused
        self.factory.pool.give(relay.cluster, relay.target, upstream)
        if is_new:
            upstream.channel.resume()
        self.request.fail(error)

    def _send_body(self, data: Buffer) -> bool:
        self._body_sent = True
        return self.upstream.channel.send(data)

    def drained(self) -> None:
        """Resume reading the request's body."""
        try:
            self.channel.taker_drained()
        except Exception as e:  # noqa: BLE001 - see `_contain`
            self._contain(e)

    # The answer

    def received(self, data: memoryview) -> None:
        """Forward a piece of the answer."""
        try:
            if self._status:
                self._deliver(self.handleResponsePart(data) if self._hooked else data, 0)
            elif self._head is not None:
                start = max(len(self._head) - 3, 0)
                self._head += data
                self._read_heads(start)
            elif (
                self._keep
                and not (self._uploads and self.channel.body_pending)
                and (match := PLAIN.match(data)) is not None
                and not (self._scope and ACTS_ON_ORIGIN.search(data, 0, match.end()))
            ):
                self._pass_plain(data, match)
            else:
                self._head = bytearray(data)
                self._read_heads(0)
        except (BadResponse, BadBody) as invalid:
            self._break(f"sent an invalid HTTP answer: {invalid}: {self._cure}")
        except Exception as e:  # noqa: BLE001 - see `_contain`
            self._contain(e)

    def _pass_plain(self, data: memoryview, match: re.Match[bytes]) -> None:
        """Forward an answer whose head needs no change; *data* is usually the whole answer."""
        code, length = match.groups()
        if code == b"401" or code == b"403":  # noqa: PLR1714 - faster for the other codes
            self._head = bytearray(data)
            self._read_heads(0)
            return
        end, request = match.end(), self.request
        if request.method == b"HEAD" or code == b"304":
            left = 0
        elif length is not None:
            left = int(length)
        else:
            left = CHUNKED
            self._chunks = ChunkedBody(None, TRAILERS if self._scope else None)
        self._status = int(code)
        if end + left != len(data) or self._hooked or left < 0:
            self._left = left
            self._deliver_head(self._status, data, end)
            return
        if request.entry is not None and (self._status >= 400 or request.method == b"DELETE"):
            request.entry.member_status(self._status, bytes(data[end : end + STATUS_LIMIT]))
        request.begun_by_member(self._status, whole=True)
        channel = self.channel
        if not channel.connection.send(data):
            channel.fill()
        if not self._over:
            self._finish(in_step=True)

    def _read_heads(self, start: int) -> None:
        """Read the head of the answer, and of interim answers before it."""
        buffer = self._head
        assert buffer is not None
        if self._rejection is not None:
            self._judge(self._rejection, buffer)
            return
        while not self._over:
            end = buffer.find(b"\r\n\r\n", start) + 4
            if end < 4:
                check_unfinished(buffer)
                return
            raw, start = bytes(buffer[:end]), 0
            del buffer[:end]
            head = ResponseHead(raw, bodiless=self.request.method == b"HEAD")
            if self._scope and ACTS_ON_ORIGIN.search(head.lines):
                head.lines = confined(head.lines, self._scope, self.request.path)
            if head.code == 101:
                self._switch(head, bytes(buffer))
                return
            if head.code in _REJECTIONS and self._uses_tower_credential:
                self._judge(head, buffer)
                return
            if head.code >= 200:
                self._head = None
                self._answer(head, bytes(buffer))
                return
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                raise BadResponse(f"more than {_MOST_INTERIM} interim answers")
            if self.request.minor and not self.channel.send(head.lines + b"\r\n"):
                self._pause()

    def _judge(self, head: ResponseHead, body: bytearray) -> None:
        """Forward a rejection with its short body, once that is complete, unless it is about the agent."""
        is_short = 0 <= head.body <= LONGEST
        if is_short and len(body) < head.body:
            self._rejection, self._head = head, body
            return
        relay, request = self.factory.relay, self.request
        target = relative_target(request.target, relay.prefix)
        identity = request.identity
        user = identity.user if identity is not None else ""
        if request.fields.foreign:
            user = (request.fields.get(b"impersonate-user") or b"").decode("utf-8", "replace")
        read = bytes(body[: head.body]) if is_short else b""
        what = member_error(head.code, read, request.method, target, relay, self.upstream, user)
        if what:
            if relay.target == KUBERNETES:
                self.factory.pool.doubt(self.upstream)
            self._break(what)
        else:
            self._head = self._rejection = None
            self._answer(head, bytes(body))

    def _answer(self, head: ResponseHead, rest: bytes) -> None:
        """Forward an answer whose head must be rewritten."""
        request = self.request
        location = head.location
        if location is not None:
            relay = self.factory.relay
            location = location_for_user(location, request, relay, self.upstream.tunnel.server)
            if 300 <= head.code < 400 and leads_user_away(location, request, relay.prefix):
                self._break(REDIRECTED)
                return
        self._reusable = self._reusable and not head.close
        # a server that answers before the end of the request body does not read the rest
        keep = self._keep and not self.channel.body_pending
        lines, body = head.lines, head.body
        if body == UNTIL_CLOSE:
            self._reusable = keep = False
        elif body == CHUNKED:
            self._chunks = chunks = ChunkedBody(None, TRAILERS if self._scope else None)
            if not request.minor:
                lines = lines.removesuffix(b"Transfer-Encoding: chunked\r\n")
                chunks.pieces = []
        if location is not None:
            lines += b"Location: %b\r\n" % location
        self._keep = keep
        self._left = body
        self._status = head.code
        wire = lines + (b"\r\n" if keep else b"Connection: close\r\n\r\n")
        self._deliver_head(head.code, wire + rest, len(wire))

    def _deliver_head(self, status: int, data: Buffer, end: int) -> None:
        """Forward *data*: *end* bytes of head, and the beginning of the body."""
        request = self.request
        if request.entry is not None and (status >= 400 or request.method == b"DELETE"):
            request.entry.member_status(status, bytes(data[end : end + STATUS_LIMIT]))
        request.begun_by_member(status)
        if self._hooked:
            head = self.handleResponseHead(status, bytes(data[:end]))
            data, end = head + bytes(self.handleResponsePart(data[end:])), len(head)
        self._deliver(data, end)

    def _deliver(self, data: Buffer, start: int) -> None:
        """Forward *data*, in which the body continues at *start*.

        :raise BadBody: the framing is invalid.
        """
        size = len(data)
        chunks, channel = self._chunks, self.channel
        if chunks is not None:
            stop = chunks.feed(data, start)
            if (pieces := chunks.pieces) is not None:
                data = bytes(data[:start]) + b"".join(pieces)
                pieces.clear()
        elif self._left == UNTIL_CLOSE:
            stop = -1
        elif size - start < self._left:
            self._left -= size - start
            stop = -1
        else:
            stop = start + self._left
        if stop < 0:
            if not channel.connection.send(data):
                channel.fill()
                if not self._over:
                    self._pause()
            return
        if not channel.connection.send(data if stop >= len(data) else data[:stop]):
            channel.fill()
        if not self._over:
            self._finish(in_step=stop == size)

    def _finish(self, *, in_step: bool) -> None:
        """End the exchange; the channel goes back to the pool if it is in step."""
        self._over = True
        self.factory.client = None  # break the cycle: there would be one for each request
        upstream, request = self.upstream, self.request
        uploading = self._uploads and self.channel.body_pending
        if in_step and self._reusable and not (self._paused or uploading):
            relay = self.factory.relay
            self.factory.pool.give(relay.cluster, relay.target, upstream)
        else:
            upstream.discard()
        if self._hooked:
            self.handleResponseEnd()
        request.finish(keep=self._keep)

    def _switch(self, head: ResponseHead, rest: bytes) -> None:
        """Forward raw bytes from now on: the other side accepted the upgrade."""
        if not self.request.fields.upgrade:
            raise BadResponse("the answer changes the protocol without a request to do so")
        self._over = True
        self.factory.client = None
        notice = stop_notice_for(self.request, head)
        if notice is not None:
            notice.boundaries.follow(rest)
        self.request.switched(by_member=True)
        go_raw(self.channel, self.upstream.channel, head.lines + b"\r\n" + rest, notice)

    def _pause(self) -> None:
        self._paused = True
        self.upstream.channel.pause()

    def resume(self) -> None:
        """Resume reading the answer: the user accepts bytes again."""
        if self._paused:
            self._paused = False
            self.upstream.channel.resume()

    # Ends

    def ended(self) -> None:
        """End an answer that is delimited by the end of the stream; any other one is broken."""
        try:
            if self._status and self._left == UNTIL_CLOSE and self._chunks is None:
                self._finish(in_step=False)
            else:
                self._lost()
        except Exception as e:  # noqa: BLE001 - see `_contain`
            self._contain(e)

    def closed(self, reason: Exception) -> None:
        """See `tower.net.pipes.Receiver.closed`."""
        try:
            self._lost()
        except Exception as e:  # noqa: BLE001 - see `_contain`
            self._contain(e)

    def _lost(self) -> None:
        self._over = True
        self.upstream.discard()
        self.factory.lost(self)

    @property
    def _uses_tower_credential(self) -> bool:
        """Whether the agent or the proxy added a credential to the request, in place of the user's own."""
        relay, request = self.factory.relay, self.request
        if not relay.plain:
            identity = request.identity
            return identity is None or identity.member_token(request.fields.bearer) is None
        return self.upstream.rewrite is not None and relay.target != KUBERNETES

    @property
    def _cure(self) -> str:
        """How to repair a cluster or target that does not speak HTTP."""
        if self.factory.relay.target != KUBERNETES:
            return "check that the target serves HTTP/1.1"
        owner = "its agent" if self.upstream.rewrite is None else "the cluster"
        return f"check that the kubeconfig of {owner} has the address of an API server"

    def _break(self, what: str) -> None:
        """Discard the channel and answer 502: the cluster did *what* (verb and object)."""
        self._over = True
        self.upstream.discard()
        try:
            self.request.fail(StatusError(502, f"cluster {self.factory.relay.cluster} {what}"))
        except Exception as e:  # noqa: BLE001 - see `_contain`
            self._contain(e)

    def _contain(self, error: Exception) -> None:
        """End this exchange after an unexpected error, which would end the tunnel if it went further."""
        self._over = True
        self.factory.client = None
        if self.upstream.channel.receiver is self:
            self.upstream.discard()
        break_off(self.request, error, self.factory.relay.cluster)

    def conclude(self) -> None:
        """End the answer if it comes in chunks, and a chunk has just ended."""
        chunks = self._chunks
        if self._over or self._paused or chunks is None or chunks.pieces is not None:
            return
        if self._status and chunks.is_between_chunks:
            self._keep = self._reusable = False
            self._deliver(_LAST_CHUNK, 0)

    def abandon(self) -> None:
        """Close the channel, which also ends the request at the far end."""
        if not self._over:
            self._over = True
            self.upstream.discard()

    @property
    def answering(self) -> bool:
        """Whether the head of the answer was sent."""
        return self._status != 0

    @property
    def repeatable(self) -> bool:
        """Whether the request may be retried although its head was sent on this channel."""
        if not self.upstream.reused or self._head is not None or self._status:
            return False
        if self.request.fields.body:
            return not self._body_sent  # a server does not act on a head without its body
        return self.is_safe

    @property
    def is_safe(self) -> bool:
        """Whether a server may get the request twice; an upgrade may run a command."""
        fields = self.request.fields
        return self.request.method in _REPEATABLE and not (fields.body or fields.upgrade)


def _no_agent_credential(cluster: str) -> Unauthorized:
    return Unauthorized(
        f"no credential was sent, and the agent of cluster {cluster} does not add its own: "
        "use a kubeconfig made by 'tower kubeconfig CLUSTER --user NAME'",
        "no credential",
    )


def relative_target(target: bytes, prefix: bytes) -> bytes:
    """Return *target* without *prefix*.

    :raise StatusError: it does not begin with *prefix*, so it would reach another path.
    """
    rest = target[len(prefix) :]
    if not target.startswith(prefix) or rest[:1] not in (b"", b"/", b"?"):
        raise StatusError(500, "the router chose a cluster that the request path does not name", close=True)
    return rest if rest.startswith(b"/") else b"/" + rest

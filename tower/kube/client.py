"""A client of the API server of a member: the agent's, or the proxy's for a cluster of type ssh.

The caller opens the pipes, after the TLS handshake; HTTP/1.1 is `twisted.web.client`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from attrs import define, field, frozen
from twisted.internet import defer
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.web.client import (
    URI,
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseNeverReceived,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from tower.errors import TowerError
from tower.escaping import reported
from tower.http.client_bodies import NO_RESPONSE, Body, cause_of, describe_failure, read_body
from tower.kube.canonical_head import identity_lines
from tower.kube.head_policy import Upstream
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe

#: Timeout of one request, with its answer, s.
TIMEOUT = 15.0

#: Largest answer, B; 500 nodes with all their images take about 10 MB.
ANSWER_LIMIT = 32 * 1024 * 1024

#: How long an idle connection is kept, s; it occupies one node's tunnel.
IDLE = 5

#: Objects per page of a list, and most objects of a list.
PAGE_SIZE = 500
OBJECT_LIMIT = 100_000

#: Media types of bodies.
JSON = b"application/json"
MERGE_PATCH = b"application/merge-patch+json"

_EXPIRED = 410

#: Delays in seconds; dates are not used by API servers.
_SECONDS = re.compile(rb"[0-9]{1,5}")


class APIError(TowerError):
    """The API server did not answer, or answered with an error or an unexpected object.

    :ivar path: of the request, without its query.
    :ivar code: HTTP status; 0 without an answer.
    :ivar message: of the Status, or the reason why there is no answer.
    :ivar cause: the error that prevented an answer; None if there is an answer.
    :ivar reason: of the Status, such as ``AlreadyExists``; may be empty.
    :ivar retry_after: delay that the server requests, s; 0 without one.
    """

    def __init__(
        self,
        method: str,
        path: str,
        code: int,
        message: str,
        cause: BaseException | None = None,
        *,
        reason: str = "",
        retry_after: float = 0,
    ) -> None:
        answer = f"answered {code}: {message}" if code else f"no answer: {message}"
        super().__init__(f"{method} {path}: {answer}")
        self.method, self.path, self.code, self.message, self.cause = method, path, code, message, cause
        self.reason, self.retry_after = reason, retry_after


@frozen
class APIResponse:
    """An answer of the API server.

    :ivar code: HTTP status.
    :ivar body: complete.
    :ivar date: value of the field ``Date``; empty without one.
    :ivar retry_after: delay in the field ``Retry-After``, s; 0 without one.
    """

    code: int
    body: bytes = field(repr=False)
    date: str = ""
    retry_after: float = 0


class APIClient:
    """Sends requests to one API server.

    :param open_pipe: opens a paused pipe to the API server, after the TLS handshake.
    :param upstream: returns the current `Upstream`; see `tower.kube.apiserver.APIServer.upstream`.
    :param timeout: of each request, s.
    :param limit: of each answer, B.
    :param persistent: keep connections for `IDLE` s; False: one connection per request.
    :param program: value of the field ``User-Agent``.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        open_pipe: Callable[[], Awaitable[Pipe]],
        upstream: Callable[[], Upstream],
        *,
        timeout: float = TIMEOUT,
        limit: int = ANSWER_LIMIT,
        persistent: bool = True,
        program: bytes = b"tower-proxy",
    ) -> None:
        self._reactor = reactor
        self._program = program
        self._upstream = upstream
        self._timeout = timeout
        self._limit = limit
        self._pool = HTTPConnectionPool(reactor, persistent)
        self._pool.cachedConnectionTimeout = IDLE
        self._pool.retryAutomatically = False  # it retries cancelled requests, without a timeout
        self._agent: Agent = Agent.usingEndpointFactory(reactor, _PipeEndpoint(open_pipe), self._pool)

    async def get(self, path: str) -> Any:
        """Return the object at *path*, which may have a query.

        :raise APIError: the request failed.
        """
        return value_of("GET", path, await self.request("GET", path))

    async def items(self, path: str) -> list[Any]:
        """Return the items of the list at *path*, read in pages; restarts once if the list expires.

        :raise APIError: the request failed.
        """
        try:
            return await self._items(path)
        except APIError as e:
            if e.code != _EXPIRED:
                raise
        return await self._items(path)

    async def _items(self, path: str) -> list[Any]:
        items: list[Any] = []
        first = f"{path}{'&' if '?' in path else '?'}limit={PAGE_SIZE}"
        page = first
        while True:
            answer = await self.get(page)
            if not isinstance(answer, dict) or not isinstance(answer.get("items"), list):
                raise APIError("GET", _bare(path), 200, "not a list")
            items += answer["items"]
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return items
            if not answer["items"] or len(items) > OBJECT_LIMIT:
                raise APIError("GET", _bare(path), 200, f"endless list, {len(items)} items so far")
            page = f"{first}&continue={quote(str(token), safe='')}"

    async def post(
        self,
        path: str,
        body: Any,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
    ) -> Any:
        """Post *body* as JSON and return the object of the answer.

        :param user: to impersonate, with *groups*; None: the credential's own user.
        :param repeatable: safe to retry if the connection breaks.
        :raise APIError: the request failed.
        :raise Invalid: a name does not fit a header field.
        """
        data = json.dumps(body).encode()
        answer = await self.request("POST", path, data, user=user, groups=groups, repeatable=repeatable)
        return value_of("POST", path, answer)

    async def patch(self, path: str, patch: Any) -> Any:
        """Apply a JSON merge patch (RFC 7396) and return the changed object.

        With ``metadata.resourceVersion``, the API server answers 409 if the object has another version.

        :raise APIError: the request failed.
        """
        data = json.dumps(patch).encode()
        return value_of("PATCH", path, await self.request("PATCH", path, data, media=MERGE_PATCH))

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        repeatable: bool = False,
        media: bytes = JSON,
    ) -> APIResponse:
        """Return the answer, regardless of its status.

        :param body: JSON.
        :param media: media type of *body*.
        :param repeatable: see `post`; requests without a body always are.
        :raise APIError: no answer within the timeout, or too large an answer.
        :raise Invalid: a name does not fit a header field.
        """
        upstream = self._upstream()
        headers = _headers(upstream, user, groups, None if body is None else media)
        headers.setRawHeaders(b"User-Agent", [self._program])
        target = _ORIGIN + upstream.prefix + path.encode("ascii")
        answer = Deferred.fromCoroutine(
            self._request(
                method.encode("ascii"), target, headers, body, repeatable=repeatable or body is None
            )
        )
        answer.addTimeout(self._timeout, self._reactor, _timed_out)
        try:
            return await answer
        except NO_RESPONSE as e:
            raise APIError(method, _bare(path), 0, describe_failure(e), cause_of(e)) from None

    async def _request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None, *, repeatable: bool
    ) -> APIResponse:
        try:
            response = await self._send(method, target, headers, body)
        except (ResponseNeverReceived, RequestTransmissionFailed):
            if not repeatable:
                raise
            response = await self._send(method, target, headers, body)
        (date,) = response.headers.getRawHeaders(b"date", [b""])[:1]
        body = await read_body(response, self._limit)
        return APIResponse(response.code, body, date.decode("ascii", "replace"), retry_after(response))

    def _send(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        sending = self._agent.request(method, target, headers, None if body is None else Body(body))
        return _cancellable(sending)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.closeCachedConnections()


def _cancellable(doing: Deferred[IResponse]) -> Deferred[IResponse]:
    """Return a Deferred that fails with `CancelledError` if it is cancelled.

    Twisted's client closes the connection to cancel a request.  A pipe reports that at once, so *doing* fails
    with a lost connection instead.
    """
    is_cancelled = False

    def cancel(_: object) -> None:
        nonlocal is_cancelled
        is_cancelled = True
        doing.cancel()

    def done(outcome: Any) -> None:
        if not is_cancelled:
            result.callback(outcome)

    result: Deferred[IResponse] = Deferred(cancel)
    doing.addBoth(done)
    return result


def _headers(upstream: Upstream, user: str | None, groups: Sequence[str], media: bytes | None) -> Headers:
    headers = Headers({b"Accept": [JSON]})
    if media is not None:
        headers.addRawHeader(b"Content-Type", media)
    lines = upstream.host_line + upstream.credential_line
    if user is not None:
        lines += identity_lines(user, groups)
    for line in lines.splitlines():
        name, _, value = line.partition(b": ")
        headers.addRawHeader(name, value)
    return headers


def retry_after(response: IResponse) -> float:
    """Return the delay in a response's ``Retry-After`` in seconds; 0 without one."""
    (delay,) = response.headers.getRawHeaders(b"retry-after", [b""])[:1]
    return float(delay) if _SECONDS.fullmatch(delay) else 0


def value_of(method: str, path: str, answer: APIResponse) -> Any:
    """Return the object in *answer*.

    :raise APIError: it is an error, or not JSON.
    """
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if 200 <= answer.code < 300 and value is not None:
        return value
    message = value.get("message") if isinstance(value, dict) else None
    text = message if isinstance(message, str) else answer.body
    detail = reported("the API server", text) if text else "an empty body"
    reason = value.get("reason") if isinstance(value, dict) else None
    raise APIError(
        method,
        _bare(path),
        answer.code,
        detail,
        reason=reason if isinstance(reason, str) else "",
        retry_after=answer.retry_after,
    )


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _timed_out(_result: object, timeout: float) -> None:
    raise defer.TimeoutError(f"it took longer than {timeout:g} s")


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
@define(eq=False)
class _PipeEndpoint:
    """Runs a protocol on a newly opened pipe; the same endpoint for all URLs."""

    _open_pipe: Callable[[], Awaitable[Pipe]]

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See `IAgentEndpointFactory`."""
        return self

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a pipe; cancelling cancels the opening."""
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, _MEMBER)

    async def _open(self) -> tuple[Pipe, bytes]:
        return await self._open_pipe(), b""


#: The URL's host is unused: the endpoint ignores it, and the head has `Upstream.host_line`.
_ORIGIN = b"http://member"
_MEMBER = HostnameAddress(b"member", 80)
